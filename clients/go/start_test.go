package budget_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
)

// page is one of the policy's one page a second.
var page = budget.Request{Account: "a", Amounts: map[string]int64{"pages": 1}, MaxWait: time.Minute}

func stateOf(t *testing.T, c *budget.Client, id string) budgetv1.ReservationState {
	t.Helper()
	story, err := c.Service().GetReservation(context.Background(), connect.NewRequest(&budgetv1.GetReservationRequest{ReservationId: id}))
	if err != nil {
		t.Fatal(err)
	}
	return story.Msg.State
}

// A reservation that waits is returned at its start, and its lease runs from there.
func TestReserveReturnsAtItsStart(t *testing.T) {
	c, _ := start(t)
	ctx := context.Background()
	first, err := c.Reserve(ctx, page)
	if err != nil || !first.StartAt.IsZero() {
		t.Fatalf("the first: %+v, %v; want it at once", first, err)
	}
	second, err := c.Reserve(ctx, page)
	if err != nil || second.StartAt.IsZero() || time.Now().Before(second.StartAt) {
		t.Fatalf("the second: %+v, %v; want it at its start", second, err)
	}
	if lease := second.ExpiresAt.Sub(second.StartAt); lease != budget.DefaultLease {
		t.Errorf("its lease is %v from its start, want %v", lease, budget.DefaultLease)
	}
	// The lease is kept alive from the start on, not from the booking.
	third := page
	third.Lease = time.Second
	err = c.Do(ctx, third, func(_ context.Context, r *budget.Reservation) (budget.Usage, error) {
		if now := time.Now(); r.StartAt.IsZero() || now.Before(r.StartAt) {
			t.Errorf("Do begins at %v, want its start %v", now, r.StartAt)
		}
		for !time.Now().After(r.ExpiresAt.Add(time.Second)) {
			time.Sleep(20 * time.Millisecond)
		}
		if state := stateOf(t, c, r.ID); state != budgetv1.ReservationState_RESERVATION_STATE_HELD {
			t.Errorf("after its first lease it is %s", state)
		}
		return budget.Usage{}, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Who gives up before its start gives back what it was to use.
func TestGivingUpBeforeTheStart(t *testing.T) {
	c, b := start(t)
	if _, err := c.Reserve(context.Background(), budget.Request{Account: "a", Amounts: map[string]int64{"queued": 1}}); err != nil {
		t.Fatal(err)
	}
	never := func(context.Context, *budget.Reservation) (budget.Usage, error) {
		t.Error("the call was made")
		return budget.Unused(), nil
	}
	queued := budget.Request{Account: "a", Amounts: map[string]int64{"queued": 1}}
	for _, way := range []struct {
		name string
		ask  func(context.Context, *budget.Client) error
	}{
		{"Reserve", func(ctx context.Context, c *budget.Client) error { _, err := c.Reserve(ctx, queued); return err }},
		{"Begin", func(ctx context.Context, c *budget.Client) error { _, err := c.Begin(ctx, queued); return err }},
		{"Do", func(ctx context.Context, c *budget.Client) error { return c.Do(ctx, queued, never) }},
	} {
		answers := &answered{}
		watched, err := budget.New(b.URL, c.Key(), budget.WithHTTPClient(&http.Client{Transport: answers}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, hangUp := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- way.ask(ctx, watched) }()
		waitFor(t, "the booking", func() bool { return answers.count.Load() == 1 })
		time.Sleep(200 * time.Millisecond) // until the answer is read
		hangUp()
		err = <-ended
		var waited *budget.NotStartedError
		if !errors.As(err, &waited) || waited.Held || waited.In <= 0 || connect.CodeOf(err) != connect.CodeCanceled {
			t.Fatalf("%s: %v, want a start that was not waited for", way.name, err)
		}
		waitFor(t, way.name+": the Refund", func() bool {
			return stateOf(t, c, waited.Reservation.ID) != budgetv1.ReservationState_RESERVATION_STATE_HELD
		})
	}
	// A start after the caller's own deadline is not waited for.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	began := time.Now()
	_, err := c.Reserve(ctx, queued)
	var waited *budget.NotStartedError
	if !errors.As(err, &waited) || waited.In < time.Minute || connect.CodeOf(err) != connect.CodeDeadlineExceeded || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v, want it at once", err, time.Since(began))
	}
	waitFor(t, "the Refund", func() bool {
		return stateOf(t, c, waited.Reservation.ID) != budgetv1.ReservationState_RESERVATION_STATE_HELD
	})
}

// answered counts the answers that came.
type answered struct{ count atomic.Int32 }

// RoundTrip implements http.RoundTripper.
func (a *answered) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	a.count.Add(1)
	return answer, err
}

// No start is booked that the caller would not live to see.
func TestDeadlineBoundsTheWait(t *testing.T) {
	c, _ := start(t, budget.WithMaxWait(0))
	ctx := context.Background()
	full := budget.Request{Account: "a", Amounts: map[string]int64{"tokens": 1000}, MaxWait: time.Hour}
	if _, err := c.Reserve(ctx, full); err != nil {
		t.Fatal(err)
	}
	one := budget.Request{Account: "a", Amounts: map[string]int64{"pages": 1}, MaxWait: time.Hour}
	for range 2 {
		if _, err := c.Begin(ctx, one); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	var refused *budget.RefusedError
	if _, err := c.Reserve(short, one); !errors.As(err, &refused) || !refused.Retryable() {
		t.Errorf("a caller with a tenth of a second: %v, want a refusal", err)
	}
	if _, err := c.Reserve(ctx, budget.Request{Account: "a", MaxWait: -time.Second}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a negative wait: %v", err)
	}
}

// A call with a Key keeps its place: whoever repeats it gets the start it was given.
func TestNamedCallKeepsItsStart(t *testing.T) {
	c, _ := start(t)
	if _, err := c.Reserve(context.Background(), page); err != nil {
		t.Fatal(err)
	}
	named := page
	named.Key = "order-7"
	ctx, hangUp := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, hangUp)
	_, err := c.Reserve(ctx, named)
	var waited *budget.NotStartedError
	if !errors.As(err, &waited) || !waited.Held {
		t.Fatalf("%v, want a start that is held", err)
	}
	named.MaxWait = 2 * time.Second // what is left of it
	again, err := c.Reserve(context.Background(), named)
	if err != nil || again.ID != waited.Reservation.ID || !again.StartAt.Equal(waited.Reservation.StartAt) || time.Now().Before(again.StartAt) {
		t.Errorf("%+v, %v; want the start of %+v", again, err, waited.Reservation)
	}
}

// A start whose answer is lost is booked once.
func TestLostStartIsBookedOnce(t *testing.T) {
	c, b := start(t)
	ctx := context.Background()
	first, err := c.Reserve(ctx, page)
	if err != nil {
		t.Fatal(err)
	}
	from := first.ExpiresAt.Add(-budget.DefaultLease)
	g, second := newGate(t, b.URL), newGate(t, b.URL)
	g.does.Store(loses)
	lossy, err := budget.New(g.URL, c.Key(), budget.WithAddresses(second.URL), budget.WithDeadline(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		r, err := lossy.Reserve(ctx, page)
		if err != nil {
			t.Fatal(err)
		}
		if after := r.StartAt.Sub(from); after > time.Duration(n)*time.Second+time.Millisecond {
			t.Errorf("call %d starts %v after the first, want %d s: something was booked twice", n, after, n)
		}
	}
	if g.seen.Load() == 0 || second.seen.Load() < 2 {
		t.Errorf("the brokers were asked %d and %d times", g.seen.Load(), second.seen.Load())
	}
}

// strange answers with a start by a clock of its own.
type strange struct {
	budgetv1connect.UnimplementedBudgetServiceHandler
	startAt  time.Time
	startsIn time.Duration
}

func (s strange) Reserve(context.Context, *connect.Request[budgetv1.ReserveRequest]) (*connect.Response[budgetv1.ReserveResponse], error) {
	return connect.NewResponse(&budgetv1.ReserveResponse{
		ReservationId: "r", State: budgetv1.ReservationState_RESERVATION_STATE_HELD,
		StartAt: timestamppb.New(s.startAt), StartsIn: durationpb.New(s.startsIn),
		ExpiresAt: timestamppb.New(s.startAt.Add(time.Minute)),
	}), nil
}

// The wait is the broker's word and not the difference of two clocks.
func TestStartsByAnotherClock(t *testing.T) {
	for _, clock := range []time.Duration{-time.Hour, time.Hour} {
		_, handler := budgetv1connect.NewBudgetServiceHandler(strange{startAt: time.Now().Add(clock), startsIn: 200 * time.Millisecond})
		server := httptest.NewServer(handler)
		defer server.Close()
		c, err := budget.New(server.URL, "k")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := c.Reserve(context.Background(), page); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 200*time.Millisecond || waited > 30*time.Second {
			t.Errorf("with a clock %v off it waited %v, want 200 ms", clock, waited)
		}
	}
}
