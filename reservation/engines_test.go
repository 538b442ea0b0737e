package reservation_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/redisstore"
	"github.com/budgetd/budgetd/test/servers"
)

// onEngines runs a test on every engine: in memory, on one Redis, and on a
// Cluster of three primaries.
func onEngines(t *testing.T, policyYAML string, test func(t *testing.T, r *rig)) {
	t.Helper()
	const patient = "dial_timeout=10s&read_timeout=10s&write_timeout=10s&pool_timeout=10s"
	t.Run("memory", func(t *testing.T) { test(t, newRig(t, policyYAML)) })
	for name, url := range map[string]func(testing.TB) string{
		"redis": func(tb testing.TB) string { return servers.SharedRedis(tb).URL() + "?" + patient },
		"cluster": func(tb testing.TB) string {
			return "redis://" + strings.Join(servers.SharedRedisCluster(tb).Addrs(), ",") + "?cluster=true&" + patient
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, policyYAML)
			opts, err := redisstore.Options(url(t))
			if err != nil {
				t.Fatal(err)
			}
			engine, err := redisstore.Connect(opts, redisstore.Config{Clock: r.clock.Now, Prefix: servers.Prefix(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { engine.Close() })
			r.engine.swap(engine)
			test(t, r)
		})
	}
}

func isInvalid(err error) bool {
	var invalid *reservation.InvalidError
	return errors.As(err, &invalid)
}
