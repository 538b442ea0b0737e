package trace

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// LedgerQuery says which reservations of a ledger are read.
type LedgerQuery struct {
	Account  string    // "" for every account
	From, To time.Time // when they were reserved, To exclusive
}

// Ledger reads the reservations of a ledger that have ended, in the order in
// which they were reserved. It walks through each account by the ledger's
// primary key, a page at a time, each in a short read-only transaction of its own,
// and puts the accounts together; so memory is bounded, and a broker beside it
// does not wait.
type Ledger struct {
	ctx      context.Context // of the whole reading: Calls has none
	books    ledger.Reader
	query    LedgerQuery
	page     int
	walks    walks
	known    LedgerFacts
	accounts []string
}

// LedgerFacts is what a ledger said of the calls that were read so far.
type LedgerFacts struct {
	Calls       int64
	HeldUnknown int64 // ended before brokers recorded what was held: they are taken to have held what they used
	Expired     int64 // their lease ended without a Refund
	Late        int64 // their Refund came after the lease had ended
	Cut         int64 // ended more than MaxDuration after they began, and are taken to have ended then
}

// LedgerCalls is the sum of a ledger over a span, from its reports.
type LedgerCalls struct {
	Accounts []string // in order, at most quota.MaxAccounts
	Calls    int64    // about: the span is widened to whole hours
}

// Bounds on what is kept of a ledger at once: pages of all accounts together, and
// of one. A page has two closings at least.
const (
	ledgerWindow = 100_000
	ledgerPage   = 1000
)

// SumOfLedger asks a ledger's reports who made calls in a span, and how many.
// They are small beside its closings.
func SumOfLedger(ctx context.Context, books ledger.Reader, q LedgerQuery) (LedgerCalls, error) {
	calls := map[string]int64{} // the most of any meter
	query := ledger.ReportQuery{
		Account: q.Account, From: q.From, To: q.To, Grain: ledger.GrainTotal, GroupBy: []string{quota.LabelAccount}, Limit: ledger.MaxPage,
	}
	for {
		report, err := books.Report(ctx, query)
		if err != nil {
			return LedgerCalls{}, err
		}
		for _, row := range report.Rows {
			calls[row.Group[0]] = max(calls[row.Group[0]], row.Calls)
		}
		if len(calls) > quota.MaxAccounts {
			return LedgerCalls{}, fmt.Errorf("the ledger has more than %d accounts in the span; name one", quota.MaxAccounts)
		}
		if query.After = report.Next; query.After == "" {
			break
		}
	}
	sum := LedgerCalls{Accounts: slices.Sorted(maps.Keys(calls))}
	for _, n := range calls {
		sum.Calls += n
	}
	return sum, nil
}

// NewLedger makes a reader of the accounts' reservations. ctx ends the reading.
func NewLedger(ctx context.Context, books ledger.Reader, q LedgerQuery, accounts []string) *Ledger {
	page := max(2, min(ledgerPage, ledgerWindow/max(1, len(accounts))))
	return &Ledger{ctx: ctx, books: books, query: q, page: page, accounts: accounts}
}

// Facts are those of what was read so far.
func (l *Ledger) Facts() LedgerFacts { return l.known }

// Next implements Calls.
func (l *Ledger) Next() (Call, error) {
	for len(l.accounts) > 0 {
		w := &walk{account: l.accounts[0]}
		l.accounts = l.accounts[1:]
		if more, err := l.fill(w); err != nil {
			return Call{}, err
		} else if more {
			l.walks = append(l.walks, w)
		}
		if len(l.accounts) == 0 {
			heap.Init(&l.walks)
		}
	}
	if len(l.walks) == 0 {
		return Call{}, io.EOF
	}
	w := l.walks[0]
	c := w.page[0]
	w.page = w.page[1:]
	more, err := l.fill(w)
	switch {
	case err != nil:
		return Call{}, err
	case more:
		heap.Fix(&l.walks, 0)
	default:
		heap.Pop(&l.walks)
	}
	return l.call(&c)
}

// fill reads a walk's next page if it has none, and says whether there is more.
func (l *Ledger) fill(w *walk) (more bool, err error) {
	for len(w.page) == 0 {
		if w.started && w.next == "" {
			return false, nil
		}
		page, err := l.books.Closings(l.ctx, ledger.ClosingsQuery{Account: w.account, From: l.query.From, To: l.query.To, After: w.next, Limit: l.page})
		if err != nil {
			return false, fmt.Errorf("the ledger of account %s: %w", w.account, err)
		}
		w.page, w.next, w.started = page.Closings, page.Next, true
		slices.SortFunc(w.page, inOrder)
		if len(w.page) > 0 && w.page[0].Minted.Before(w.last) {
			return false, fmt.Errorf("the ledger of account %s does not have its reservations in order: %s comes after %s", w.account, reservation.ID(w.page[0].Reservation), w.last.Format(time.RFC3339Nano))
		}
		if n := len(w.page); n > 0 {
			w.last = w.page[n-1].Minted
		}
	}
	return true, nil
}

// call says what a closing tells of the call.
func (l *Ledger) call(c *ledger.Closing) (Call, error) {
	name := fmt.Sprintf("reservation %s of account %s", reservation.ID(c.Reservation), c.Account)
	closed, err := reservation.ReadClosing(c)
	if err != nil {
		return Call{}, &LineError{File: name, Problem: err.Error()}
	}
	call := Call{
		File: name, At: c.Minted, Ends: c.ClosedAt, Account: c.Account, Labels: c.Labels,
		Amounts: closed.Used, Held: closed.Held, HeldAll: closed.Held != nil,
	}
	for _, amounts := range []quota.Amounts{call.Amounts, call.Held} {
		delete(amounts, quota.MeterInFlight) // every call takes its slot
	}
	if call.Ends.Before(call.At) { // by the clock of another server
		call.Ends = call.At
	}
	l.known.Calls++
	if call.Ends.Sub(call.At) > MaxDuration {
		call.Ends = call.At.Add(MaxDuration)
		l.known.Cut++
	}
	if closed.Held == nil {
		l.known.HeldUnknown++
	}
	if c.Rank == ledger.RankExpired {
		l.known.Expired++
	}
	if c.Late {
		l.known.Late++
	}
	return call, nil
}

// walk is the way through one account.
type walk struct {
	account string
	page    []ledger.Closing // in order; what is left of it
	next    string           // of the page after
	started bool
	last    time.Time // of the page
}

func inOrder(a, b ledger.Closing) int {
	return cmp.Or(a.Minted.Compare(b.Minted), slices.Compare(a.Reservation[:], b.Reservation[:]), cmp.Compare(a.Account, b.Account))
}

// walks has the one whose next reservation is the first on top.
type walks []*walk

func (w walks) Len() int           { return len(w) }
func (w walks) Less(i, j int) bool { return inOrder(w[i].page[0], w[j].page[0]) < 0 }
func (w walks) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *walks) Push(x any)        { *w = append(*w, x.(*walk)) }
func (w *walks) Pop() any {
	last := len(*w) - 1
	popped := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return popped
}
