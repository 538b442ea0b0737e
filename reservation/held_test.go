package reservation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

const heldPolicy = `
plans:
  pro:
    limits:
      - {name: slow, meter: in_flight, max: 1}
      - {name: calls, meter: requests, rate: 1/s, burst: 100}
accounts: {acme: {plan: pro}}
`

// outcome is what a held call came back with.
type outcome struct {
	name string
	reservation.Decision
	err error
}

// heldRig has callers that wait beside each other.
type heldRig struct {
	*rig
	outcomes chan outcome
}

func newHeldRig(t *testing.T, config reservation.Config) *heldRig {
	r := &rig{tb: t}
	*r = *newRig(t, heldPolicy)
	if config.MaxHeld != 0 {
		r.config.MaxHeld = config.MaxHeld
		r.start(r.ledger)
	}
	return &heldRig{r, make(chan outcome, 100)}
}

func heldAsk(key string, wait time.Duration) reservation.Ask {
	return reservation.Ask{Account: "acme", Key: key, MaxWait: &wait}
}

// wait asks aside, and comes back when the call is held.
func (r *heldRig) wait(ctx context.Context, name string, ask reservation.Ask) {
	r.tb.Helper()
	before := r.holding()
	go func() {
		d, err := r.Reserve(ctx, ask)
		r.outcomes <- outcome{name, d, err}
	}()
	r.holds(before + 1)
}

func (r *heldRig) holding() int { return int(r.metric("budgetd_reservation_held_calls")) }

// holds waits until so many calls are held.
func (r *heldRig) holds(n int) {
	r.tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); r.holding() != n; {
		if time.Now().After(deadline) {
			r.tb.Fatalf("%d calls are held, want %d", r.holding(), n)
		}
		time.Sleep(time.Millisecond) // the calls run aside
	}
}

func (r *heldRig) next() outcome {
	r.tb.Helper()
	select {
	case o := <-r.outcomes:
		return o
	case <-time.After(10 * time.Second):
		r.tb.Fatal("no held call came back")
		panic("unreachable")
	}
}

func (r *heldRig) giveBack(reservationID string) {
	r.tb.Helper()
	if _, err := r.Refund(r.tb.Context(), reservationID, reservation.Usage{Unused: true}); err != nil {
		r.tb.Fatal(err)
	}
}

// Held calls get the slot in the order in which they came, each as soon as it is free.
func TestHeldInOrder(t *testing.T) {
	r := newHeldRig(t, reservation.Config{})
	holder := r.reserve(heldAsk("", time.Minute)).Reservation
	const callers = 20
	for i := range callers {
		r.wait(t.Context(), fmt.Sprint(i), heldAsk("", time.Minute))
	}
	if d, err := r.Reserve(t.Context(), heldAsk("", 0)); err != nil || d.Refusal == nil || d.Refusal.Reason != reservation.ConcurrencyLimited {
		t.Fatalf("one who does not wait: %+v, %v", d, err)
	}
	began := time.Now()
	for i := range callers {
		r.giveBack(holder)
		o := r.next()
		if o.err != nil || o.Grant == nil || o.name != fmt.Sprint(i) {
			t.Fatalf("call %s came back with %+v, %v; want the grant of %d", o.name, o.Decision, o.err, i)
		}
		holder = o.Grant.Reservation
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%d calls one after the other took %s: they were not woken", callers, took)
	}
	r.holds(0)
}

// A wait that is over, a caller that hangs up, and one to which something else happens
// give their places up.
func TestHeldLeaves(t *testing.T) {
	r := newHeldRig(t, reservation.Config{})
	holder := r.reserve(heldAsk("", time.Minute)).Reservation
	r.wait(t.Context(), "short", heldAsk("", 100*time.Millisecond))
	gone, hangUp := context.WithCancel(t.Context())
	r.wait(gone, "gone", heldAsk("", time.Minute))
	bounded, cancel := context.WithTimeout(t.Context(), 5300*time.Millisecond) // the rig's deadline of a step is 5 s
	defer cancel()
	r.wait(bounded, "bounded", heldAsk("", time.Minute))
	r.wait(t.Context(), "patient", heldAsk("", time.Minute))
	for range 2 {
		o := r.next()
		if (o.name != "short" && o.name != "bounded") || o.err != nil || o.Refusal == nil || o.Refusal.Reason != reservation.ConcurrencyLimited || !o.Refusal.Retryable() {
			t.Fatalf("%s: %+v, %v; want the refusal of one whose wait is over", o.name, o.Decision, o.err)
		}
	}
	hangUp()
	if o := r.next(); o.name != "gone" || !errors.Is(o.err, context.Canceled) {
		t.Fatalf("%s: %+v, %v; want the one that hung up", o.name, o.Decision, o.err)
	}
	r.giveBack(holder)
	if o := r.next(); o.name != "patient" || o.Grant == nil {
		t.Fatalf("%s: %+v, %v; want the grant of the one that is left", o.name, o.Decision, o.err)
	}
	r.holds(0)
}

// A broker that stops sends its callers away at once. One with a key keeps its place.
func TestHeldEnds(t *testing.T) {
	r := newHeldRig(t, reservation.Config{})
	holder := r.reserve(heldAsk("", time.Minute)).Reservation
	r.wait(t.Context(), "first", heldAsk("k", time.Minute))
	r.wait(t.Context(), "second", heldAsk("", time.Minute))
	r.EndHeld()
	for range 2 {
		if o := r.next(); !errors.Is(o.err, reservation.ErrStopping) || !errors.Is(o.err, reservation.ErrUnavailable) {
			t.Errorf("%s: %+v, %v; want ErrStopping", o.name, o.Decision, o.err)
		}
	}
	if _, err := r.Reserve(t.Context(), heldAsk("", time.Minute)); !errors.Is(err, reservation.ErrStopping) {
		t.Errorf("a call afterwards: %v, want ErrStopping", err)
	}
	r.start(r.ledger) // another broker
	r.giveBack(holder)
	if d, err := r.Reserve(t.Context(), heldAsk("", 0)); err != nil || d.Refusal == nil {
		t.Errorf("the free slot went to a newcomer: %+v, %v", d, err)
	}
	if d, err := r.Reserve(t.Context(), heldAsk("k", time.Minute)); err != nil || d.Grant == nil || d.Grant.Replayed {
		t.Errorf("the one with the key: %+v, %v; want its grant", d, err)
	}
}

// A repeat of a held call waits in its place, and both are told the one reservation.
func TestHeldRepeat(t *testing.T) {
	r := newHeldRig(t, reservation.Config{})
	holder := r.reserve(heldAsk("", time.Minute)).Reservation
	r.wait(t.Context(), "first", heldAsk("k", time.Minute))
	r.wait(t.Context(), "again", heldAsk("k", 50*time.Second))
	r.wait(t.Context(), "other", heldAsk("", time.Minute))
	r.giveBack(holder)
	one, two := r.next(), r.next()
	if one.Grant == nil || two.Grant == nil || one.Grant.Reservation != two.Grant.Reservation || one.Grant.Replayed == two.Grant.Replayed {
		t.Fatalf("%s: %+v, %v; %s: %+v, %v; want one reservation, told twice", one.name, one.Decision, one.err, two.name, two.Decision, two.err)
	}
	r.giveBack(one.Grant.Reservation)
	if o := r.next(); o.name != "other" || o.Grant == nil {
		t.Fatalf("%s: %+v, %v", o.name, o.Decision, o.err)
	}
}

// A broker holds no more than it may.
func TestHeldBound(t *testing.T) {
	r := newHeldRig(t, reservation.Config{MaxHeld: 2})
	r.reserve(heldAsk("", time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 2 {
		r.wait(ctx, fmt.Sprint(i), heldAsk("", time.Minute))
	}
	if d, err := r.Reserve(t.Context(), heldAsk("", time.Minute)); err != nil || d.Refusal == nil || d.Refusal.RetryAfter() < time.Second {
		t.Errorf("the third: %+v, %v; want a refusal that says when to come back", d, err)
	}
	cancel()
	r.next()
	r.next()
	r.holds(0)
}

// What a wait for a slot leaves bounds the wait for a start, and the start is that of
// when the slot came.
func TestHeldThenStarts(t *testing.T) {
	r := newHeldRig(t, reservation.Config{})
	ask := func(requests quota.Amount) reservation.Ask {
		ask := heldAsk("", time.Minute)
		ask.Amounts = quota.Amounts{quota.MeterRequests: requests}
		return ask
	}
	holder := r.reserve(ask(100)).Reservation
	r.wait(t.Context(), "held", ask(30))
	if _, err := r.Refund(t.Context(), holder, reservation.Usage{Amounts: quota.Amounts{quota.MeterRequests: 100}}); err != nil {
		t.Fatal(err)
	}
	o := r.next()
	if o.Grant == nil || o.Grant.StartsIn != 30*time.Second {
		t.Fatalf("%+v, %v; want a start in 30 s", o.Decision, o.err)
	}
	r.giveBack(o.Grant.Reservation)
	long := ask(100)
	if d, err := r.Reserve(t.Context(), long); err != nil || d.Refusal == nil || d.Refusal.Reason != reservation.RateLimited {
		t.Errorf("a start beyond the wait: %+v, %v; want a refusal at once", d, err)
	}
}
