package reservation_test

import (
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// A bucket that a charge brings along grants beside the policy's in one step,
// and a dry run of it decides and takes nothing, seeded quotas or not.
func TestExtraAndDryRun(t *testing.T) {
	onEngines(t, plainPolicy, func(t *testing.T, r *rig) {
		limit := &quota.Limit{Name: "_own", Meter: quota.MeterTokens, Kind: quota.KindBucket, Rate: quota.Rate{Amount: 1000, Every: time.Minute}, Per: []string{"path"}}
		charge := func(path string, amount quota.Amount, dry bool) reservation.Decision {
			t.Helper()
			labels := map[string]string{"path": path}
			d, err := r.Charge(t.Context(), reservation.Spend{
				Account: "acme", Labels: labels, Amounts: quota.Amounts{quota.MeterTokens: amount}, DryRun: dry,
				Extra: []quota.Applied{{Limit: limit, ID: limit.ID(), Scope: limit.Scope(labels)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		left := func(d reservation.Decision, limit string) quota.Amount {
			t.Helper()
			if d.Grant == nil {
				t.Fatalf("refused: %+v", *d.Refusal)
			}
			for _, hold := range d.Grant.Holds {
				if hold.Limit == limit {
					return hold.Level.Remaining
				}
			}
			t.Fatalf("no hold of %s: %+v", limit, d.Grant.Holds)
			return 0
		}
		refusedBy := func(d reservation.Decision, limit string) {
			t.Helper()
			if d.Refusal == nil || d.Refusal.Limit != limit {
				t.Fatalf("%+v, want a refusal by %s", d, limit)
			}
		}
		for range 2 { // a quota that nobody has used yet stays so
			d := charge("/a", 600, true)
			if left(d, "_own") != 400 || left(d, "tokens") != 9400 || d.Grant.Reservation != "" {
				t.Fatalf("dry run: %+v", d.Grant)
			}
		}
		if r.totals()[quota.MeterTokens] != 0 {
			t.Error("a dry run is in the ledger")
		}
		if d := charge("/a", 600, false); left(d, "_own") != 400 || left(d, "tokens") != 9400 {
			t.Errorf("%+v", d.Grant)
		}
		for _, dry := range []bool{true, false} {
			refusedBy(charge("/a", 401, dry), "_own")
		}
		if d := charge("/b", 1000, true); left(d, "_own") != 0 || left(d, "tokens") != 8400 {
			t.Errorf("another value has a bucket of its own: %+v", d.Grant)
		}
		// A refusal by the policy's limit takes nothing of the one brought along.
		limit.Rate.Amount = 1_000_000
		refusedBy(charge("/c", 9401, false), "tokens")
		if d := charge("/c", 1, true); left(d, "_own") != 999_999 {
			t.Errorf("%+v", d.Grant)
		}
		r.settled()
		if got := r.totals()[quota.MeterTokens]; got != 600 {
			t.Errorf("the ledger has %d tokens, want 600", got)
		}
		r.balanced()
	})
}
