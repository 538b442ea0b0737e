package budget_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/broker"
)

const policy = `
plans:
  pro:
    limits:
      - {name: tokens, meter: tokens, rate: 1/day, burst: 1000}
      - {name: slow, meter: in_flight, max: 1, match: {route: slow}}
      - {name: paced, meter: pages, rate: 1/s}
      - {name: queue, meter: queued, rate: 10/h, algorithm: leaky_queue}
    quotas:
      - {name: seconds, meter: seconds, amount: 10, period: year}
accounts:
  a: {plan: pro}
`

func TestMain(m *testing.M) { broker.Main(m) }

// start starts a broker with one account, and a client of it.
func start(t *testing.T, options ...budget.Option) (*budget.Client, *broker.Broker) {
	t.Helper()
	return startWith(t, nil, options...)
}

// startOf is start with more arguments of the broker.
func startOf(t *testing.T, args ...string) *budget.Client {
	t.Helper()
	c, _ := startWith(t, args)
	return c
}

func startWith(t *testing.T, args []string, options ...budget.Option) (*budget.Client, *broker.Broker) {
	t.Helper()
	b, key := broker.StartWith(t, policy, []string{"a"}, append([]string{"--deadline", "2s"}, args...)...)
	c, err := budget.New(b.URL, key, options...)
	if err != nil {
		t.Fatal(err)
	}
	return c, b
}

func left(t *testing.T, c *budget.Client) int64 {
	t.Helper()
	answer, err := c.Service().GetQuota(context.Background(), connect.NewRequest(&budgetv1.GetQuotaRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range answer.Msg.Limits {
		if limit.Limit == "tokens" {
			return limit.Remaining
		}
	}
	t.Fatal("no limit named tokens")
	return 0
}

var hundred = budget.Request{Account: "a", Amounts: map[string]int64{"tokens": 100}}

// TestDoRefundsOnEveryWayOut: what is charged, on each way out of the function.
func TestDoRefundsOnEveryWayOut(t *testing.T) {
	c, _ := start(t)
	boom := errors.New("boom")
	want := int64(1000)
	for _, way := range []struct {
		name    string
		charged int64
		err     error
		call    func(context.Context, context.CancelFunc) (budget.Usage, error)
	}{
		{"a usage", 30, nil, func(context.Context, context.CancelFunc) (budget.Usage, error) {
			return budget.Amounts(map[string]int64{"tokens": 30}), nil
		}},
		{"a usage and an error", 40, boom, func(context.Context, context.CancelFunc) (budget.Usage, error) {
			return budget.Amounts(map[string]int64{"tokens": 40}), boom
		}},
		{"an error", 0, boom, func(context.Context, context.CancelFunc) (budget.Usage, error) {
			return budget.Usage{}, boom
		}},
		{"unused", 0, nil, func(context.Context, context.CancelFunc) (budget.Usage, error) {
			return budget.Unused(), nil
		}},
		{"nothing reported", 100, nil, func(context.Context, context.CancelFunc) (budget.Usage, error) {
			return budget.Usage{}, nil
		}},
		{"hang-up", 100, context.Canceled, func(ctx context.Context, hangUp context.CancelFunc) (budget.Usage, error) {
			hangUp()
			<-ctx.Done()
			return budget.Usage{}, ctx.Err()
		}},
		{"hang-up with a usage", 7, context.Canceled, func(ctx context.Context, hangUp context.CancelFunc) (budget.Usage, error) {
			hangUp()
			return budget.Amounts(map[string]int64{"tokens": 7}), ctx.Err()
		}},
	} {
		ctx, hangUp := context.WithCancel(context.Background())
		err := c.Do(ctx, hundred, func(ctx context.Context, r *budget.Reservation) (budget.Usage, error) {
			if got := left(t, c); got != want-100 {
				t.Errorf("%s: %d left while it runs, want %d", way.name, got, want-100)
			}
			return way.call(ctx, hangUp)
		})
		hangUp()
		if !errors.Is(err, way.err) {
			t.Errorf("%s: Do returned %v, want %v", way.name, err, way.err)
		}
		want -= way.charged
		if got := left(t, c); got != want {
			t.Errorf("%s: %d left, want %d", way.name, got, want)
			want = got
		}
	}
}

func TestDoRefundsOnPanic(t *testing.T) {
	c, _ := start(t)
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not reach the caller")
			}
		}()
		_ = c.Do(context.Background(), budget.Request{Account: "a", Labels: map[string]string{"route": "slow"}, Amounts: hundred.Amounts},
			func(context.Context, *budget.Reservation) (budget.Usage, error) { panic("boom") })
	}()
	if got := left(t, c); got != 900 {
		t.Errorf("%d left, want 900: nobody knows what was used", got)
	}
	// The slot is free.
	_, err := c.Reserve(context.Background(), budget.Request{Account: "a", Labels: map[string]string{"route": "slow"}})
	if err != nil {
		t.Error(err)
	}
}

func TestDoRenewsLongCalls(t *testing.T) {
	c, _ := start(t)
	request := hundred
	request.Lease = time.Second
	err := c.Do(context.Background(), request, func(ctx context.Context, r *budget.Reservation) (budget.Usage, error) {
		// The broker's clock is the judge: wait until the first lease is over.
		for !time.Now().After(r.ExpiresAt.Add(time.Second)) {
			time.Sleep(20 * time.Millisecond)
		}
		story, err := c.Service().GetReservation(ctx, connect.NewRequest(&budgetv1.GetReservationRequest{ReservationId: r.ID}))
		if err != nil {
			return budget.Usage{}, err
		}
		if story.Msg.State != budgetv1.ReservationState_RESERVATION_STATE_HELD {
			t.Errorf("after its first lease the reservation is %s", story.Msg.State)
		}
		return budget.Amounts(map[string]int64{"tokens": 1}), nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDoWaitsAsTheRefusalSays(t *testing.T) {
	c, _ := start(t)
	page := budget.Request{Account: "a", Amounts: map[string]int64{"pages": 1}}
	nothing := func(context.Context, *budget.Reservation) (budget.Usage, error) {
		return budget.Amounts(map[string]int64{"pages": 1}), nil
	}
	if err := c.Do(context.Background(), page, nothing); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := c.Do(context.Background(), page, nothing); err != nil {
		t.Fatalf("the second of one page a second: %v", err)
	}
	if waited := time.Since(begun); waited < 900*time.Millisecond {
		t.Errorf("waited %v, Retry-After said a second", waited)
	}
}

func TestDoGivesUp(t *testing.T) {
	c, _ := start(t, budget.WithMaxWait(0))
	never := func(context.Context, *budget.Reservation) (budget.Usage, error) {
		t.Error("the function ran without a reservation")
		return budget.Usage{}, nil
	}
	var refused *budget.RefusedError
	err := c.Do(context.Background(), budget.Request{Account: "a", Amounts: map[string]int64{"tokens": 1001}}, never)
	if !errors.As(err, &refused) || refused.Retryable() || refused.RetryAfter != 0 {
		t.Errorf("more than the limit ever holds: %v", err)
	}
	if err := c.Do(context.Background(), budget.Request{Account: "a", Amounts: map[string]int64{"tokens": 1000}}, func(context.Context, *budget.Reservation) (budget.Usage, error) {
		err := c.Do(context.Background(), hundred, never)
		if !errors.As(err, &refused) || !refused.Retryable() || refused.Refusal.Limit != "tokens" {
			t.Errorf("an empty bucket: %v", err)
		}
		return budget.Unused(), nil
	}); err != nil {
		t.Error(err)
	}
	_, err = c.Reserve(context.Background(), budget.Request{Account: "somebody-else", Amounts: hundred.Amounts})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("another's account: %v, want not_found", err)
	}
}

// TestDoDoesNotWaitForAYear: a quota that resets too late to wait for is returned
// at once, as a refusal that says when, whatever status the broker gives it.
func TestDoDoesNotWaitForAYear(t *testing.T) {
	for _, status := range []string{"429", "403"} {
		c := startOf(t, "--quota-exhausted-status", status, "--max-retry-after", "1s")
		request := budget.Request{Account: "a", Amounts: map[string]int64{"seconds": 10}}
		if err := c.Do(context.Background(), request, func(context.Context, *budget.Reservation) (budget.Usage, error) {
			return budget.Amounts(request.Amounts), nil
		}); err != nil {
			t.Fatal(err)
		}
		err := c.Do(context.Background(), request, func(context.Context, *budget.Reservation) (budget.Usage, error) {
			t.Error("the quota let a call through")
			return budget.Unused(), nil
		})
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || refused.Retryable() {
			t.Fatalf("%s: %v, want a refusal that is not retryable", status, err)
		}
		pace := time.Second
		if status == "403" {
			pace = 0
		}
		if year := time.Now().UTC().Year() + 1; refused.RetryAfter != pace || refused.ResetsAt().Year() != year {
			t.Errorf("%s: retry after %v, resets at %v; want %v and the year %d", status, refused.RetryAfter, refused.ResetsAt(), pace, year)
		}
	}
}

// TestDoSurvivesLostAnswers puts a proxy in front that drops answers after the
// broker gave them.
func TestDoSurvivesLostAnswers(t *testing.T) {
	c, b := start(t)
	target, err := url.Parse(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	var drop atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(answer *http.Response) error {
		if drop.Add(-1) >= 0 {
			_, _ = io.Copy(io.Discard, answer.Body)
			return errors.New("dropped")
		}
		return nil
	}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusServiceUnavailable) }
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: proxy}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })

	lossy := clientOf(t, c, "http://"+listener.Addr().String())
	drop.Store(2) // two Reserves are executed and their answers lost
	err = lossy.Do(context.Background(), hundred, func(context.Context, *budget.Reservation) (budget.Usage, error) {
		if got := left(t, c); got != 900 {
			t.Errorf("%d left, want 900: the repeats are one reservation", got)
		}
		drop.Store(2) // likewise two Refunds
		return budget.Amounts(map[string]int64{"tokens": 5}), nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := left(t, c); got != 995 {
		t.Errorf("%d left, want 995", got)
	}
}

// clientOf is c's key at another address.
func clientOf(t *testing.T, c *budget.Client, address string) *budget.Client {
	t.Helper()
	other, err := budget.New(address, c.Key())
	if err != nil {
		t.Fatal(err)
	}
	return other
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for _, address := range []string{"", "localhost:8080", "ftp://x", "http://", "://"} {
		if _, err := budget.New(address, "k"); err == nil || !strings.Contains(err.Error(), "http://host:port") {
			t.Errorf("New(%q): %v", address, err)
		}
	}
	if _, err := budget.New("http://x", ""); err == nil {
		t.Error("New without a key is accepted")
	}
}
