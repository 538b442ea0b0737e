// Package retry tries calls again that a service refused for now, when it said and
// not all at the same instant: after the answer's Retry-After, or after growing
// waits where there is none, each with jitter.
//
// It does not try again what waiting cannot help: an answer with
// "x-should-retry: false", such as a quota that is spent; a wait that goes beyond
// the bounds; a request whose body cannot be sent again.
package retry

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/budgetd/budgetd/clients/go/internal/pause"
)

// The defaults of a Policy.
const (
	DefaultTries   = 6
	DefaultMaxWait = time.Minute
	DefaultFirst   = 500 * time.Millisecond
	DefaultLongest = 30 * time.Second
)

// jitter is the share of a stated wait that is added to it at most, so that those
// who were refused together don't come back together.
const jitter = 0.25

// Policy bounds trying again. The zero Policy has the defaults.
type Policy struct {
	Tries   int           // in all, at least 1; [DefaultTries] unless set
	MaxWait time.Duration // in all; [DefaultMaxWait] unless set
	First   time.Duration // about the first growing wait; [DefaultFirst] unless set
	Longest time.Duration // the longest growing wait; [DefaultLongest] unless set

	Random func() float64                                   // from 0 up to 1; math/rand/v2 unless set
	Sleep  func(ctx context.Context, d time.Duration) error // waits, or fails with ctx's error; a timer unless set
}

// Later is an error of a call that may be tried again.
type Later struct {
	After time.Duration // what the service asked to wait; 0: it did not say
	Err   error
}

func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns the error.
func (l *Later) Unwrap() error { return l.Err }

// Do makes the call, and again as long as it fails with a *[Later] and the policy
// and the context allow. It returns the call's last error, joined with the
// context's when that ended a wait.
func (p Policy) Do(ctx context.Context, call func() error) error {
	waits := p.waits()
	for {
		err := call()
		var later *Later
		if err == nil || !errors.As(err, &later) {
			return err
		}
		wait, again := waits.next(ctx, later.After)
		if !again {
			return err
		}
		if ended := p.sleep(ctx, wait); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// waits are those of one call.
type waits struct {
	policy  Policy
	growing *backoff.ExponentialBackOff
	tries   int           // that were made
	waited  time.Duration // in all
}

func (p Policy) waits() *waits {
	if p.Tries < 1 {
		p.Tries = DefaultTries
	}
	if p.MaxWait <= 0 {
		p.MaxWait = DefaultMaxWait
	}
	if p.First <= 0 {
		p.First = DefaultFirst
	}
	if p.Longest <= 0 {
		p.Longest = DefaultLongest
	}
	if p.Random == nil {
		p.Random = rand.Float64
	}
	growing := backoff.NewExponentialBackOff()
	growing.InitialInterval, growing.MaxInterval = p.First, p.Longest
	growing.RandomizationFactor = 0 // the jitter is ours, so that a test can say which
	return &waits{policy: p, growing: growing}
}

// next says how long to wait before the next try, if there is to be one.
func (w *waits) next(ctx context.Context, asked time.Duration) (time.Duration, bool) {
	if w.tries++; w.tries >= w.policy.Tries {
		return 0, false
	}
	wait := w.growing.NextBackOff()
	if asked > 0 {
		wait = asked + time.Duration(w.policy.Random()*jitter*float64(asked))
	} else {
		// From half of it up to one and a half.
		wait = time.Duration((0.5 + w.policy.Random()) * float64(wait))
	}
	if w.waited += wait; w.waited > w.policy.MaxWait {
		return 0, false
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return 0, false // the refusal says more than a timeout
	}
	return wait, true
}

func (p Policy) sleep(ctx context.Context, d time.Duration) error {
	if p.Sleep != nil {
		return p.Sleep(ctx, d)
	}
	return pause.For(ctx, d)
}

// Transport is an http.RoundTripper that tries again after 429 and 503, and after
// 502, 504 and errors of the connection where the request is one that may be made
// twice: of a method that is safe or PUT or DELETE, or with an Idempotency-Key. A
// body must have GetBody, as those of http.NewRequest from a buffer, a string or a
// bytes.Reader have. The last answer or error is returned as it came.
type Transport struct {
	Base   http.RoundTripper // http.DefaultTransport unless set
	Policy Policy
}

// maxDrained bounds what is read of an answer that is not returned, so that its
// connection can be used again, and maxDraining how long.
const (
	maxDrained  = 64 << 10
	maxDraining = 100 * time.Millisecond
)

// drain reads a body to its end and closes it, or only closes it where that end
// does not come in time, or ctx ends before.
func drain(ctx context.Context, body io.ReadCloser, within time.Duration) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.CopyN(io.Discard, body, maxDrained)
		body.Close()
	}()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-ended:
		return
	case <-late.C:
	case <-ctx.Done():
	}
	go body.Close() // one that waits for its Read ends with the request's context
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	waits, ctx := t.Policy.waits(), request.Context()
	for try := request; ; {
		response, err := base.RoundTrip(try)
		again, after := mayRetry(request, response, err)
		if !again || request.Body != nil && request.Body != http.NoBody && request.GetBody == nil {
			return response, err
		}
		wait, again := waits.next(ctx, after)
		if !again {
			return response, err
		}
		next := request.Clone(ctx)
		if request.GetBody != nil {
			body, bodyErr := request.GetBody()
			if bodyErr != nil {
				return response, err
			}
			next.Body = body
		}
		begun := time.Now()
		if response != nil {
			drain(ctx, response.Body, min(wait, maxDraining))
		}
		ended := ctx.Err()
		if ended == nil {
			ended = t.Policy.sleep(ctx, max(wait-time.Since(begun), 0)) // draining is a part of the wait
		}
		if ended != nil {
			if next.Body != nil {
				next.Body.Close()
			}
			return nil, ended
		}
		try = next
	}
}

// mayRetry says whether an answer is worth another try, and what it asks to wait.
func mayRetry(request *http.Request, response *http.Response, err error) (again bool, after time.Duration) {
	if err != nil {
		return request.Context().Err() == nil && repeatable(request), 0
	}
	switch response.Header.Get("X-Should-Retry") {
	case "false":
		return false, 0
	case "true":
		return true, After(response.Header, time.Now())
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true, After(response.Header, time.Now())
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return repeatable(request), After(response.Header, time.Now())
	}
	return false, 0
}

// repeatable says whether making the request twice is as making it once.
func repeatable(request *http.Request) bool {
	switch request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return request.Header.Get("Idempotency-Key") != "" || request.Header.Get("X-Idempotency-Key") != ""
}

// After reads how long an answer asks to wait: "retry-after-ms", else "Retry-After"
// in seconds or as a date. It is 0 for none, for one that cannot be read or has
// passed, and a week at most.
func After(header http.Header, now time.Time) time.Duration { return pause.Asked(header, now) }
