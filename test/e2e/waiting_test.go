package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/servers"
)

// The waiters' limits: a bucket, and a queue.
const (
	waiters   = 200
	paceBurst = 10  // tokens
	paceRate  = 100 // tokens a second
	queueRate = 50  // calls a second
	queueSize = 120 // calls

	waitPolicy = `
plans:
  paced: {limits: [{name: paced, meter: tokens, rate: 100/s, burst: 10}]}
  queued: {limits: [{name: queue, meter: requests, rate: 50/s, queue: 120, algorithm: leaky_queue}]}
accounts:
  in-turn: {plan: paced}
  at-once: {plan: paced}
  giving-up: {plan: paced}
  asleep: {plan: paced}
  queued: {plan: queued}
`
)

// booking is a start that a caller was given.
type booking struct {
	caller int
	tokens int64
	asked  time.Time // before the call, and after its answer, by this machine's clock
	told   time.Time
	booked time.Time // by Redis's clock, whose resolution is a microsecond
	start  time.Time // likewise; both zero: it started at once, with what had refilled meanwhile
	id     string
}

// ahead asks a broker of the fleet to book, without waiting for the start.
func (f *fleet) ahead(t *testing.T, account string, caller int, tokens int64, key string) (booking, error) {
	t.Helper()
	b := booking{caller: caller, tokens: tokens, asked: time.Now()}
	answer, err := f.client(t, caller).Service().Reserve(context.Background(), connect.NewRequest(&budgetv1.ReserveRequest{
		Account: account, Amounts: map[string]int64{"tokens": tokens}, IdempotencyKey: key, MaxWait: durationpb.New(time.Minute),
	}))
	b.told = time.Now()
	if err != nil {
		return b, err
	}
	m := answer.Msg
	if b.id = m.ReservationId; m.StartAt != nil {
		b.start = m.StartAt.AsTime()
		b.booked = b.start.Add(-m.StartsIn.AsDuration())
	}
	return b, nil
}

// empty takes all that a paced account has, so that everybody after it waits, and
// says since when at the earliest.
func (f *fleet) empty(t *testing.T, account string) time.Time {
	t.Helper()
	before := time.Now()
	if _, err := f.client(t, 0).Reserve(t.Context(), budget.Request{Account: account, Amounts: map[string]int64{"tokens": paceBurst}}); err != nil {
		t.Fatal(err)
	}
	return before
}

// waiting are those whose start was ahead.
func waiting(bookings []booking) []booking {
	return slices.DeleteFunc(slices.Clone(bookings), func(b booking) bool { return b.start.IsZero() })
}

// inOrder checks what a booking promises: starts in the order in which Redis booked,
// of one microsecond in any order; no caller overtakes one that had its answer before
// it asked; and nobody starts later than all that was asked before it takes.
func inOrder(t *testing.T, bookings []booking) {
	t.Helper()
	bookings = waiting(bookings)
	if len(bookings) < waiters-2*paceBurst {
		t.Errorf("only %d of %d wait: the machine is too busy for this test", len(bookings), waiters)
	}
	slices.SortFunc(bookings, func(a, b booking) int { return cmp.Or(a.booked.Compare(b.booked), a.start.Compare(b.start)) })
	var before int64
	for i, b := range bookings {
		before += b.tokens
		if longest := time.Duration(before)*time.Second/paceRate + time.Millisecond; b.start.Sub(b.booked) > longest {
			t.Errorf("caller %d waits %v for %d tokens at %d a second, want %v at most", b.caller, b.start.Sub(b.booked), before, paceRate, longest)
		}
		if i > 0 && b.start.Before(bookings[i-1].start) {
			t.Errorf("caller %d was booked at %v, after caller %d at %v, and starts %v before it",
				b.caller, b.booked, bookings[i-1].caller, bookings[i-1].booked, bookings[i-1].start.Sub(b.start))
		}
		for _, later := range bookings {
			if b.told.Before(later.asked) && later.start.Before(b.start) {
				t.Errorf("caller %d asked %v after caller %d had its answer, and starts before it", later.caller, later.asked.Sub(b.told), b.caller)
			}
		}
	}
}

// withinCapacity checks that in any span no more starts than the bucket's burst and
// what refills in it, and that what the bucket had when it was emptied is not used twice.
func withinCapacity(t *testing.T, emptied time.Time, bookings []booking) {
	t.Helper()
	asked := bookings
	bookings = waiting(bookings)
	slices.SortFunc(bookings, func(a, b booking) int { return a.start.Compare(b.start) })
	refilled := func(span time.Duration) float64 { return paceRate * span.Seconds() }
	for i, first := range bookings {
		var all int64
		for _, b := range asked {
			if b.start.IsZero() && b.told.Before(first.start) || !b.start.IsZero() && !b.start.After(first.start) {
				all += b.tokens
			}
		}
		if most := refilled(first.start.Sub(emptied)); float64(all) > most+0.001 {
			t.Errorf("%d tokens have started by caller %d, and %.3f have refilled", all, first.caller, most)
		}
		var taken int64
		for _, last := range bookings[i:] {
			taken += last.tokens
			if span := last.start.Sub(first.start); float64(taken) > paceBurst+refilled(span)+0.001 {
				t.Errorf("%d tokens start within %v, from caller %d on", taken, span, first.caller)
			}
		}
	}
}

// TestWaiters: callers that wait, over three brokers on one Redis and one PostgreSQL.
func TestWaiters(t *testing.T) {
	f := startFleet(t, servers.SharedRedis(t).URL(), waitPolicy, "--deadline", "5s")
	t.Run("in turn", f.waitInTurn)
	t.Run("at once", f.waitAtOnce)
	t.Run("giving up", f.giveUp)
	t.Run("asleep", f.sleepUntilStart)
	t.Run("queued", f.queue)
}

// waitInTurn: callers that ask one after the other start in that order, whatever the
// broker, each one call after the one before.
func (f *fleet) waitInTurn(t *testing.T) {
	emptied := f.empty(t, "in-turn")
	var bookings []booking
	for i := range waiters {
		b, err := f.ahead(t, "in-turn", i, 1+int64(i%3), "")
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && !bookings[i-1].start.IsZero() && !b.start.IsZero() {
			last := bookings[i-1]
			// Exactly so much later where the one before still waits.
			if after := time.Duration(b.tokens) * time.Second / paceRate; last.start.After(b.booked.Add(after)) && b.start.Sub(last.start) != after || !b.start.After(last.start) {
				t.Errorf("caller %d starts %v after the one before, want %v", i, b.start.Sub(last.start), after)
			}
		}
		bookings = append(bookings, b)
	}
	inOrder(t, bookings)
	withinCapacity(t, emptied, bookings)
}

// together has all callers ask at once.
func (f *fleet) together(t *testing.T, account string) []booking {
	t.Helper()
	var (
		mu       sync.Mutex
		bookings []booking
		all      sync.WaitGroup
		begin    = make(chan struct{})
	)
	for i := range waiters {
		all.Go(func() {
			<-begin
			b, err := f.ahead(t, account, i, 1+int64(i%3), fmt.Sprint("caller-", i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("caller %d starves: %v", i, err)
				return
			}
			bookings = append(bookings, b)
		})
	}
	close(begin)
	all.Wait()
	return bookings
}

func (f *fleet) waitAtOnce(t *testing.T) {
	emptied := f.empty(t, "at-once")
	bookings := f.together(t, "at-once")
	inOrder(t, bookings)
	withinCapacity(t, emptied, bookings)
}

// giveUp: no start that was given moves when others give up, and what comes back goes
// to who asks next.
func (f *fleet) giveUp(t *testing.T) {
	f.empty(t, "giving-up")
	bookings := waiting(f.together(t, "giving-up"))
	inOrder(t, bookings)
	slices.SortFunc(bookings, func(a, b booking) int { return a.start.Compare(b.start) })
	var back int64
	gone := map[int]bool{}
	for i := len(bookings) - 1; i >= 0 && back < paceBurst-2; i -= 7 { // here and there, from the end
		b := bookings[i]
		if _, err := f.client(t, i).Refund(t.Context(), b.id, budget.Unused()); err != nil {
			t.Fatal(err)
		}
		gone[b.caller], back = true, back+b.tokens
	}
	last := bookings[len(bookings)-1].start
	next, err := f.ahead(t, "giving-up", waiters, back, "")
	if err != nil || !next.start.Equal(last) {
		t.Errorf("who asks for the %d tokens that came back starts %v after the last, %v; want with it", back, next.start.Sub(last), err)
	}
	after, err := f.ahead(t, "giving-up", waiters+1, 1, "")
	if err != nil || !after.start.Equal(last.Add(time.Second/paceRate)) {
		t.Errorf("the one after starts %v after the last, %v; want %v", after.start.Sub(last), err, time.Second/paceRate)
	}
	for _, b := range bookings {
		if gone[b.caller] {
			continue
		}
		again, err := f.client(t, b.caller+1).Service().Reserve(t.Context(), connect.NewRequest(&budgetv1.ReserveRequest{
			Account: "giving-up", Amounts: map[string]int64{"tokens": b.tokens}, IdempotencyKey: fmt.Sprint("caller-", b.caller),
		}))
		if err != nil {
			t.Fatal(err)
		}
		// One that has started by now is told so or not, and never another start.
		if m := again.Msg; !m.Replayed || m.ReservationId != b.id || m.StartAt != nil && !m.StartAt.AsTime().Equal(b.start) || m.StartAt == nil && b.start.After(time.Now()) {
			t.Errorf("caller %d was to start at %v, and is now told %v", b.caller, b.start, m)
		}
	}
}

// sleepUntilStart: the Go client returns at the start, and every tenth hangs up before.
func (f *fleet) sleepUntilStart(t *testing.T) {
	emptied := f.empty(t, "asleep")
	var (
		mu       sync.Mutex
		bookings []booking
		gaveUp   int
		all      sync.WaitGroup
		begin    = make(chan struct{})
	)
	for i := range waiters {
		c := f.client(t, i)
		all.Go(func() {
			<-begin
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%10 == 9 {
				time.AfterFunc(500*time.Millisecond, cancel)
			}
			request := budget.Request{Account: "asleep", Amounts: map[string]int64{"tokens": 1 + int64(i%3)}, MaxWait: time.Minute}
			err := c.Do(ctx, request, func(_ context.Context, r *budget.Reservation) (budget.Usage, error) {
				now := time.Now()
				mu.Lock()
				defer mu.Unlock()
				if now.Before(r.StartAt) {
					t.Errorf("caller %d begins %v before its start", i, r.StartAt.Sub(now))
				}
				bookings = append(bookings, booking{caller: i, tokens: request.Amounts["tokens"], start: r.StartAt})
				return budget.Amounts(request.Amounts), nil
			})
			var early *budget.NotStartedError
			switch {
			case err == nil:
			case i%10 == 9 && (errors.As(err, &early) || connect.CodeOf(err) == connect.CodeCanceled):
				mu.Lock()
				gaveUp++
				mu.Unlock()
			default:
				t.Errorf("caller %d starves: %v", i, err)
			}
		})
	}
	close(begin)
	all.Wait()
	if len(bookings)+gaveUp < waiters || len(bookings) < waiters*9/10 || gaveUp == 0 {
		t.Errorf("%d started and %d gave up, of %d", len(bookings), gaveUp, waiters)
	}
	withinCapacity(t, emptied, bookings)
	for i := range fleetSize * 2 { // what they gave up has come back
		if err := f.client(t, i).Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// queue: a leaky queue takes as many as it holds, one after the other, and refuses the
// others; its callers wait without asking to.
func (f *fleet) queue(t *testing.T) {
	var (
		mu      sync.Mutex
		starts  []time.Time
		refused int
		all     sync.WaitGroup
		begin   = make(chan struct{})
		began   time.Time
	)
	for i := range waiters {
		c := f.client(t, i, budget.WithMaxWait(0))
		all.Go(func() {
			<-begin
			asked := time.Now()
			r, err := c.Reserve(t.Context(), budget.Request{Account: "queued"})
			mu.Lock()
			defer mu.Unlock()
			var no *budget.RefusedError
			switch {
			case err == nil && r.StartAt.IsZero():
				starts = append(starts, asked)
			case err == nil:
				if now := time.Now(); now.Before(r.StartAt) {
					t.Errorf("caller %d begins %v before its start", i, r.StartAt.Sub(now))
				}
				starts = append(starts, r.StartAt)
			case errors.As(err, &no) && no.Retryable() && no.Refusal.Limit == "queue":
				refused++
			default:
				t.Error(err)
			}
		})
	}
	began = time.Now()
	close(begin)
	all.Wait()
	slices.SortFunc(starts, time.Time.Compare)
	took := starts[len(starts)-1].Sub(began)
	if most := int(took.Seconds()*queueRate) + 2; len(starts) < queueSize || len(starts) > most || len(starts)+refused != waiters {
		t.Errorf("%d of %d were taken in %v and %d refused, want at least %d and at most %d", len(starts), waiters, took, refused, queueSize, most)
	}
	for i := 2; i < len(starts); i++ { // of the first the start is known by this process's clock alone
		if gap := starts[i].Sub(starts[i-1]); gap < time.Second/queueRate {
			t.Errorf("call %d starts %v after the one before, want %v at least", i, gap, time.Second/queueRate)
		}
	}
}
