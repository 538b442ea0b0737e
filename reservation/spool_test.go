package reservation_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/spool"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// spooling puts a spool of its own in front of the rig's ledger, as a new
// broker.
func (r *rig) spooling() *spool.Spool {
	r.tb.Helper()
	var broker *reservation.Broker
	kept, err := spool.Open(context.Background(), spool.Config{
		Next: r.ledger, Path: filepath.Join(r.tb.TempDir(), "spool.db"), Now: r.clock.Now,
		Logger: r.log(), Drained: func(drained []ledger.Drained) { broker.Drained(drained) },
	})
	if err != nil {
		r.tb.Fatal(err)
	}
	r.start(kept)
	broker = r.Broker
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { kept.Run(ctx); close(ended) }()
	r.tb.Cleanup(func() {
		cancel()
		<-ended
		kept.Close()
	})
	return kept
}

// back has the ledger answer again, and waits until nothing is spooled.
func (r *rig) back(spools ...*spool.Spool) {
	r.tb.Helper()
	r.ledger.silent.Store(false)
	for _, kept := range spools {
		r.eventually("the spool is drained", func() bool { return kept.Waiting() == 0 && !kept.Away() })
	}
}

// heard notes the usage rows that an observer hears of.
type heard struct {
	mu   sync.Mutex
	rows []ledger.Usage
}

func (h *heard) Observed(usage []ledger.Usage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows = append(h.rows, usage...)
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rows)
}

func TestRefundIsKeptWhileTheLedgerIsAway(t *testing.T) {
	r := newRig(t, plainPolicy)
	hears := &heard{}
	r.observer = hears
	kept := r.spooling()
	r.seed()
	r.settled()
	before := hears.count()
	g, lost, expired := r.reserve(tokens(4000)), r.reserve(tokens(2000)), r.reserve(tokens(300))

	r.ledger.silent.Store(true)
	receipt := r.refund(g.Reservation, used(1000))
	if receipt.Charged[quota.MeterTokens] != 1000 || receipt.GivenBack[quota.MeterTokens] != 3000 || receipt.Replayed {
		t.Errorf("receipt %+v", receipt)
	}
	if again := r.refund(g.Reservation, used(1000)); !again.Replayed || again.Charged[quota.MeterTokens] != 1000 {
		t.Errorf("the receipt again: %+v", again)
	}
	if _, err := r.Refund(context.Background(), g.Reservation, used(999)); !errors.Is(err, reservation.ErrConflict) {
		t.Errorf("another body: %v, want a conflict", err)
	}
	story, err := r.Reservation(context.Background(), g.Reservation)
	if err != nil || story.State != reservation.StateSettled || story.Posted || story.Receipt.Charged[quota.MeterTokens] != 1000 {
		t.Errorf("story %+v, %v; want settled and not posted", story, err)
	}
	// The engine forgets; the node does not.
	r.refund(lost.Reservation, used(2000))
	r.engine.swap(r.newEngine())
	r.refund(lost.Reservation, used(2000))
	if got := hears.count(); got != before {
		t.Errorf("%d usage rows were heard of while the ledger was away", got-before)
	}
	// Sweeps go on and ask the ledger now and then, not for each closing.
	asked := r.ledger.appends.Load()
	for range 20 {
		r.clock.Add(reservation.SweepInterval)
		if _, err := r.sweeper.Sweep(context.Background()); err != nil && !errors.Is(err, ledger.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if asks := r.ledger.appends.Load() - asked; asks > 5 {
		t.Errorf("a ledger that is away was asked %d times in 5 s of sweeps", asks)
	}

	r.back(kept)
	r.refund(expired.Reservation, reservation.Usage{Unused: true}) // ends its hold
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 3000 {
		t.Errorf("the ledger holds %d tokens, want 3,000", got)
	}
	if hears.count() == before {
		t.Error("nobody heard of what was drained")
	}
	story, err = r.Reservation(context.Background(), g.Reservation)
	if err != nil || !story.Posted {
		t.Errorf("story %+v, %v; want posted", story, err)
	}
	r.balanced()
}

// A quota that has to be seeded while closings are spooled counts them first.
func TestSeedingDrainsFirst(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.spooling()
	g := r.reserve(tokens(9000))
	r.ledger.silent.Store(true)
	r.refund(g.Reservation, used(9000))
	r.engine.swap(r.newEngine()) // the closing is on this node's disk alone
	if _, err := r.Reserve(context.Background(), tokens(1)); !errors.Is(err, reservation.ErrUnavailable) {
		t.Errorf("granted from a counter that can't be seeded: %v", err)
	}
	r.ledger.silent.Store(false)
	r.eventually("the ledger is found to be back", func() bool {
		_, err := r.Reserve(context.Background(), tokens(1))
		return err == nil
	})
	if level := r.quotaLevel(); level.Used != 9000 {
		t.Errorf("%+v, want 9,000 used", level)
	}
}

// A Refund that went around a silent engine while the ledger was away reaches
// the engine when it is drained.
func TestDrainedConfirmsWhatTheEngineNeverHeard(t *testing.T) {
	r := newRig(t, plainPolicy)
	kept := r.spooling()
	g := r.reserve(tokens(4000))
	r.ledger.silent.Store(true)
	r.engine.silent.Store(true)
	r.refund(g.Reservation, used(1500))
	r.engine.silent.Store(false)
	r.back(kept)
	r.eventually("the engine has heard", func() bool {
		level := r.quotaLevel()
		return level.Held == 0 && level.Unposted == 0 && level.Used == 1500
	})
	r.balanced()
}

func TestChargeIsKeptWhileTheLedgerIsAway(t *testing.T) {
	r := newRig(t, plainPolicy)
	kept := r.spooling()
	r.seed()
	r.ledger.silent.Store(true)
	spend := reservation.Spend{Account: "acme", Key: "c", Amounts: quota.Amounts{quota.MeterTokens: 70}}
	for range 2 {
		if d, err := r.Charge(context.Background(), spend); err != nil || d.Grant == nil || d.Grant.Charged[quota.MeterTokens] != 70 {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	r.back(kept)
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 70 {
		t.Errorf("the ledger holds %d tokens, want 70", got)
	}
	r.balanced()
}

// Two nodes, each with a spool of its own: a Refund repeated on the other one is
// the same Refund, and what both have kept is posted once.
func TestTwoSpools(t *testing.T) {
	r := newRig(t, plainPolicy)
	first := r.spooling()
	node := r.Broker
	second := r.spooling()
	g := r.reserve(tokens(4000))
	r.ledger.silent.Store(true)
	if _, err := node.Refund(context.Background(), g.Reservation, used(1000)); err != nil {
		t.Fatal(err)
	}
	r.refund(g.Reservation, used(1000))
	if _, err := r.Refund(context.Background(), g.Reservation, used(1)); !errors.Is(err, reservation.ErrConflict) {
		t.Errorf("another body on the other node: %v, want a conflict", err)
	}
	r.back(first, second)
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 1000 {
		t.Errorf("the ledger holds %d tokens, want 1,000", got)
	}
	r.balanced()
}
