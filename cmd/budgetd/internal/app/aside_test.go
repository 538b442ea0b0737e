package app_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/test/servers"
)

// Reports that don't come to an end, more of them than there are connections,
// keep no Refund from the ledger.
func TestReportsKeepNobodyWaiting(t *testing.T) {
	c := fleetConfig(t, "", servers.FreshDatabase(t))
	c.SingleNode, c.Demo, c.PostgresConnections = true, true, 4
	a := begin(t, c, app.Options{})
	db, err := sql.Open("pgx", c.Postgres.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// Reports read this table, and what callers wait for does not.
	blocking, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer blocking.Rollback()
	if _, err := blocking.Exec("LOCK TABLE usage_hours"); err != nil {
		t.Fatal(err)
	}
	var reports sync.WaitGroup
	for range 2 * c.PostgresConnections {
		reports.Go(func() {
			if status, _, text := call(t, a, "demo", "ListUsage", `{"from":"2026-01-01T00:00:00Z","grain":"USAGE_GRAIN_HOUR"}`); status != http.StatusOK {
				t.Errorf("ListUsage in the end: %d %s", status, text)
			}
		})
	}
	await(t, func() bool {
		waiting := 0
		if err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%usage_hours%'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return waiting >= 4
	})
	status, grant, text := call(t, a, "demo", "Reserve", `{"amounts":{"tokens":1000},"lease":"600s"}`)
	if status != http.StatusOK {
		t.Fatalf("Reserve: %d %s", status, text)
	}
	if status, _, text := call(t, a, "demo", "Refund", fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"tokens":7}}}`, grant["reservationId"])); status != http.StatusOK {
		t.Errorf("Refund: %d %s", status, text)
	}
	if _, text := get(t, a.URL()+"/metrics"); !strings.Contains(text, "budgetd_ledger_spool_spooled_total 0\n") {
		t.Error("the Refund went to the spool: it waited for a connection")
	}
	if err := blocking.Rollback(); err != nil {
		t.Fatal(err)
	}
	reports.Wait()
}
