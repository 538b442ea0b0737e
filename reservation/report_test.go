package reservation_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// TestHeldAgainstUsed holds the same on two routes: one that ends well, late
// and never, and one that uses a sixteenth.
func TestHeldAgainstUsed(t *testing.T) {
	r := newRig(t, plainPolicy)
	lease := 30 * time.Second
	held := func(route string, amount quota.Amount) string {
		ask := tokens(amount)
		ask.Labels, ask.Lease = map[string]string{"route": route}, &lease
		return r.reserve(ask).Reservation
	}
	r.refund(held("chat", 100), used(60))
	late := held("chat", 200)
	held("chat", 400)
	r.refund(held("batch", 1600), used(100))
	r.clock.Add(lease)
	r.settled()
	r.refund(late, used(150))
	r.settled()

	start := r.clock.Now().Truncate(24 * time.Hour)
	report, err := r.ledger.Report(context.Background(), ledger.ReportQuery{
		Account: "acme", From: start, To: start.AddDate(0, 0, 1), Grain: ledger.GrainTotal,
		GroupBy: []string{"route"}, Meters: []quota.Meter{quota.MeterTokens}, Limit: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	row := func(route string, used, held quota.Amount, calls int64) ledger.ReportRow {
		return ledger.ReportRow{Start: start, Group: []string{route}, Absent: []bool{false}, Meter: quota.MeterTokens, Used: used, Held: held, Calls: calls}
	}
	if diff := cmp.Diff([]ledger.ReportRow{row("batch", 100, 1600, 1), row("chat", 210, 700, 3)}, report.Rows); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	r.balanced()
}
