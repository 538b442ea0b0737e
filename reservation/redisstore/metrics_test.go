package redisstore

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	server := servers.NewRedis(t)
	s := open(t, patient(t, server.URL()), Config{Registerer: registry})
	mustReserve(t, s, asking("acme", tokens(1, slowBucket)), reservation.Granted)
	server.Freeze()
	opts, err := Options(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	away := open(t, opts, Config{Prefix: s.prefix})
	away.metrics = s.metrics
	if err := away.Ping(within(t, 1e9)); err == nil {
		t.Error("a frozen server answers a ping")
	}
	if _, err := away.Reserve(within(t, 1e9), asking("acme", tokens(1, slowBucket))); err == nil {
		t.Error("a frozen server answers")
	}
	server.Thaw()
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, error %v", problems, err)
	}
	for name, want := range map[string]int{
		"budgetd_redisstore_script_duration_seconds": int(scriptCount),
		"budgetd_redisstore_script_loads_total":      1,
		"budgetd_redisstore_script_errors_total":     1,
		"budgetd_redisstore_reclaimed_total":         1,
		"budgetd_redisstore_pool_legs_left_total":    1,
	} {
		if n, err := testutil.GatherAndCount(registry, name); err != nil || n != want {
			t.Errorf("%s: %d series, want %d (error %v)", name, n, want, err)
		}
	}
	if _, err := newMetrics(registry); err == nil {
		t.Error("the same registry was taken twice")
	}
}
