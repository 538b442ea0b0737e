package storetest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

func TestModelPassesSequences(t *testing.T) {
	RunSequences(t, newFaulty(nil), Sequences{Count: 1000, Workers: 2, LookEvery: 1})
}

// ofBooks are faults that the books find without the model.
var ofBooks = []mutant{
	// quotas
	{"a Confirm leaves the unposted", true, nil},
	{"an expiry frees the quota at once", true, nil},
	{"what was refunded of a quota is lost", true, afterRefund(func(m *Model, q reservation.RefundRequest, a *reservation.RefundAnswer) {
		if r := m.find(q.Account, q.ID); r != nil && a.Verdict == reservation.RefundSettled {
			for i := range r.holds {
				if h := &r.holds[i]; h.Kind == quota.KindQuota {
					h.unposted = max(h.Amount, h.unposted)
				}
			}
		}
	})},
	// slots
	{"a Charge takes a slot", true, nil},
	{"Renew revives", true, nil},
	{"a Refund keeps its slot", true, afterRefund(func(m *Model, q reservation.RefundRequest, a *reservation.RefundAnswer) {
		if r := m.find(q.Account, q.ID); r != nil && a.Verdict == reservation.RefundSettled {
			for i := range r.holds {
				if h := &r.holds[i]; h.Kind == quota.KindSlots {
					h.held = h.Amount
				}
			}
		}
	})},
	// buckets
	{"what a full bucket did not take is given later", true, nil},
	{"debt is forgiven", true, nil},
	{"the remainder is dropped", true, nil},
	{"the remainder is rounded up", true, nil},
	{"an expiry gives back what it should charge", true, nil},
	{"a changed burst is cut by old reservations", true, nil},
	{"another rate finds the bucket full", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			for _, h := range q.Holds {
				name := nameOf(q.Account, h.Counter)
				if b := m.bucket(name); b != nil && h.Kind == quota.KindBucket && b.params.PerMicros != h.Bucket.PerMicros {
					m.buckets = slices.DeleteFunc(m.buckets, func(b *modelBucket) bool { return b.name == name })
				}
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	// GCRA and windows
	{"GCRA keeps what came back beyond whole", true, nil},
	{"a refund goes to the window of the present", true, nil},
	{"a window forgets what it counted before", true, nil},
	{"a log keeps its last entry only", true, nil},
	{"a calendar window begins with its first call", true, nil},
	{"a longer span forgets what was counted", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			for _, h := range q.Holds {
				if s := m.rateOf(nameOf(q.Account, h.Counter), h.Kind); h.Kind.IsWindow() && s.counted.Length < h.Window.Length {
					s.counted = quota.Counted{}
				}
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	// waiting and queues
	{"a start is given before the last one", true, nil},
	{"the lease of one that waits runs from the Reserve", true, nil},
	{"a caller waits longer than it can", true, nil},
	{"any booking gives its place in a queue back", true, nil},
	{"what comes back fills a bucket beside those who start", true, nil},
	{"a replay does not tell the start", true, nil},
	{"a start moves when something comes back", true, afterRefund(func(m *Model, q reservation.RefundRequest, a *reservation.RefundAnswer) {
		for _, r := range m.records {
			if a.Verdict == reservation.RefundSettled && r.state == reservation.StateHeld && r.start > m.now() {
				r.start--
				r.expires--
				return
			}
		}
	})},
	// what is kept, and what is in shadow
	{"nothing is kept for higher priorities", true, nil},
	{"quotas and slots keep nothing", true, nil},
	{"the retry forgets what is kept", true, nil},
	{"the retry is a microsecond early", true, nil},
	{"too much is told to wait", true, nil},
	{"a shadow limit refuses", true, nil},
	{"a shadow limit counts nothing", true, nil},
	{"a missed hold is taken all the same", true, nil},
	{"a refusal counts in shadow limits", true, nil},
	// envelopes
	{"a call in an envelope takes from the limit", true, nil},
	{"what a call leaves of its envelope is the limit's", true, nil},
	{"an envelope that is closed leaves its calls open", true, nil},
	{"a lease is renewed beyond its envelope", true, nil},
	// all of them
	{"a refusal deducts", true, nil},
	{"a refusal takes what fits", true, nil},
	{"a DryRun takes", true, nil},
	{"a repeated Refund charges again", true, nil},
	{"an expiry frees twice", true, nil},
	{"Renew shortens", true, nil},
}

// TestBooksCatchMutants: the books alone find each fault, without the model. What
// fails can be made shorter, and is printed as a scenario that fails as well.
func TestBooksCatchMutants(t *testing.T) {
	*recoverSequences = true
	defer func() { *recoverSequences = false }()
	for _, m := range ofBooks {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			if m.fault == nil {
				m.fault = mutants[slices.IndexFunc(mutants, func(o mutant) bool { return o.name == m.name })].fault
			}
			engine, clock := begin(t, newFaulty(m.fault))
			for n := range 4000 {
				s := drawSequence(20261202, n, engine)
				s.unmodelled = true
				_, err := playSequence(s, engine, clock, nil, 1)
				if err == nil {
					continue
				}
				short, err := shrinkSequence(s, engine, clock, err)
				t.Logf("caught by sequence %d, of %d steps %d are left: %v\n%s", n, len(s.moves), len(short.moves), err, scenarioOf(short, engine, clock))
				return
			}
			t.Error("not caught")
		})
	}
}

// TestSequencesAreScenarios: what is printed of a sequence can be read, and plays.
func TestSequencesAreScenarios(t *testing.T) {
	engine, clock := begin(t, newFaulty(nil))
	for n := range 300 {
		s := drawSequence(1, n, engine)
		if s.back {
			continue
		}
		text := scenarioOf(s, engine, clock)
		parsed, err := parseScenario(text)
		if err == nil {
			clock.Set(Epoch)
			engine.LoseData()
			err = playScenario(parsed, engine, clock)
		}
		if err != nil {
			t.Fatalf("sequence %d: %v\n%s", n, err, text)
		}
	}
}
