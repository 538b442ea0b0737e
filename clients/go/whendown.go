package budget

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/budgetd/budgetd/clients/go/internal/pause"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// WhenDown is what becomes of a call when no broker answers within the deadline
// (see [WithDeadline]): [Open], [Closed] or [Local]. A broker that is overloaded,
// or can't reach its store, counts as one that does not answer; a refusal is
// always an answer. The zero WhenDown leaves it to the Client's, which is Closed
// unless [WithWhenDown] sets another.
//
// A call that goes on without a broker has a Reservation without ID, marked
// Degraded. There is nothing to renew or to refund then: both do nothing, and
// what the call used is in no ledger.
type WhenDown struct {
	decide func(Request, error) (*Reservation, error)
}

// Open lets the call go on.
func Open() WhenDown {
	return WhenDown{func(request Request, _ error) (*Reservation, error) { return unreserved(request), nil }}
}

// Closed returns the error.
func Closed() WhenDown {
	return WhenDown{func(_ Request, err error) (*Reservation, error) { return nil, err }}
}

// LocalLimit is the name of the limit in refusals by a [Local] bucket.
const LocalLimit = "local"

// Local lets calls go on as a token bucket of this process allows: perSecond
// requests a second, above 0, and burst at once, at least 1. Calls are counted by
// the meter "requests", 1 unless the request states it. Every call with this
// WhenDown, or a copy of it, takes from the same bucket, whatever its account and
// labels: it bounds what the process lets through, and does not part it among
// clients. Make one for each kind of call that is to have its own. What it refuses is
// a *[RefusedError] by the limit [LocalLimit].
func Local(perSecond float64, burst int) (WhenDown, error) {
	if !(perSecond > 0) || math.IsInf(perSecond, 1) {
		return WhenDown{}, fmt.Errorf("local bucket: %v requests a second: want more than 0, and finite", perSecond)
	}
	if burst < 1 {
		return WhenDown{}, fmt.Errorf("local bucket: a burst of %d: want at least 1", burst)
	}
	bucket := &localBucket{limiter: rate.NewLimiter(rate.Limit(perSecond), burst), now: time.Now}
	return WhenDown{bucket.decide}, nil
}

// localBucket reads the clock under the lock under which it takes: a refill is
// counted once, whatever the order in which callers looked at theirs.
type localBucket struct {
	mu      sync.Mutex
	limiter *rate.Limiter
	now     func() time.Time
	last    time.Time
}

func (b *localBucket) decide(request Request, _ error) (*Reservation, error) {
	asked := requestsOf(request)
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.now(); now.After(b.last) {
		b.last = now
	}
	switch {
	case asked > int64(b.limiter.Burst()):
		return nil, refusedLocally(b.limiter, asked, b.last, 0)
	case b.limiter.AllowN(b.last, int(asked)):
		return unreserved(request), nil
	}
	missing := float64(asked) - b.limiter.TokensAt(b.last)
	seconds := min(missing/float64(b.limiter.Limit()), maxLocalWait.Seconds())
	return nil, refusedLocally(b.limiter, asked, b.last, max(time.Duration(math.Ceil(seconds*1e9)), 1))
}

// maxLocalWait bounds what a refusal tells of a bucket that fills for years.
const maxLocalWait = 365 * 24 * time.Hour

// unreserved is the reservation of a call that goes on without a broker: it may
// use what it asked for.
func unreserved(request Request) *Reservation {
	return &Reservation{Degraded: true, GrantedMaxOutputTokens: request.LLM.GetMaxOutputTokens()}
}

// requestsOf is how many requests a call counts as.
func requestsOf(request Request) int64 {
	if n, stated := request.Amounts["requests"]; stated {
		return max(n, 0)
	}
	return 1
}

// refusedLocally is a refusal in the form of a broker's. wait is 0 when the call
// asks for more than the bucket holds.
func refusedLocally(bucket *rate.Limiter, asked int64, now time.Time, wait time.Duration) error {
	refusal := &budgetv1.Refusal{
		Reason: budgetv1.RefusalReason_REFUSAL_REASON_EXCEEDS_CAPACITY,
		Limit:  LocalLimit, Meter: "requests", Asked: asked,
		Remaining: max(0, int64(math.Floor(bucket.TokensAt(now)))), LimitAmount: int64(bucket.Burst()),
	}
	text := "no broker answers, and the call asks for more than the local bucket ever holds"
	refused := &RefusedError{Refusal: refusal, LimitHeaders: http.Header{}}
	refused.LimitHeaders.Set(HeaderLimitedBy, LocalLimit)
	if wait > 0 {
		refusal.Reason = budgetv1.RefusalReason_REFUSAL_REASON_RATE_LIMITED
		refusal.Retryable, refusal.RetryAt = true, timestamppb.New(now.Add(wait))
		refused.RetryAfter = time.Duration(pause.Seconds(wait)) * time.Second
		text = fmt.Sprintf("no broker answers, and the local bucket is empty; retry in %v", refused.RetryAfter)
	}
	refused.Err = connect.NewError(connect.CodeResourceExhausted, errors.New(text))
	return refused
}
