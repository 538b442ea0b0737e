package replay

import (
	"fmt"
	"sync"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota"
)

// addTokens adds two amounts of 0 and above.
func addTokens(a, b int64) (int64, error) {
	if a < 0 || b < 0 || a > int64(quota.MaxAmount)-b {
		return 0, fmt.Errorf("%d and %d do not add up to an amount from 0 to %d", a, b, quota.MaxAmount)
	}
	return a + b, nil
}

// Count is a number of requests, and of their tokens as the trace has them:
// read and generated.
type Count struct {
	Requests int64 `json:"requests"`
	Tokens   int64 `json:"tokens"`
}

// Totals are what the driver itself knows of a replay.
type Totals struct {
	Offered    Count `json:"offered"`    // sent, or tried
	Admitted   Count `json:"admitted"`   // granted: refunded or crashed
	Refunded   Count `json:"refunded"`   // of those, closed by a Refund
	Crashed    Count `json:"crashed"`    // of those, left to expire by a killed worker
	Refused    Count `json:"refused"`    // by a limit
	Unanswered Count `json:"unanswered"` // the broker did not answer in time, however often it was asked

	HeldTokens      int64 `json:"heldTokens"`      // reserved by all that were admitted
	GivenBackTokens int64 `json:"givenBackTokens"` // held and not used, of those that were refunded
	OverrunTokens   int64 `json:"overrunTokens"`   // used and not held, of those that were refunded
	ExpiredTokens   int64 `json:"expiredTokens"`   // held by those that crashed

	Late    int64 `json:"late"`    // Refunds after the lease's end
	Renewed int64 `json:"renewed"` // Renews of long calls
	Retries int64 `json:"retries"` // calls repeated because the broker did not answer

	RefusedBy map[string]int64 `json:"refusedBy"` // requests by "limit REASON"
}

// tally adds up Totals while a replay runs. It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	totals Totals
	err    error // the first sum that overflowed
}

func newTally() *tally { return &tally{totals: Totals{RefusedBy: map[string]int64{}}} }

func (t *tally) sum(to *int64, amount int64) {
	sum, err := addTokens(*to, amount)
	if err != nil {
		if t.err == nil {
			t.err = err
		}
		return
	}
	*to = sum
}

func (t *tally) count(to *Count, r trace.Request) {
	to.Requests++
	t.sum(&to.Tokens, r.Tokens())
}

func (t *tally) update(change func(*Totals)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.totals)
}

func (t *tally) offered(r trace.Request) {
	t.update(func(s *Totals) { t.count(&s.Offered, r) })
}

func (t *tally) refused(r trace.Request, by string) {
	t.update(func(s *Totals) { t.count(&s.Refused, r); s.RefusedBy[by]++ })
}

func (t *tally) unanswered(r trace.Request) {
	t.update(func(s *Totals) { t.count(&s.Unanswered, r) })
}

// refunded counts a request that was granted and refunded; given back and
// overrun are what the broker said.
func (t *tally) refunded(r trace.Request, held, givenBack, overrun int64) {
	t.update(func(s *Totals) {
		t.count(&s.Admitted, r)
		t.count(&s.Refunded, r)
		t.sum(&s.HeldTokens, held)
		t.sum(&s.GivenBackTokens, givenBack)
		t.sum(&s.OverrunTokens, overrun)
	})
}

// crashed counts a request that was granted and never refunded.
func (t *tally) crashed(r trace.Request, held int64) {
	t.update(func(s *Totals) {
		t.count(&s.Admitted, r)
		t.count(&s.Crashed, r)
		t.sum(&s.HeldTokens, held)
		t.sum(&s.ExpiredTokens, held)
	})
}

// result returns the totals, and an error if a sum overflowed.
func (t *tally) result() (Totals, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	copied := t.totals
	copied.RefusedBy = make(map[string]int64, len(t.totals.RefusedBy))
	for by, n := range t.totals.RefusedBy {
		copied.RefusedBy[by] = n
	}
	return copied, t.err
}
