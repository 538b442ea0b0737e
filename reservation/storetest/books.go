package storetest

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"slices"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// books are an accountant's: they see what is asked of an engine and what it
// answers, and the clock. From that alone they know what each counter must show,
// by the definition of its limit:
//
//   - quotas: remaining + held + unposted + used is the limit;
//   - slots: free + held is the limit, and held are the open reservations of one;
//   - buckets: the level is initial + refilled + returned - taken - spilled, in
//     exact fractions;
//   - GCRA, queues and windows: what docs/algorithms.md says that they count;
//   - envelopes: what one was granted is what it has left and what those in it have.
//
// Each keeps its columns in a file of its own; a new kind of limit is a new
// column. Nothing is granted that does not fit by the books, and nothing refused
// that does. A start is the first instant at which all fits, and never moves.
type books struct {
	clock    *Clock
	loose    bool  // the clock steps back: of limits with a rate only spans are checked
	walked   int64 // microseconds that the clock went forward
	accounts []string
	seen     []counterName
	columns  map[counterName]column
	starts   map[counterName]int64                   // the last start that a counter with a rate gave
	quotas   map[counterName]map[string]*quotaColumn // by period
	records  []*bookRecord
}

// column is what the books know of one counter with a rate. at is the instant as of
// which it counts: now, or the last start that it gave, while that is ahead. walked is
// how far the clock has gone forward by the instant that is taken or corrected at.
type column interface {
	// remaining is what a call could take at an instant that is not before at, if
	// nothing else happens until then.
	remaining(h reservation.Hold, at, then int64) quota.Amount
	// take admits a hold that starts then, and returns the instant under which it
	// counts.
	take(h reservation.Hold, at, start, walked int64) (counted int64, err error)
	// correct brings what a hold has taken from one amount to another.
	correct(h reservation.Hold, counted int64, from, to quota.Amount, at, walked int64)
}

// quotaColumn is what the ledger is known to hold.
type quotaColumn struct {
	seeded  bool
	used    quota.Amount
	version int64
}

// bookRecord is a reservation.
type bookRecord struct {
	account string
	id      reservation.ID
	key     string
	retain  int64
	start   int64 // that it was given, if that was later than the Reserve
	expires int64
	past    bool // its lease was over at some instant, though the clock may have stepped back
	state   reservation.State
	holds   []bookHold
	waits   bool // a quota's amounts are held or unposted

	parent *bookRecord // its envelope
	tree   bool        // it has, or had, a parent or children
}

type bookHold struct {
	reservation.Hold
	taken  quota.Amount // what its counter carries of it, without what it handed down
	at     int64        // the instant under which it counts
	funded bool         // taken from the parent
}

func newBooks(clock *Clock) *books {
	return &books{clock: clock, columns: map[counterName]column{}, starts: map[counterName]int64{}, quotas: map[counterName]map[string]*quotaColumn{}}
}

func (b *books) now() int64 { return b.clock.Now().UnixMicro() }

// pass is to be called after each step of the clock.
func (b *books) pass(forward int64) {
	b.walked += max(forward, 0)
	for _, r := range b.records {
		r.past = r.past || r.expires <= b.now()
	}
}

// touch remembers which counters there are.
func (b *books) touch(account string, holds []reservation.Hold) {
	if !slices.Contains(b.accounts, account) {
		b.accounts = append(b.accounts, account)
	}
	for _, h := range holds {
		if name := nameOf(account, h.Counter); !slices.Contains(b.seen, name) {
			b.seen = append(b.seen, name)
		}
	}
}

func (b *books) find(account string, id reservation.ID) *bookRecord {
	for _, r := range b.records {
		if r.account == account && r.id == id {
			return r
		}
	}
	return nil
}

// column returns the column of a hold's counter, nil of slots and quotas.
func (b *books) column(account string, h reservation.Hold) column {
	name := nameOf(account, h.Counter)
	if c := b.columns[name]; c != nil {
		return c
	}
	var c column
	switch h.Kind {
	case quota.KindBucket:
		c = &bucketColumn{}
	case quota.KindGCRA:
		c = &gcraColumn{}
	case quota.KindLeakyQueue:
		c = &queueColumn{}
	case quota.KindFixedWindow:
		c = &fixedColumn{}
	case quota.KindSlidingCounter:
		c = &slidingColumn{}
	case quota.KindSlidingLog:
		c = &logColumn{}
	default:
		return nil
	}
	b.columns[name] = c
	return c
}

func (b *books) quota(account string, c reservation.Counter, period quota.Period) *quotaColumn {
	name := nameOf(account, c)
	if b.quotas[name] == nil {
		b.quotas[name] = map[string]*quotaColumn{}
	}
	if b.quotas[name][period.Key] == nil {
		b.quotas[name][period.Key] = &quotaColumn{}
	}
	return b.quotas[name][period.Key]
}

// at is the instant as of which a counter counts. A queue gives starts by when it is
// empty alone.
func (b *books) at(account string, h reservation.Hold) int64 {
	return max(b.now(), b.starts[nameOf(account, h.Counter)])
}

// passStart forgets a start that has passed: where the clock steps back it is not ahead
// again.
func (b *books) passStart(account string, h reservation.Hold) {
	if name := nameOf(account, h.Counter); b.starts[name] <= b.now() {
		delete(b.starts, name)
	}
}

// startingAt are the holds of a counter by those who were given a start.
func (b *books) startingAt(account string, h reservation.Hold, start int64) (holds []bookHold) {
	for _, r := range b.records {
		for _, other := range r.holds {
			if r.start == start && nameOf(r.account, other.Counter) == nameOf(account, h.Counter) {
				holds = append(holds, other)
			}
		}
	}
	return holds
}

// book tells a column who starts at its last start, while that is ahead.
func (b *books) book(c column, account string, h reservation.Hold) {
	booking, ok := c.(interface{ book(holds []bookHold) })
	if !ok {
		return
	}
	var holds []bookHold
	if start := b.starts[nameOf(account, h.Counter)]; start > b.now() {
		holds = b.startingAt(account, h, start)
	}
	booking.book(holds)
}

// atOnce checks that no more than a burst of a bucket or GCRA starts at an instant that
// is ahead: what those
// who were given it hold, without what they used beyond.
func (b *books) atOnce(account string, h reservation.Hold, start int64) error {
	var sum, costs int64
	for _, other := range b.startingAt(account, h, start) {
		if n := min(other.taken, other.Amount); other.Bucket == h.Bucket {
			sum, costs = sum+int64(n), costs+cost(h.Bucket, n)
		}
	}
	if h.Kind == quota.KindBucket && sum > int64(h.Bucket.Capacity) || costs > cost(h.Bucket, h.Bucket.Capacity) {
		return fmt.Errorf("%d start at once in %d us, at most %d may", sum, start-b.now(), h.Bucket.Capacity)
	}
	return nil
}

// walkedTo is how far the clock will have gone at an instant that is ahead.
func (b *books) walkedTo(at int64) int64 { return b.walked + at - b.now() }

// correct brings what a hold has taken to an amount. Its envelope, while that is open,
// pays as far as it can, or gets back what it paid.
func (b *books) correct(r *bookRecord, i int, to quota.Amount) {
	h := &r.holds[i]
	from, by := h.taken, to-h.taken
	if h.taken = to; by == 0 {
		return
	}
	by -= b.paid(r, i, by)
	c := b.column(r.account, h.Hold)
	if c == nil {
		return
	}
	b.passStart(r.account, h.Hold)
	at := b.at(r.account, h.Hold)
	b.book(c, r.account, h.Hold)
	if parts, ok := c.(interface {
		shift(h reservation.Hold, by quota.Amount, at, walked int64)
	}); ok && r.tree {
		parts.shift(h.Hold, by, at, b.walkedTo(at))
		return
	}
	if r.tree {
		from, to = max(-by, 0), max(by, 0)
	}
	if from != to {
		c.correct(h.Hold, h.at, from, to, at, b.walkedTo(at))
	}
}

// reclaim ends the leases that have ended: a call on an account begins with it.
func (b *books) reclaim(account string, all bool) int {
	var ended []*bookRecord
	for _, r := range b.records {
		if (all || r.account == account) && r.state == reservation.StateHeld && r.expires <= b.now() {
			ended = append(ended, r)
		}
	}
	slices.SortFunc(ended, func(x, y *bookRecord) int {
		return cmp.Or(cmp.Compare(x.expires, y.expires), bytes.Compare(x.id[:], y.id[:]))
	})
	for _, r := range ended {
		r.state = reservation.StateExpired
		for i, h := range r.holds {
			// A quota's hold stays in full until the ledger has the closing.
			if h.Kind.HasRate() && h.OnExpiry != quota.ExpiryCharge {
				b.correct(r, i, 0)
			}
		}
	}
	return len(ended)
}

// slotsHeld counts the open reservations that hold a slot of a counter. past are
// those of them that were over once, before the clock stepped back: a slot that was
// free may stay free.
func (b *books) slotsHeld(name counterName) (held, past quota.Amount) {
	for _, r := range b.records {
		for _, h := range r.holds {
			if h.Kind == quota.KindSlots && nameOf(r.account, h.Counter) == name && r.state == reservation.StateHeld && r.expires > b.now() {
				if held += h.taken; r.past {
					past += h.taken
				}
			}
		}
	}
	return held, past
}

// quotaShares adds up what a quota's counter carries and the ledger does not.
func (b *books) quotaShares(name counterName, period string) (held, unposted quota.Amount) {
	for _, r := range b.records {
		for _, h := range r.holds {
			if h.Kind != quota.KindQuota || nameOf(r.account, h.Counter) != name || h.Period.Key != period || !r.waits {
				continue
			}
			if r.state == reservation.StateHeld {
				held += h.taken
			} else {
				unposted += h.taken
			}
		}
	}
	return held, unposted
}

// fits says whether a hold fits, of a limit with a rate at a start that is not before
// now.
func (b *books) fits(account string, h reservation.Hold, start int64) bool {
	want := h.Amount + h.Keep
	if h.Amount == 0 {
		return true
	}
	switch c := b.column(account, h).(type) {
	case nil:
		left, known := b.remaining(account, h)
		return known && want <= left
	case *queueColumn:
		return start >= max(b.now(), c.empty) && c.remaining(h, b.now(), b.now()) >= want
	default:
		at := b.at(account, h)
		return start >= at && c.remaining(h, at, start) >= want
	}
}

// latest is the latest instant at which a reservation may start.
func (b *books) latest(q reservation.ReserveRequest) int64 {
	until := b.now() + q.MaxWait.Microseconds()
	for _, h := range q.Holds {
		if c, queue := b.column(q.Account, h).(*queueColumn); queue && q.MaxWait == 0 && q.Waits() && !h.Shadow && h.Amount > 0 && b.fits(q.Account, h, c.empty) {
			until = max(until, c.empty)
		}
	}
	return until
}

// remaining is what a call could still take now; known is false of a quota that was not
// seeded.
func (b *books) remaining(account string, h reservation.Hold) (left quota.Amount, known bool) {
	switch h.Kind {
	case quota.KindSlots:
		held, past := b.slotsHeld(nameOf(account, h.Counter))
		return h.Max - held + past, true
	case quota.KindQuota:
		q := b.quota(account, h.Counter, h.Period)
		held, unposted := b.quotaShares(nameOf(account, h.Counter), h.Period.Key)
		return h.Max - q.used - held - unposted, q.seeded
	}
	at := b.at(account, h)
	if left = b.column(account, h).remaining(h, at, at); at > b.now() {
		left = min(left, 0) // nobody is let in before a start that was given
	}
	return left, true
}

// check compares levels with the books.
func (b *books) check(account string, holds []reservation.Hold, levels []reservation.Level) error {
	if len(levels) != len(holds) {
		return fmt.Errorf("%d levels of %d holds", len(levels), len(holds))
	}
	for i, h := range holds {
		l := levels[i]
		left, known := b.remaining(account, h)
		var held, unposted quota.Amount
		switch h.Kind {
		case quota.KindSlots:
			var past quota.Amount
			if held, past = b.slotsHeld(nameOf(account, h.Counter)); l.Held < held && l.Held >= held-past {
				held = l.Held
			}
			left = h.Max - held
			if l.Remaining+l.Held != h.Max {
				return fmt.Errorf("books: %s: %d free and %d held are not %d", h.Limit, l.Remaining, l.Held, h.Max)
			}
		case quota.KindQuota:
			held, unposted = b.quotaShares(nameOf(account, h.Counter), h.Period.Key)
			if l.Seeded && l.Remaining+l.Held+l.Unposted+l.Used != h.Max {
				return fmt.Errorf("books: %s: %d remaining + %d held + %d unposted + %d used are not %d", h.Limit, l.Remaining, l.Held, l.Unposted, l.Used, h.Max)
			}
		}
		if l.Held != held || l.Unposted != unposted {
			return fmt.Errorf("books: %s: held %d and unposted %d, by the books %d and %d", h.Limit, l.Held, l.Unposted, held, unposted)
		}
		if known && l.Seeded && l.Remaining != left && !(b.loose && h.Kind.HasRate()) {
			return fmt.Errorf("books: %s: %d remain, by the books %d%s", h.Limit, l.Remaining, left, b.explain(account, h))
		}
	}
	return nil
}

// explain shows a column that differs.
func (b *books) explain(account string, h reservation.Hold) string {
	if c := b.column(account, h); c != nil {
		return fmt.Sprintf(" (%s; it counts in %d us)", c, b.at(account, h)-b.now())
	}
	return ""
}

// keyless says that a request's key belongs to a reservation that an engine may
// have forgotten.
func (b *books) keyless(q reservation.ReserveRequest) bool {
	for _, r := range b.records {
		if r.account == q.Account && r.key == q.Key && b.now() >= r.expires+r.retain {
			return true
		}
	}
	return false
}

func (b *books) reserved(q reservation.ReserveRequest, answer reservation.ReserveAnswer) error {
	if ended := b.reclaim(q.Account, false); ended != answer.Reclaimed {
		return fmt.Errorf("books: %d leases were found ended, by the books %d", answer.Reclaimed, ended)
	}
	b.touch(q.Account, q.Holds)
	parent := b.find(q.Account, q.Parent)
	switch answer.Verdict {
	case reservation.ParentEnded:
		if parent.open(b.now()) && parent.start <= b.now() && !b.loose {
			return fmt.Errorf("books: the parent is open")
		}
		return nil
	case reservation.Replayed:
		if r := b.byKey(q); r != nil && answer.Record.State == reservation.StateHeld {
			return b.sameStart(r, answer.Record)
		}
		return nil
	case reservation.Refused:
		if err := b.refused(q, parent, answer.Refusal); err != nil {
			return err
		}
		return b.check(q.Account, q.Holds, answer.Levels)
	case reservation.Granted:
		if q.Parent != (reservation.ID{}) && !parent.open(b.now()) && !b.loose {
			return fmt.Errorf("books: granted in an envelope that is not open")
		}
		return b.granted(q, parent, answer)
	}
	return nil
}

// refused checks that the hold that refused does not fit, and first does when to ask
// again.
func (b *books) refused(q reservation.ReserveRequest, parent *bookRecord, refusal reservation.Refusal) error {
	h := q.Holds[refusal.Hold]
	if own := b.payer(q, parent, refusal.Hold); own != nil {
		if h.Kind == quota.KindSlots || h.Amount <= own.taken {
			return fmt.Errorf("books: %d of %s were refused, and its envelope has %d left", h.Amount, h.Limit, own.taken)
		}
		return nil
	}
	if b.loose && h.Kind.HasRate() {
		return nil
	}
	left, _ := b.remaining(q.Account, h)
	fits := b.fits(q.Account, h, b.latest(q))
	if h.Kind == quota.KindSlots {
		_, past := b.slotsHeld(nameOf(q.Account, h.Counter)) // which may still count
		fits = h.Amount+h.Keep <= left-past
	}
	switch {
	case h.Shadow:
		return fmt.Errorf("books: %s refused in shadow", h.Limit)
	case fits:
		return fmt.Errorf("books: %d of %s were refused with %d kept, and %d remain%s", h.Amount, h.Limit, h.Keep, left, b.explain(q.Account, h))
	case (refusal.Reason == reservation.ExceedsCapacity) != (h.Amount+h.Keep > h.Capacity()):
		return fmt.Errorf("books: %d and %d kept of %s, which can hold %d: wrong reason", h.Amount, h.Keep, h.Limit, h.Capacity())
	case !h.Kind.HasRate() || refusal.Reason == reservation.ExceedsCapacity:
		return nil
	}
	retry := refusal.RetryAt.UnixMicro()
	if retry >= farMicros {
		return nil
	}
	if !b.wouldFit(q.Account, h, retry) || b.wouldFit(q.Account, h, retry-1) {
		return fmt.Errorf("books: %s does not fit first in %d us%s", h.Limit, retry-b.now(), b.explain(q.Account, h))
	}
	return nil
}

// wouldFit says whether a hold that is asked for at an instant fits, if nothing
// happens until then: what a queue has no room for now may find room later.
func (b *books) wouldFit(account string, h reservation.Hold, then int64) bool {
	c, queue := b.column(account, h).(*queueColumn)
	if !queue {
		return b.fits(account, h, then)
	}
	if want := h.Amount + h.Keep; c.remaining(h, b.now(), b.now()) < want {
		return then >= b.now() && c.remaining(h, b.now(), then) >= want
	}
	return b.fits(account, h, then)
}

// granted checks that all holds fit at the start and not before, and takes them.
func (b *books) granted(q reservation.ReserveRequest, parent *bookRecord, answer reservation.ReserveAnswer) error {
	now, start, latest := b.now(), answer.StartAt.UnixMicro(), b.latest(q)
	if start < now || start > max(latest, now) && !b.loose {
		return fmt.Errorf("books: a start in %d us, where at most %d may be", start-now, latest-now)
	}
	sooner := start > now
	missed := make([]bool, len(q.Holds))
	for i, h := range q.Holds {
		own := b.payer(q, parent, i)
		switch {
		case own != nil:
			if h.Kind != quota.KindSlots && h.Amount > own.taken {
				return fmt.Errorf("books: %d of %s were granted, and its envelope has %d left", h.Amount, h.Limit, own.taken)
			}
		case q.Settle != nil && h.Kind == quota.KindSlots, b.loose && h.Kind.HasRate():
			missed[i] = i < len(answer.Decided.Missed) && answer.Decided.Missed[i] && b.loose
		case h.Shadow && h.Kind == quota.KindLeakyQueue:
			missed[i] = !b.fits(q.Account, h, q.QueueUntil(now)) // it delays nobody, and counts what it would delay
		case h.Shadow:
			missed[i] = !b.fits(q.Account, h, start)
		case !b.fits(q.Account, h, start):
			left, _ := b.remaining(q.Account, h)
			return fmt.Errorf("books: %d of %s were granted with %d kept, in %d us, and %d remain now%s", h.Amount, h.Limit, h.Keep, start-now, left, b.explain(q.Account, h))
		case h.Kind.HasRate() && !b.fits(q.Account, h, start-1):
			sooner = false
		}
		if got := i < len(answer.Decided.Missed) && answer.Decided.Missed[i]; got != missed[i] {
			if h.Kind == quota.KindSlots && b.loose { // one that was over once may count again
				missed[i] = got
				continue
			}
			return fmt.Errorf("books: %s in shadow missed: %t, by the books %t%s", h.Limit, got, missed[i], b.explain(q.Account, h))
		}
	}
	if sooner && !b.loose {
		return fmt.Errorf("books: all fits before %d us", start-now)
	}
	if q.DryRun {
		return nil
	}
	r := &bookRecord{
		account: q.Account, id: q.ID, key: q.Key, retain: q.Retention.Microseconds(), expires: start + q.Lease.Microseconds(),
		state: reservation.StateHeld, waits: true,
	}
	if start > now {
		r.start = start
	}
	if q.Settle != nil {
		r.state, r.expires = reservation.StateSettled, now
	}
	if parent != nil {
		r.join(parent)
	}
	for i, h := range q.Holds {
		if missed[i] {
			h.Amount = 0
		}
		taken := bookHold{Hold: h, taken: h.Amount, at: start}
		if own := b.payer(q, parent, i); own != nil {
			own.hand(&taken)
		} else if c := b.column(q.Account, h); c != nil {
			var err error
			// A window that has let go what was over once may count too little when the
			// clock steps back.
			if taken.at, err = c.take(h, b.at(q.Account, h), start, b.walkedTo(start)); err != nil && !(b.loose && (h.Kind.IsWindow() || h.Kind == quota.KindLeakyQueue)) {
				return fmt.Errorf("books: %s: %w", h.Limit, err)
			}
			if h.Amount > 0 && h.Kind != quota.KindLeakyQueue {
				b.starts[nameOf(q.Account, h.Counter)] = max(start, b.starts[nameOf(q.Account, h.Counter)])
				b.passStart(q.Account, h)
			}
		}
		r.holds = append(r.holds, taken)
	}
	b.records = append(b.records, r)
	for _, h := range r.holds {
		if r.start != 0 && h.taken > 0 && !b.loose && (h.Kind == quota.KindBucket || h.Kind == quota.KindGCRA) {
			if err := b.atOnce(r.account, h.Hold, start); err != nil {
				return fmt.Errorf("books: %s: %w", h.Limit, err)
			}
		}
	}
	if ends := answer.ExpiresAt.UnixMicro(); ends != r.expires && q.Settle == nil {
		return fmt.Errorf("books: the lease ends %d us after what was asked", ends-r.expires)
	}
	return b.check(q.Account, q.Holds, answer.Levels)
}

// byKey is the reservation that answers for a key.
func (b *books) byKey(q reservation.ReserveRequest) *bookRecord {
	for _, r := range b.records {
		if r.account == q.Account && r.key == q.Key && b.now() < r.expires+r.retain {
			return r
		}
	}
	return nil
}

// sameStart checks that an open reservation has the start that it was given, and the
// end of its lease.
func (b *books) sameStart(r *bookRecord, shown reservation.Record) error {
	start := int64(0)
	if !shown.StartAt.IsZero() {
		start = shown.StartAt.UnixMicro()
	}
	if start != r.start || shown.ExpiresAt.UnixMicro() != r.expires {
		return fmt.Errorf("books: it was given the start %d and the end %d, and now has %d and %d", r.start, r.expires, start, shown.ExpiresAt.UnixMicro())
	}
	return nil
}

func (b *books) seeded(s reservation.SeedRequest, accepted bool) error {
	b.reclaim(s.Account, false)
	if accepted {
		q := b.quota(s.Account, s.Counter, s.Period)
		q.seeded, q.used, q.version = true, s.Used, s.Version
	}
	return nil
}

// orphan is a reservation of which the engine knows nothing.
func (b *books) orphan(account string, id reservation.ID, ends int64, retain int64, holds []reservation.Hold, kin reservation.Kin) *bookRecord {
	r := &bookRecord{account: account, id: id, expires: ends, retain: retain}
	if kin.InEnvelope() {
		r.parent, r.tree = b.find(account, kin.Parent), true
	}
	for i, h := range holds {
		r.holds = append(r.holds, bookHold{Hold: h, at: id.Minted().UnixMicro(), funded: kin.Taken.Has(i)})
	}
	b.touch(account, holds)
	b.records = append(b.records, r)
	return r
}

func (b *books) refunded(q reservation.RefundRequest, holds []reservation.Hold, answer reservation.RefundAnswer) error {
	if ended := b.reclaim(q.Account, false); ended != answer.Reclaimed {
		return fmt.Errorf("books: %d leases were found ended, by the books %d", answer.Reclaimed, ended)
	}
	if answer.Verdict != reservation.RefundSettled {
		return nil
	}
	r := b.find(q.Account, q.ID)
	if r == nil {
		r = b.orphan(q.Account, q.ID, q.ID.Minted().Add(q.Lease).UnixMicro(), q.Retention.Microseconds(), holds, q.Kin)
	}
	b.close(r, q.Actual)
	r.waits = true
	return b.check(q.Account, holds, answer.Levels)
}

// close gives a reservation what it really used.
func (b *books) close(r *bookRecord, actual []quota.Amount) {
	b.endBelow(r)
	r.state = reservation.StateSettled
	for i := range r.holds {
		b.correct(r, i, actual[i])
	}
}

func (b *books) renewed(q reservation.RenewRequest, answer reservation.RenewAnswer) error {
	if ended := b.reclaim(q.Account, false); ended != answer.Reclaimed {
		return fmt.Errorf("books: %d leases were found ended, by the books %d", answer.Reclaimed, ended)
	}
	if r := b.find(q.Account, q.ID); r != nil && answer.State == reservation.StateHeld {
		ends := b.now() + q.Lease.Microseconds()
		if p := r.parent; p != nil && p.state == reservation.StateHeld {
			ends = min(ends, p.expires)
		} else if p != nil {
			ends = b.now()
		}
		if ends > r.expires {
			r.expires, r.past = ends, false
		}
		if got := answer.ExpiresAt.UnixMicro(); got != r.expires {
			return fmt.Errorf("books: a renewed lease ends %d us after what it should", got-r.expires)
		}
	}
	return nil
}

func (b *books) confirmed(q reservation.ConfirmRequest, verdict reservation.ConfirmVerdict) error {
	b.reclaim(q.Account, false)
	for _, u := range q.Usage {
		if c := b.quota(q.Account, u.Counter, u.Period); u.Version > c.version {
			c.used, c.version = u.Used, u.Version
		}
	}
	if verdict != reservation.ConfirmAdopted {
		return nil
	}
	r := b.find(q.Account, q.ID)
	if r == nil {
		r = b.orphan(q.Account, q.ID, q.ID.Minted().Add(q.Lease).UnixMicro(), q.Retention.Microseconds(), q.Holds, q.Kin)
	}
	b.close(r, q.Actual)
	r.waits = false
	return nil
}

func (b *books) gaveBack(account string, holds []reservation.Hold, answer reservation.GiveBackAnswer) error {
	b.reclaim(account, false)
	b.touch(account, holds)
	for i, h := range holds {
		given := answer.Given[i]
		c := b.column(account, h).(*bucketColumn)
		at := b.at(account, h)
		b.book(c, account, h)
		if most := min(h.Amount, c.room(at)); given != most && !b.loose {
			return fmt.Errorf("books: %s took %d back, by the books %d", h.Limit, given, most)
		}
		if given > 0 {
			b.passStart(account, h)
			c.correct(h, 0, given, 0, at, b.walkedTo(at))
		}
	}
	return b.check(account, holds, answer.Levels)
}

func (b *books) swept(answer reservation.SweepAnswer) error {
	if ended := b.reclaim("", true); ended != answer.Expired {
		return fmt.Errorf("books: a sweep found %d leases ended, by the books %d", answer.Expired, ended)
	}
	return nil
}

// ---- spans of time

// stretch is what went in and out while a limit's parameters were the same. Its
// instants are by how far the clock went forward: where it steps back, time passes
// twice.
type stretch struct{ flows []flow }

func (s *stretch) begin() { s.flows = nil }

func (s *stretch) add(walked int64, amount quota.Amount) {
	s.flows = append(s.flows, flow{walked, amount})
}

// within checks every span that ends now: what was admitted in it, net of what came
// back and of what was used beyond, is at most capacity + rate*T. extra is how many
// microseconds' refill each flow may be more.
func (s *stretch) within(capacity quota.Amount, perMicro *big.Rat, walked, extra int64) error {
	net := quota.Amount(0)
	for i := len(s.flows) - 1; i >= 0; i-- {
		f := s.flows[i]
		net += f.amount
		if net <= capacity {
			continue
		}
		allowed := new(big.Rat).Mul(perMicro, whole(walked-f.at+extra*int64(len(s.flows)-i)))
		if allowed.Add(allowed, whole(int64(capacity))).Cmp(whole(int64(net))) < 0 {
			return fmt.Errorf("in %d us %d passed, at most %s may", walked-f.at, net, allowed.FloatString(6))
		}
	}
	return nil
}
