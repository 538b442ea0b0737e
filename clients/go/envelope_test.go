package budget_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func tokens(n int64) map[string]int64 { return map[string]int64{"tokens": n} }

// envelopeOf opens an envelope of so many tokens.
func envelopeOf(t *testing.T, c *budget.Client, n int64, lease time.Duration) *budget.Reservation {
	t.Helper()
	r, err := c.Reserve(context.Background(), budget.Request{Amounts: tokens(n), Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A call in an envelope takes from it, gives back to it, and has no more than it.
func TestParent(t *testing.T) {
	c, _ := start(t)
	ctx := context.Background()
	envelope := envelopeOf(t, c, 500, time.Minute)
	in := budget.Request{Amounts: tokens(400), Parent: envelope.ID, Lease: time.Hour}
	call, err := c.Reserve(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	if call.ExpiresAt.After(envelope.ExpiresAt) {
		t.Errorf("it ends at %v, its envelope at %v", call.ExpiresAt, envelope.ExpiresAt)
	}
	if got := left(t, c); got != 500 {
		t.Errorf("%d left of the limit, want 500: the envelope pays", got)
	}
	var refused *budget.RefusedError
	err = c.Do(ctx, in, func(context.Context, *budget.Reservation) (budget.Usage, error) {
		t.Error("more than the envelope has was granted")
		return budget.Unused(), nil
	})
	if !errors.As(err, &refused) || refused.Retryable() || refused.Refusal.Reason != budgetv1.RefusalReason_REFUSAL_REASON_ENVELOPE_EXHAUSTED || refused.Refusal.Remaining != 100 {
		t.Errorf("beyond the envelope: %v", err)
	}
	if _, err := c.Refund(ctx, call.ID, budget.Amounts(tokens(150))); err != nil {
		t.Error(err)
	}
	if err := c.Do(ctx, budget.Request{Amounts: tokens(350), Parent: envelope.ID}, func(context.Context, *budget.Reservation) (budget.Usage, error) {
		return budget.Amounts(tokens(100)), nil
	}); err != nil {
		t.Errorf("of what came back: %v", err)
	}
	if _, err := c.Refund(ctx, envelope.ID, budget.Unused()); err != nil {
		t.Error(err)
	}
	if got := left(t, c); got != 750 {
		t.Errorf("%d left at the end, want 750", got)
	}
	if _, err := c.Reserve(ctx, in); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("in an envelope that is closed: %v", err)
	}
	in.Parent = "\xff"
	if _, err := c.Reserve(ctx, in); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a parent that is no text: %v", err)
	}
}

// Renew answers how far the call may go.
func TestRenewAnswers(t *testing.T) {
	c, _ := start(t)
	ctx := context.Background()
	envelope := envelopeOf(t, c, 1000, time.Minute)
	call, err := c.Reserve(ctx, budget.Request{Amounts: tokens(500), Parent: envelope.ID})
	if err != nil {
		t.Fatal(err)
	}
	others, err := c.Reserve(ctx, budget.Request{Amounts: tokens(500), Parent: envelope.ID})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		used      *budget.Usage
		verdict   budget.Verdict
		remaining int64
	}{
		{nil, budget.NoVerdict, 0},
		{&budget.Usage{}, budget.Continue, 500},
		{&budget.Usage{Amounts: tokens(400)}, budget.WindDown, 100},
		{&budget.Usage{Amounts: tokens(10)}, budget.WindDown, 100}, // it never falls
		{&budget.Usage{Amounts: tokens(500)}, budget.Stop, 0},
	} {
		got, err := c.Renew(ctx, call.ID, time.Minute, step.used)
		if err != nil {
			t.Fatal(err)
		}
		if got.Verdict != step.verdict || got.Remaining["tokens"] != step.remaining || got.ExpiresAt.IsZero() {
			t.Errorf("%+v used: %+v, want %v with %d", step.used, got, step.verdict, step.remaining)
		}
		named := got.Reason == budgetv1.RenewReason_RENEW_REASON_ENVELOPE && got.Limit == "tokens" && got.Meter == "tokens"
		if named != (step.verdict > budget.Continue) {
			t.Errorf("%v because of %v, %q, %q", got.Verdict, got.Reason, got.Limit, got.Meter)
		}
	}
	if _, err := c.Renew(ctx, call.ID, 0, &budget.Usage{Unused: true}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("an unused usage so far: %v", err)
	}
	if got, err := c.Renew(ctx, "", time.Minute, &budget.Usage{}); err != nil || got.Verdict != budget.NoVerdict {
		t.Errorf("without a reservation: %+v, %v", got, err)
	}
	if _, err := c.Refund(ctx, envelope.ID, budget.Unused()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Renew(ctx, others.ID, time.Minute, nil); !errors.Is(err, budget.ErrEnded) {
		t.Errorf("after its envelope: %v", err)
	}
}

// verdicts collects what OnVerdict hears.
type verdicts struct {
	mu    sync.Mutex
	heard []budget.Renewal
}

func (v *verdicts) hear(r budget.Renewal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = append(v.heard, r)
}

func (v *verdicts) last() budget.Renewal {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.heard) == 0 {
		return budget.Renewal{}
	}
	return v.heard[len(v.heard)-1]
}

// A call that tells what it used is told to wind down and to stop, in the middle of
// what it does and long before its lease asks for a renewal.
func TestStopInTheMiddle(t *testing.T) {
	c, _ := start(t)
	var v verdicts
	began := time.Now()
	err := c.Do(context.Background(), budget.Request{Amounts: tokens(1000), Lease: 10 * time.Minute, OnVerdict: v.hear},
		func(ctx context.Context, r *budget.Reservation) (budget.Usage, error) {
			r.SetUsed(tokens(850))
			waitFor(t, "wind down", func() bool { return v.last().Verdict == budget.WindDown })
			if got := v.last(); got.Remaining["tokens"] != 150 || got.Limit != "tokens" || ctx.Err() != nil {
				t.Errorf("%+v, want 150 left; the context: %v", got, ctx.Err())
			}
			r.SetUsed(tokens(1000))
			r.SetUsed(tokens(990))
			<-ctx.Done()
			return budget.Usage{}, ctx.Err()
		})
	var stopped *budget.StoppedError
	if !errors.As(err, &stopped) || !errors.Is(err, context.Canceled) || stopped.Renewal.Meter != "tokens" || stopped.Renewal.Limit != "tokens" ||
		stopped.Renewal.Reason != budgetv1.RenewReason_RENEW_REASON_LIMIT || errors.Is(err, budget.ErrEnded) {
		t.Errorf("Do: %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	if got := left(t, c); got != 0 {
		t.Errorf("%d left, want 0: what was told counts", got)
	}
}

// What was told counts where the call does not say more, however it ends.
func TestToldCountsAtTheEnd(t *testing.T) {
	c, _ := start(t)
	boom := errors.New("boom")
	want := int64(1000)
	for _, way := range []struct {
		name    string
		charged int64
		usage   budget.Usage
		err     error
	}{
		{"nothing more", 10, budget.Usage{}, nil},
		{"an error", 10, budget.Usage{}, boom},
		{"a usage below it", 4, budget.Amounts(tokens(4)), nil},
		{"unused", 0, budget.Unused(), nil},
	} {
		err := c.Do(context.Background(), hundred, func(_ context.Context, r *budget.Reservation) (budget.Usage, error) {
			r.SetUsed(tokens(10))
			r.SetUsed(tokens(7))
			return way.usage, way.err
		})
		if !errors.Is(err, way.err) {
			t.Errorf("%s: %v", way.name, err)
		}
		if want -= way.charged; left(t, c) != want {
			t.Errorf("%s: %d left, want %d", way.name, left(t, c), want)
			want = left(t, c)
		}
	}
	running, err := c.Begin(context.Background(), budget.Request{Amounts: map[string]int64{"tokens": 100, "seconds": 3}})
	if err != nil {
		t.Fatal(err)
	}
	running.SetUsed(tokens(10))
	receipt, err := running.End(context.Background(), budget.Usage{})
	if err != nil || receipt.Charged["tokens"] != 10 || receipt.Charged["seconds"] != 3 {
		t.Errorf("%v, %v; want 10 tokens as told and 3 seconds as held", receipt.GetCharged(), err)
	}
	if running.Context().Err() == nil || errors.As(context.Cause(running.Context()), new(*budget.StoppedError)) {
		t.Errorf("after End its context ended with %v", context.Cause(running.Context()))
	}
}

// Another process closes the envelope: the calls in it end.
func TestEnvelopeIsClosed(t *testing.T) {
	c, b := start(t)
	another, err := budget.New(b.URL, c.Key())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	envelope := envelopeOf(t, c, 500, time.Minute)
	running, err := c.Begin(ctx, budget.Request{Amounts: tokens(100), Parent: envelope.ID, Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Do(ctx, budget.Request{Amounts: tokens(100), Parent: envelope.ID, Lease: time.Second},
		func(ctx context.Context, r *budget.Reservation) (budget.Usage, error) {
			if _, err := another.Refund(ctx, envelope.ID, budget.Unused()); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return budget.Usage{}, context.Cause(ctx)
		})
	var stopped *budget.StoppedError
	if !errors.As(err, &stopped) || !errors.Is(err, budget.ErrEnded) {
		t.Errorf("Do: %v", err)
	}
	<-running.Context().Done()
	if cause := context.Cause(running.Context()); !errors.As(cause, &stopped) || !errors.Is(cause, budget.ErrEnded) {
		t.Errorf("Begin: %v", cause)
	}
	// Late, and counted once: nobody knows what the first one used.
	receipt, err := running.End(ctx, budget.Amounts(tokens(40)))
	if err != nil || !receipt.Late || receipt.Charged["tokens"] != 40 {
		t.Errorf("its Refund: %v, %v", receipt, err)
	}
	if got := left(t, c); got != 860 {
		t.Errorf("%d left, want 1000 - 100 - 40", got)
	}
}

// A call keeps its lease alive in an envelope whose own lease is much shorter.
func TestShortEnvelope(t *testing.T) {
	c, _ := start(t)
	ctx := context.Background()
	envelope, err := c.Begin(ctx, budget.Request{Amounts: tokens(500), Lease: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	running, err := c.Begin(ctx, budget.Request{Amounts: tokens(100), Parent: envelope.ID, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	// By the broker's clock: both are renewed beyond the first end of the envelope.
	waitFor(t, "the first end of the envelope", func() bool { return time.Now().After(envelope.ExpiresAt.Add(time.Second)) })
	for name, id := range map[string]string{"the envelope": envelope.ID, "the call": running.ID} {
		if state := stateOf(t, c, id); state != budgetv1.ReservationState_RESERVATION_STATE_HELD {
			t.Errorf("%s is %s", name, state)
		}
	}
	if running.Context().Err() != nil {
		t.Errorf("the call was stopped: %v", context.Cause(running.Context()))
	}
	if _, err := running.End(ctx, budget.Amounts(tokens(60))); err != nil {
		t.Error(err)
	}
	if _, err := envelope.End(ctx, budget.Unused()); err != nil {
		t.Error(err)
	}
	if got := left(t, c); got != 940 {
		t.Errorf("%d left, want 940", got)
	}
}

// A usage that no broker takes costs the verdicts, and not the lease.
func TestRefusedUsage(t *testing.T) {
	c, _ := start(t)
	running, err := c.Begin(context.Background(), budget.Request{Amounts: tokens(100), Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	running.SetUsed(map[string]int64{"in_flight": 1})
	waitFor(t, "the end of the first lease", func() bool { return time.Now().After(running.ExpiresAt.Add(time.Second)) })
	if state := stateOf(t, c, running.ID); state != budgetv1.ReservationState_RESERVATION_STATE_HELD || running.Context().Err() != nil {
		t.Errorf("it is %s, its context: %v", state, running.Context().Err())
	}
	if _, err := running.End(context.Background(), budget.Unused()); err != nil {
		t.Error(err)
	}
}

// A call whose broker goes away goes on, with the verdict that it heard last; it is
// told more when the broker is back.
func TestVerdictWhileTheBrokerIsAway(t *testing.T) {
	direct, b := start(t)
	g := newGate(t, b.URL)
	c, err := budget.New(g.URL, direct.Key())
	if err != nil {
		t.Fatal(err)
	}
	var v verdicts
	running, err := c.Begin(context.Background(), budget.Request{Amounts: tokens(1000), Lease: time.Minute, OnVerdict: v.hear})
	if err != nil {
		t.Fatal(err)
	}
	running.SetUsed(tokens(800))
	waitFor(t, "wind down", func() bool { return v.last().Verdict == budget.WindDown })
	g.does.Store(turnsAway)
	asked := g.seen.Load()
	running.SetUsed(tokens(1000))
	waitFor(t, "renewals of a broker that is away", func() bool { return g.seen.Load() >= asked+3 })
	if v.last().Verdict != budget.WindDown || running.Context().Err() != nil {
		t.Errorf("%+v, and the context: %v", v.last(), running.Context().Err())
	}
	g.does.Store(passes)
	<-running.Context().Done()
	if _, err := running.End(context.Background(), budget.Usage{}); err != nil {
		t.Error(err)
	}
}

// Ends beside renewals, from every side.
func TestEndBesideRenewals(t *testing.T) {
	c, _ := start(t)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			running, err := c.Begin(context.Background(), budget.Request{Amounts: tokens(40), Lease: 10 * time.Millisecond * time.Duration(1+i), OnVerdict: func(budget.Renewal) {}})
			if err != nil {
				t.Error(err)
				return
			}
			ended := make(chan struct{})
			all.Go(func() {
				defer close(ended)
				for n := range int64(2000) {
					running.SetUsed(tokens(n / 100))
				}
			})
			all.Go(running.StopRenewing)
			if i%2 == 0 {
				<-ended
			}
			if _, err := running.End(context.Background(), budget.Amounts(tokens(1))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := left(t, c); got != 980 {
		t.Errorf("%d left, want 980", got)
	}
}
