package replay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

const (
	// attemptTimeout bounds one try of a call. The broker answers far sooner by
	// its own deadlines; a try that takes longer counts as not answered.
	attemptTimeout = 5 * time.Second
	// patience bounds how long a call is repeated while the broker does not
	// answer: a restart of the broker fits in.
	patience = 20 * time.Second
)

// Target is the broker that a replay drives, and whose budget it uses.
type Target struct {
	Server  string // http://host:port
	Key     string // API key
	Account string
	Lease   time.Duration
	MaxWait time.Duration // of each call for its start
}

// latest is when a lease that begins by now, or at a start that is waited for, has
// ended at the latest.
func (t Target) latest() time.Time { return time.Now().Add(t.MaxWait + t.Lease) }

// caller makes the calls of a replay, and repeats those that the broker did not
// answer. It is safe for concurrent use.
type caller struct {
	Target
	client  *budget.Client
	idle    func() // closes idle connections
	retries atomic.Int64

	reserves, refunds *recorder
}

func newCaller(t Target, connections int) (*caller, error) {
	transport := &http.Transport{
		// Connections are kept: a replay measures the broker, not handshakes.
		MaxIdleConns: connections, MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute,
		Proxy: http.ProxyFromEnvironment,
	}
	client, err := budget.New(t.Server, t.Key, budget.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		return nil, err
	}
	return &caller{Target: t, client: client, idle: transport.CloseIdleConnections, reserves: newRecorder(), refunds: newRecorder()}, nil
}

// grant is what Reserve answered.
type grant struct {
	id      string
	state   budgetv1.ReservationState
	holds   []*budgetv1.Hold
	endsBy  time.Time // on this process's clock: the lease has ended then
	degrade bool
	waited  time.Duration // for its start
}

// reserve asks for tokens, and waits for the start that the call is given. The same key
// asks for the same reservation again.
// Errors: *budget.RefusedError; *unansweredError; any other is final.
func (c *caller) reserve(ctx context.Context, key string, tokens int64) (grant, error) {
	request := &budgetv1.ReserveRequest{
		Account: c.Account, IdempotencyKey: key, Lease: durationpb.New(c.Lease),
		Amounts: map[string]int64{"tokens": tokens},
	}
	if c.MaxWait > 0 {
		request.MaxWait = durationpb.New(c.MaxWait)
	}
	answer, err := persist(ctx, c, c.reserves, func(ctx context.Context) (*connect.Response[budgetv1.ReserveResponse], error) {
		return c.client.Service().Reserve(ctx, connect.NewRequest(request))
	})
	if err != nil {
		return grant{}, err
	}
	m := answer.Msg
	wait := m.StartsIn.AsDuration()
	if wait > 0 {
		if err := sleep(ctx, wait); err != nil {
			return grant{}, err
		}
	}
	return grant{id: m.ReservationId, state: m.State, holds: m.Holds, degrade: m.Degraded, endsBy: time.Now().Add(c.Lease), waited: wait}, nil
}

func (c *caller) refund(ctx context.Context, reservation string, tokens int64) (*budgetv1.RefundResponse, error) {
	return persist(ctx, c, c.refunds, func(ctx context.Context) (*budgetv1.RefundResponse, error) {
		return c.client.Refund(ctx, reservation, budget.Amounts(map[string]int64{"tokens": tokens}))
	})
}

// renew extends a lease. That the lease has ended is no error: the Refund will
// count as late.
func (c *caller) renew(ctx context.Context, reservation string) error {
	_, err := persist(ctx, c, nil, func(ctx context.Context) (budget.Renewal, error) {
		return c.client.Renew(ctx, reservation, c.Lease, nil)
	})
	if errors.Is(err, budget.ErrEnded) {
		return nil
	}
	return err
}

func (c *caller) quota(ctx context.Context) (*budgetv1.GetQuotaResponse, error) {
	return persist(ctx, c, nil, func(ctx context.Context) (*budgetv1.GetQuotaResponse, error) {
		answer, err := c.client.Service().GetQuota(ctx, connect.NewRequest(&budgetv1.GetQuotaRequest{Account: c.Account}))
		if err != nil {
			return nil, err
		}
		return answer.Msg, nil
	})
}

func (c *caller) reservation(ctx context.Context, id string) (*budgetv1.GetReservationResponse, error) {
	return persist(ctx, c, nil, func(ctx context.Context) (*budgetv1.GetReservationResponse, error) {
		answer, err := c.client.Service().GetReservation(ctx, connect.NewRequest(&budgetv1.GetReservationRequest{ReservationId: id}))
		if err != nil {
			return nil, err
		}
		return answer.Msg, nil
	})
}

// unansweredError says that the broker did not answer, however often it was
// asked: whether the call took effect is not known.
type unansweredError struct {
	tries int
	last  error
}

func (e *unansweredError) Error() string {
	return fmt.Sprintf("no answer after %d tries in %v: %v", e.tries, patience, e.last)
}

func (e *unansweredError) Unwrap() error { return e.last }

// persist makes a call until it is answered, with growing pauses, for as long
// as its patience lasts. latency takes how long answered tries took; nil: it
// does not matter.
func persist[T any](ctx context.Context, c *caller, latency *recorder, call func(context.Context) (T, error)) (T, error) {
	giveUp := time.Now().Add(patience)
	growing := backoff.NewExponentialBackOff()
	growing.InitialInterval, growing.MaxInterval = 20*time.Millisecond, time.Second
	for tries := 1; ; tries++ {
		began := time.Now()
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		answer, err := call(attempt)
		cancel()
		if !isSilence(err) {
			if latency != nil {
				latency.record(time.Since(began))
			}
			return answer, budget.AsRefusal(err)
		}
		pause := growing.NextBackOff()
		if time.Now().Add(pause).After(giveUp) {
			return answer, &unansweredError{tries, err}
		}
		c.retries.Add(1)
		if stopped := sleep(ctx, pause); stopped != nil {
			return answer, &unansweredError{tries, err}
		}
	}
}

// isSilence says whether nobody knows what became of a call.
func isSilence(err error) bool {
	code := connect.CodeOf(err)
	return err != nil && (code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded)
}

// sleep waits, and returns an error when ctx ends before.
func sleep(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refusedBy names the limit of a refusal and its reason, for a count.
func refusedBy(refused *budget.RefusedError) string {
	limit := refused.Refusal.GetLimit()
	if pool := refused.Refusal.GetPool(); pool != "" {
		limit = pool
	}
	return limit + " " + strings.TrimPrefix(refused.Refusal.GetReason().String(), "REFUSAL_REASON_")
}
