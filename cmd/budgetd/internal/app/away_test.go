package app_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

// tokensOf returns an account's used tokens as GetQuota shows them.
func tokensOf(t testing.TB, a *app.App) any {
	t.Helper()
	_, view, _ := call(t, a, "demo", "GetQuota", `{}`)
	totals, _ := view["totals"].(map[string]any)
	return totals["tokens"]
}

// While PostgreSQL is away Refunds are acknowledged, and the broker stays
// ready; afterwards each counts once, also what a stop left in the spool.
func TestPostgresAway(t *testing.T) {
	postgres := servers.NewPostgres(t)
	c := fleetConfig(t, "", postgres.DSN())
	c.SingleNode, c.Demo = true, true
	out := &broker.Output{}
	a := begin(t, c, app.Options{Out: out})
	reserve := func() string {
		t.Helper()
		status, grant, text := call(t, a, "demo", "Reserve", `{"amounts":{"tokens":1000},"lease":"600s"}`)
		if status != http.StatusOK {
			t.Fatalf("Reserve: %d %s", status, text)
		}
		return grant["reservationId"].(string)
	}
	refund := func(id string, tokens int) (int, map[string]any, string) {
		t.Helper()
		return call(t, a, "demo", "Refund", fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"tokens":%d}}}`, id, tokens))
	}
	first, second, third := reserve(), reserve(), reserve()
	if status, _, text := refund(first, 100); status != http.StatusOK {
		t.Fatalf("Refund: %d %s", status, text)
	}

	postgres.Kill()
	for range 2 {
		if status, answer, text := refund(second, 20); status != http.StatusOK || fmt.Sprint(answer["charged"]) != "map[requests:1 tokens:20]" {
			t.Fatalf("Refund while PostgreSQL is away: %d %s", status, text)
		}
	}
	if status, _, text := refund(second, 21); status != http.StatusBadRequest || !strings.Contains(text, "another usage") {
		t.Errorf("another body while PostgreSQL is away: %d %s", status, text)
	}
	if status, text := get(t, a.URL()+"/readyz"); status != http.StatusOK {
		t.Errorf("readyz while PostgreSQL is away: %d %s", status, text)
	}
	if _, text := get(t, a.URL()+"/metrics"); !strings.Contains(text, "budgetd_ledger_spool_closings 1\n") || !strings.Contains(text, "budgetd_ledger_spool_away 1\n") {
		t.Errorf("the metrics do not show the spool")
	}
	postgres.Restart()
	await(t, func() bool { return tokensOf(t, a) == "120" })
	if !strings.Contains(out.String(), "the ledger answers again") {
		t.Errorf("the log does not say so: %s", out)
	}

	postgres.Kill()
	if status, _, text := refund(third, 3); status != http.StatusOK {
		t.Fatalf("Refund while PostgreSQL is away: %d %s", status, text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	postgres.Restart()
	a = begin(t, c, app.Options{})
	if used := tokensOf(t, a); used != "123" {
		t.Errorf("after the start %v tokens are used, want 123", used)
	}
}

// A broker with PostgreSQL needs a directory for its spool too, of its own.
func TestSpoolDirectory(t *testing.T) {
	c := fleetConfig(t, "", servers.FreshDatabase(t))
	c.SingleNode, c.Demo = true, true
	begin(t, c, app.Options{})
	if why := refused(t, c); !strings.Contains(why, "another broker uses "+c.Data) {
		t.Errorf("a second on the same directory: %s", why)
	}
	info, err := os.Stat(filepath.Join(c.Data, "spool.db"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the spool: %v, %v", info, err)
	}
	for _, data := range []string{"/dev/null/x", "/proc"} {
		c.Data = data
		if why := refused(t, c); !strings.HasPrefix(why, "data: ") {
			t.Errorf("%s: %s", data, why)
		}
	}
}

// Every node makes months ahead, also when nobody calls it, and by the server's
// clock: a node that is months behind makes those of today.
func TestMonthsAreMade(t *testing.T) {
	c := fleetConfig(t, "", servers.FreshDatabase(t))
	c.SingleNode, c.Demo = true, true
	begin(t, c, app.Options{Clock: func() time.Time { return time.Now().AddDate(0, -4, 0) }})
	db, err := sql.Open("pgx", c.Postgres.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	made := func() (months int) {
		if err := db.QueryRow(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'entries'::regclass`).Scan(&months); err != nil {
			t.Fatal(err)
		}
		return months
	}
	const each = 3 // this month and the next two
	await(t, func() bool { return made() == 2*each })
}
