package reservation_test

import (
	"testing"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// What was used already is charged in full, whatever the limits have left: the
// bucket goes below zero, the quota beyond its end, and the ledger has it once.
func TestUsedIsChargedBeyondLimits(t *testing.T) {
	onEngines(t, plainPolicy, func(t *testing.T, r *rig) {
		spend := reservation.Spend{Account: "acme", Key: "k", Amounts: quota.Amounts{quota.MeterTokens: 60_000}, Used: true}
		for i := range 3 {
			d, err := r.Charge(t.Context(), spend)
			if err != nil || d.Grant == nil || d.Grant.State != reservation.StateSettled || d.Grant.Charged[quota.MeterTokens] != 60_000 || d.Grant.Replayed != (i > 0) {
				t.Fatalf("call %d: %+v %+v, %v", i, d.Grant, d.Refusal, err)
			}
			for _, hold := range d.Grant.Holds {
				want, seeded := map[string]quota.Amount{"tokens": -50_000}[hold.Limit]
				if i == 0 && (hold.LevelKnown != seeded || seeded && hold.Level.Remaining != want) {
					t.Errorf("%s: %+v, want %d", hold.Limit, hold, want)
				}
			}
		}
		spend.Used = false
		if _, err := r.Charge(t.Context(), spend); err != reservation.ErrKeyReused {
			t.Errorf("another body: %v", err)
		}
		r.settled() // until then the quota that is seeded now may count the charge twice
		if refusal := r.refused(tokens(1)); refusal.Limit != "budget" || refusal.Remaining != -10_000 {
			t.Errorf("afterwards: %+v", refusal)
		}
		if got := r.totals(); got[quota.MeterTokens] != 60_000 || got[quota.MeterRequests] != 0 {
			t.Errorf("the ledger has %v", got)
		}
		r.balanced()
		spend.Key, spend.Used, spend.DryRun = "", true, true
		if _, err := r.Charge(t.Context(), spend); !isInvalid(err) {
			t.Errorf("a dry run of it: %v", err)
		}
	})
}

// While the engine is silent, what was used goes to the ledger alone.
func TestUsedWithoutEngine(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.engine.silent.Store(true)
	d, err := r.Charge(t.Context(), reservation.Spend{
		Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 7}, Used: true,
		Views: []reservation.View{{Amounts: quota.Amounts{quota.MeterTokens: 7}}, {Amounts: quota.Amounts{quota.MeterTokens: 5}}},
	})
	if err != nil || d.Grant == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	r.engine.silent.Store(false)
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 7 {
		t.Errorf("the ledger has %d", got)
	}
	r.balanced()
}

// A call whose answer was lost after its reservation is charged once when it
// is repeated with its key.
func TestUsedAfterALostAnswer(t *testing.T) {
	onEngines(t, plainPolicy, func(t *testing.T, r *rig) {
		spend := reservation.Spend{Account: "acme", Key: "k", Amounts: quota.Amounts{quota.MeterTokens: 9}, Used: true}
		r.ledger.silent.Store(true)
		if _, err := r.Charge(t.Context(), spend); err == nil {
			t.Fatal("answered without a ledger")
		}
		r.ledger.silent.Store(false)
		if d, err := r.Charge(t.Context(), spend); err != nil || d.Grant.Charged[quota.MeterTokens] != 9 {
			t.Fatalf("%+v, %v", d, err)
		}
		r.settled()
		if got := r.totals()[quota.MeterTokens]; got != 9 {
			t.Errorf("the ledger has %d", got)
		}
		r.balanced()
	})
}
