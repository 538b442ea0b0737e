package reservation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// The tests here are histories in which a rule of the protocol that is left out
// grants too much or loses a Refund: each is the shortest that a search through
// a model found. Two brokers share a Redis, a PostgreSQL and a quota of 6 tokens;
// every Reserve holds 4, so a second one fits only where 2 or less are used.

const tightPolicy = `
plans:
  pro:
    quotas:
      - {name: budget, meter: tokens, amount: 6, period: month}
accounts:
  acme: {plan: pro}
`

// traceNode is a broker with a way to the engine of its own.
type traceNode struct {
	*reservation.Broker
	sweeper *reservation.Sweeper
	engine  *swappedStore
}

func (r *serverRig) node(wrap func(reservation.Store) reservation.Store) *traceNode {
	r.tb.Helper()
	n := &traceNode{engine: &swappedStore{engine: wrap(r.engine)}}
	r.parts = func(p *reservation.Parts) { p.Store = n.engine }
	r.start(r.ledger)
	n.Broker, n.sweeper = r.Broker, r.sweeper
	return n
}

func plain(s reservation.Store) reservation.Store { return s }

// at has the rig's steps done by a broker.
func (r *serverRig) at(n *traceNode) *serverRig {
	r.Broker, r.sweeper = n.Broker, n.sweeper
	return r
}

// dies cuts a broker off: nothing that it still does has an effect.
func (n *traceNode) dies() { n.engine.silent.Store(true) }

func newTrace(t *testing.T, redisArgs ...string) (r *serverRig, a, b *traceNode) {
	t.Helper()
	t.Parallel()
	r = newServerRig(t, tightPolicy, redisArgs...)
	return r, r.node(plain), r.node(plain)
}

// wantUsed checks the ledger and, once everything has arrived, the engine.
func (r *serverRig) wantUsed(want quota.Amount) {
	r.tb.Helper()
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != want {
		r.tb.Errorf("the ledger holds %d tokens, want %d", got, want)
	}
	r.balanced()
}

// A Refund went around a silent Redis, and its broker died before it could tell.
// When the lease ends the hold must not be free: the ledger has charged it. (The
// hold stays unposted in full until the ledger's verdict has come.)
func TestExpiryDoesNotFreeWhatTheLedgerCharged(t *testing.T) {
	r, a, b := newTrace(t)
	g := r.at(b).reserve(tokens(4))
	a.engine.silent.Store(true)
	r.at(a).refund(g.Reservation, used(3))
	a.dies()

	r.clock.Add(time.Minute)
	refused := r.at(b).refused(tokens(4))
	if refused.Remaining != 2 {
		t.Errorf("%d remain, want 2: the hold of 4 counts until the ledger is heard", refused.Remaining)
	}
	r.wantUsed(3)
	if refused := r.refused(tokens(4)); refused.Remaining != 3 {
		t.Errorf("%d remain, want 3", refused.Remaining)
	}
	if receipt := r.refund(g.Reservation, used(3)); receipt.Charged[quota.MeterTokens] != 3 {
		t.Errorf("the Refund's repeat: %+v", receipt)
	}
}

// The first broker settled in Redis and died before the ledger had it. The
// second must not answer the repeated Refund from Redis alone: Redis is flushed
// right after.
func TestRepeatIsAnsweredFromTheLedger(t *testing.T) {
	r, a, b := newTrace(t)
	g := r.at(b).reserve(tokens(4))
	r.ledger.silent.Store(true)
	a.engine.loseAnswer.Store(true)
	if _, err := r.at(a).Refund(context.Background(), g.Reservation, used(3)); !errors.Is(err, ledger.ErrUnavailable) {
		t.Fatalf("a Refund that the ledger does not have: %v, want ErrUnavailable", err)
	}
	a.dies()
	r.ledger.silent.Store(false)

	r.at(b).refund(g.Reservation, used(3))
	r.redis.FlushAll()
	if got := r.totals()[quota.MeterTokens]; got != 3 {
		t.Errorf("the ledger holds %d tokens of the acknowledged Refund, want 3", got)
	}
	r.refund(g.Reservation, used(3))
	if _, err := r.Refund(context.Background(), g.Reservation, used(2)); !errors.Is(err, reservation.ErrConflict) {
		t.Errorf("another body: %v, want a conflict", err)
	}
	r.wantUsed(3)
}

// A dump is restored in which the quota is seeded, and unused. It is not missing,
// and still may not be granted from: the ledger has moved on.
func TestRestoredDumpIsNotGrantedFrom(t *testing.T) {
	r, a, b := newTrace(t, "--dbfilename", "dump.rdb")
	r.at(a).seed()
	r.settledWithin(0)
	a.dies()
	if err := r.redis.Client(t).Save(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	g := r.at(b).reserve(tokens(4))
	r.refund(g.Reservation, used(3))
	r.settledWithin(0)
	r.redis.Kill()
	r.redis.Restart()

	if refused := r.refused(tokens(4)); refused.Remaining != 3 {
		t.Errorf("%d remain, want 3", refused.Remaining)
	}
	r.wantUsed(3)
}

// heldSeed keeps the first Seed on its way until it is let go.
type heldSeed struct {
	reservation.Store
	arrived, release chan struct{}
}

func (s *heldSeed) Seed(ctx context.Context, q reservation.SeedRequest) (bool, error) {
	select {
	case s.arrived <- struct{}{}:
		<-s.release
	default: // not the first
	}
	return s.Store.Seed(ctx, q)
}

// A broker read the ledger for a seed and was slow. Meanwhile another seeded,
// granted, settled and Redis was flushed: what the first read is too old, and
// its seed must not land.
func TestSlowSeedDoesNotLand(t *testing.T) {
	t.Parallel()
	r := newServerRig(t, tightPolicy)
	held := &heldSeed{arrived: make(chan struct{}, 1), release: make(chan struct{})}
	a := r.node(func(s reservation.Store) reservation.Store { held.Store = s; return held })
	b := r.node(plain)

	decisions := make(chan reservation.Decision, 1)
	failures := make(chan error, 1)
	go func() {
		d, err := a.Reserve(context.Background(), tokens(4))
		decisions <- d
		failures <- err
	}()
	<-held.arrived
	g := r.at(b).reserve(tokens(4))
	r.refund(g.Reservation, used(3))
	r.settledWithin(0)
	r.redis.FlushAll()
	close(held.release)

	d, err := <-decisions, <-failures
	if err != nil || d.Refusal == nil || d.Refusal.Remaining != 3 {
		t.Errorf("the slow broker's Reserve: %+v, error %v; want refused with 3 left", d, err)
	}
	r.wantUsed(3)
}

// The expiry of a reservation is in the ledger when its Refund comes, late: the
// entry of the expiry must not swallow it.
func TestPostedExpiryTakesALateRefund(t *testing.T) {
	r, a, b := newTrace(t)
	g := r.at(b).reserve(tokens(4))
	r.clock.Add(time.Minute)
	r.sweep() // ends the lease, posts it and confirms
	if level := r.quotaLevel(); level.Held != 0 || level.Unposted != 0 {
		t.Fatalf("after the expiry: %+v", level)
	}
	receipt := r.at(a).refund(g.Reservation, used(3))
	if !receipt.Late || receipt.Charged[quota.MeterTokens] != 3 {
		t.Errorf("the late Refund: %+v", receipt)
	}
	if got := r.totals()[quota.MeterTokens]; got != 3 {
		t.Errorf("the ledger holds %d tokens, want 3", got)
	}
	r.at(b).refused(tokens(4))
	r.wantUsed(3)
}

// Redis forgot a reservation whose Refund then came. It must know of that
// Refund afterwards: another body, while PostgreSQL is away, is a conflict and
// not a second acknowledgement.
func TestForgottenRefundLeavesATrace(t *testing.T) {
	r, a, b := newTrace(t)
	g := r.at(b).reserve(tokens(4))
	r.redis.FlushAll()
	r.at(a).refund(g.Reservation, used(3))
	r.settledWithin(0)
	r.ledger.silent.Store(true)
	if receipt, err := r.at(b).Refund(context.Background(), g.Reservation, used(1)); !errors.Is(err, reservation.ErrConflict) {
		t.Errorf("another body: %+v, error %v; want a conflict", receipt, err)
	}
	r.refund(g.Reservation, used(3)) // the same one needs no ledger
	r.ledger.silent.Store(false)
	r.wantUsed(3)
}
