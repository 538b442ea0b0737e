package app_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/quota/policystore"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

func fleetConfig(t testing.TB, redis, postgres string) config.Config {
	t.Helper()
	c := config.Default()
	c.Listen, c.LogFormat, c.Data = "127.0.0.1:0", "text", t.TempDir()
	c.Postgres = config.NewURL(postgres)
	if redis != "" {
		// The servers of the tests share a few cores with everything else.
		c.Redis = config.NewURL(redis + options(redis) + "dial_timeout=5s&read_timeout=5s&write_timeout=5s&pool_timeout=5s")
	}
	c.Deadline = 5 * time.Second
	c.KeyPrefix = servers.Prefix(t)
	return c
}

// refused starts a broker that must not start, and returns why.
func refused(t testing.TB, c config.Config) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a, err := app.Start(ctx, c, app.Options{})
	if err == nil {
		a.Close(ctx)
		t.Fatal("it starts")
	}
	return err.Error()
}

// Three brokers on one Redis and one PostgreSQL are one broker: a grant of one
// is refunded at the next, and its usage is seen at the third.
func TestFleet(t *testing.T) {
	c := fleetConfig(t, servers.SharedRedis(t).URL(), servers.FreshDatabase(t))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stores, err := app.OpenStores(ctx, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	demo := quota.DemoPolicy()
	if _, err := stores.Policies.Apply(ctx, &policyfile.Document{
		Plans:    []quota.Plan{demo.Plans["demo"]},
		Accounts: []quota.Account{demo.Accounts["demo"]},
	}, policystore.Options{By: "test"}); err != nil {
		t.Fatal(err)
	}
	_, secret, err := stores.Keys.Create(ctx, auth.NewKey{Name: "test", Role: auth.RoleCaller, By: "test", Accounts: []string{"demo"}})
	if err != nil {
		t.Fatal(err)
	}
	key := secret.Reveal()
	if err := stores.Close(); err != nil {
		t.Fatal(err)
	}

	var fleet []*app.App
	for range 3 {
		c.Data = t.TempDir()
		fleet = append(fleet, begin(t, c, app.Options{}))
	}
	status, grant, text := call(t, fleet[0], key, "Reserve", `{"amounts":{"tokens":4000,"cost":1000000000},"lease":"600s"}`)
	if status != http.StatusOK || !strings.Contains(text, `"remaining":"6000"`) {
		t.Fatalf("Reserve at the first: %d %s", status, text)
	}
	if status, _, text := call(t, fleet[1], key, "Refund", fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"tokens":1600,"cost":400000000}}}`, grant["reservationId"])); status != http.StatusOK {
		t.Fatalf("Refund at the second: %d %s", status, text)
	}
	_, view, text := call(t, fleet[2], key, "GetQuota", `{}`)
	if totals, _ := view["totals"].(map[string]any); totals["tokens"] != "1600" || totals["cost"] != "400000000" {
		t.Errorf("GetQuota at the third: %s", text)
	}
	if status, text := get(t, fleet[2].URL()+"/readyz"); status != http.StatusOK {
		t.Errorf("readyz: %d %s", status, text)
	}
}

// A node whose clock is in another century retires no month: PostgreSQL's clock
// decides.
func TestMonthsLeaveByTheServersClock(t *testing.T) {
	database := servers.FreshDatabase(t)
	c := fleetConfig(t, "", database)
	c.SingleNode, c.Demo, c.LedgerRetention = true, true, 90*24*time.Hour
	begin(t, c, app.Options{Clock: func() time.Time { return time.Now().AddDate(90, 0, 0) }})
	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var first time.Time
	for deadline := time.Now().Add(time.Minute); ; {
		err := db.QueryRow(`SELECT first_month FROM kept_months`).Scan(&first)
		if err == nil {
			break
		}
		if !errors.Is(err, sql.ErrNoRows) || time.Now().After(deadline) {
			t.Fatalf("the ledger is not maintained: %v", err)
		}
		time.Sleep(10 * time.Millisecond) // another goroutine's work: poll, with a deadline
	}
	if first.After(time.Now()) {
		t.Errorf("the first month that is kept is %s", first.Format(time.DateOnly))
	}
}

// A single broker may keep its counters in memory beside PostgreSQL, if it says
// that it is single.
func TestSingleNodeOnPostgres(t *testing.T) {
	c := fleetConfig(t, "", servers.FreshDatabase(t))
	if why := refused(t, c); !strings.Contains(why, "single_node if this is the only broker") {
		t.Errorf("without saying so: %s", why)
	}
	c.SingleNode, c.Demo = true, true
	a := begin(t, c, app.Options{})
	if status, _, text := call(t, a, "demo", "Charge", `{"amounts":{"tokens":10,"cost":5}}`); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
}

// What is wrong with the servers is told at once, with what to do, and without
// a password.
func TestBadServers(t *testing.T) {
	good := servers.SharedRedis(t).URL()
	database := servers.FreshDatabase(t)

	evicting := servers.NewRedis(t, "--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru")
	nowhere := "postgres://budgetd:S3CRET@127.0.0.1:1/none"
	why := refused(t, fleetConfig(t, evicting.URL(), nowhere))
	for _, want := range []string{"2 things are wrong:", "allkeys-lru", "noeviction", "postgres postgres://127.0.0.1:1/none: can't be reached"} {
		if !strings.Contains(why, want) {
			t.Errorf("does not tell %q: %s", want, why)
		}
	}
	if why := refused(t, fleetConfig(t, "redis://u:S3CRET@127.0.0.1:1", database)); !strings.Contains(why, "redis 127.0.0.1:1: it does not answer") || strings.Contains(why, "S3CRET") {
		t.Errorf("no Redis: %s", why)
	}

	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	name := ""
	if err := db.QueryRow("SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	role := "nobody_" + name
	exec(fmt.Sprintf("CREATE ROLE %q LOGIN PASSWORD 'S3CRET'", role))
	defer exec(fmt.Sprintf("DROP ROLE %q", role))
	exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	asRole := withUser(t, database, role, "S3CRET")
	if why := refused(t, fleetConfig(t, good, asRole)); !strings.Contains(why, "may not create tables") || strings.Contains(why, "S3CRET") {
		t.Errorf("without rights: %s", why)
	}
	if why := refused(t, fleetConfig(t, good, withUser(t, database, role, "WRONG"))); strings.Contains(why, "WRONG") {
		t.Errorf("a wrong password is told: %s", why)
	}
	if why := refused(t, fleetConfig(t, good, withUser(t, database, role+"x", "S3CRET"))); !strings.Contains(why, role+"x") || strings.Contains(why, "S3CRET") {
		t.Errorf("no such role: %s", why)
	}
	exec(fmt.Sprintf("ALTER DATABASE %q SET default_transaction_read_only = on", name))
	if why := refused(t, fleetConfig(t, good, database)); !strings.Contains(why, "default_transaction_read_only is on") {
		t.Errorf("read-only: %s", why)
	}
	if _, err := db.Exec("SET default_transaction_read_only = off"); err != nil {
		t.Fatal(err)
	}
	reset, err := sql.Open("pgx", database+options(database)+"default_transaction_read_only=off")
	if err != nil {
		t.Fatal(err)
	}
	defer reset.Close()
	if _, err := reset.Exec(fmt.Sprintf("ALTER DATABASE %q RESET default_transaction_read_only", name)); err != nil {
		t.Fatal(err)
	}
	cluster := servers.SharedRedisCluster(t)
	if why := refused(t, fleetConfig(t, "redis://"+cluster.Addrs()[0], database)); !strings.Contains(why, "node of a Cluster") {
		t.Errorf("a node of a Cluster: %s", why)
	}
}

// options is what parameters are added to the URL with.
func options(url string) string {
	if strings.Contains(url, "?") {
		return "&"
	}
	return "?"
}

// withUser is the same database for another role.
func withUser(t testing.TB, dsn, role, password string) string {
	t.Helper()
	scheme, rest, ok := strings.Cut(dsn, "://")
	if !ok {
		t.Fatalf("not a URL: %s", dsn)
	}
	if _, host, ok := strings.Cut(rest, "@"); ok {
		rest = host
	}
	return fmt.Sprintf("%s://%s:%s@%s", scheme, role, password, rest)
}

// A broker on a Redis Cluster.
func TestCluster(t *testing.T) {
	addresses := strings.Join(servers.SharedRedisCluster(t).Addrs(), ",")
	c := fleetConfig(t, "redis://"+addresses+"?cluster=true", servers.FreshDatabase(t))
	c.Demo = true
	a := begin(t, c, app.Options{})
	status, grant, text := call(t, a, "demo", "Reserve", `{"amounts":{"tokens":4000,"cost":1000},"lease":"600s"}`)
	if status != http.StatusOK || !strings.Contains(text, `"remaining":"6000"`) {
		t.Fatalf("%d %s", status, text)
	}
	if status, _, text := call(t, a, "demo", "Refund", fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"tokens":1600,"cost":400}}}`, grant["reservationId"])); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
}

// A Redis that freezes does not hold Reserve up beyond its deadline, and the
// broker says so by itself when it is back.
func TestRedisFreezes(t *testing.T) {
	redis := servers.NewRedis(t)
	c := fleetConfig(t, redis.URL(), servers.FreshDatabase(t))
	c.Demo, c.Deadline, c.Redis = true, 50*time.Millisecond, config.NewURL(redis.URL())
	out := &broker.Output{}
	a := begin(t, c, app.Options{Out: out})
	await(t, func() bool {
		status, _, _ := call(t, a, "demo", "Reserve", `{"amounts":{"tokens":1}}`)
		return status == http.StatusOK
	})
	redis.Freeze()
	for range 20 {
		status, answer, text := call(t, a, "demo", "Reserve", `{"amounts":{"tokens":1}}`)
		if status != http.StatusServiceUnavailable || answer["code"] != "unavailable" {
			t.Fatalf("frozen: %d %s", status, text)
		}
	}
	await(t, func() bool {
		status, text := get(t, a.URL()+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "engine: ")
	})
	redis.Thaw()
	await(t, func() bool {
		status, _, _ := call(t, a, "demo", "Reserve", `{"amounts":{"tokens":1}}`)
		return status == http.StatusOK
	})
	for _, want := range []string{"does not answer", "answers again"} {
		if strings.Count(out.String(), want) == 0 {
			t.Errorf("the log does not tell %q: %s", want, out)
		}
	}
}
