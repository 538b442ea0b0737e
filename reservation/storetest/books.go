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
//   - GCRA and windows: what docs/algorithms.md says that they count.
//
// Each keeps its columns in a file of its own; a new kind of limit is a new
// column. Nothing is granted that does not fit by the books, and nothing refused
// that does.
type books struct {
	clock    *Clock
	loose    bool  // the clock steps back: of limits with a rate only spans are checked
	walked   int64 // microseconds that the clock went forward
	accounts []string
	seen     []counterName
	columns  map[counterName]column
	quotas   map[counterName]map[string]*quotaColumn // by period
	records  []*bookRecord
}

// column is what the books know of one counter with a rate.
type column interface {
	// remaining is what a call could still take, as the limit is now.
	remaining(h reservation.Hold, now int64) quota.Amount
	// take admits a hold and returns the instant under which it counts. walked is
	// how far the clock has gone forward.
	take(h reservation.Hold, now, walked int64) (at int64, err error)
	// correct brings what a hold has taken from one amount to another.
	correct(h reservation.Hold, at int64, from, to quota.Amount, now, walked int64)
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
	expires int64
	past    bool // its lease was over at some instant, though the clock may have stepped back
	state   reservation.State
	holds   []bookHold
	waits   bool // a quota's amounts are held or unposted
}

type bookHold struct {
	reservation.Hold
	taken quota.Amount // what its counter carries of it
	at    int64
}

func newBooks(clock *Clock) *books {
	return &books{clock: clock, columns: map[counterName]column{}, quotas: map[counterName]map[string]*quotaColumn{}}
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

// correct brings what a hold has taken to an amount.
func (b *books) correct(r *bookRecord, i int, to quota.Amount) {
	h := &r.holds[i]
	from := h.taken
	h.taken = to
	if c := b.column(r.account, h.Hold); c != nil && from != to {
		c.correct(h.Hold, h.at, from, to, b.now(), b.walked)
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

// remaining is what a call could still take; known is false of a quota that was not
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
	return b.column(account, h).remaining(h, b.now()), true
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
		return fmt.Sprintf(" (%+v)", c)
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
	switch answer.Verdict {
	case reservation.Refused:
		h := q.Holds[answer.Refusal.Hold]
		left, known := b.remaining(q.Account, h)
		if h.Kind == quota.KindSlots {
			_, past := b.slotsHeld(nameOf(q.Account, h.Counter)) // which may still count
			left -= past
		}
		if (h.Amount <= left || !known || h.Amount == 0) && !(b.loose && h.Kind.HasRate()) {
			return fmt.Errorf("books: %d of %s were refused, and %d remain%s", h.Amount, h.Limit, left, b.explain(q.Account, h))
		}
		return b.check(q.Account, q.Holds, answer.Levels)
	case reservation.Granted:
	default:
		return nil
	}
	for _, h := range q.Holds {
		left, known := b.remaining(q.Account, h)
		if h.Amount > 0 && (h.Amount > left || !known) && !(q.Settle != nil && h.Kind == quota.KindSlots) && !(b.loose && h.Kind.HasRate()) {
			return fmt.Errorf("books: %d of %s were granted, and %d remain%s", h.Amount, h.Limit, left, b.explain(q.Account, h))
		}
	}
	if q.DryRun {
		return nil
	}
	r := &bookRecord{
		account: q.Account, id: q.ID, key: q.Key, retain: q.Retention.Microseconds(), expires: b.now() + q.Lease.Microseconds(),
		state: reservation.StateHeld, waits: true,
	}
	if q.Settle != nil {
		r.state, r.expires = reservation.StateSettled, b.now()
	}
	for _, h := range q.Holds {
		taken := bookHold{Hold: h, taken: h.Amount, at: b.now()}
		if c := b.column(q.Account, h); c != nil {
			var err error
			// A window that has let go what was over once may count too little when the
			// clock steps back.
			if taken.at, err = c.take(h, b.now(), b.walked); err != nil && !(b.loose && h.Kind.IsWindow()) {
				return fmt.Errorf("books: %s: %w", h.Limit, err)
			}
		}
		r.holds = append(r.holds, taken)
	}
	b.records = append(b.records, r)
	if ends := answer.ExpiresAt.UnixMicro(); ends != r.expires && q.Settle == nil {
		return fmt.Errorf("books: the lease ends %d us after what was asked", ends-r.expires)
	}
	return b.check(q.Account, q.Holds, answer.Levels)
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
func (b *books) orphan(account string, id reservation.ID, ends int64, retain int64, holds []reservation.Hold) *bookRecord {
	r := &bookRecord{account: account, id: id, expires: ends, retain: retain}
	for _, h := range holds {
		r.holds = append(r.holds, bookHold{Hold: h, at: id.Minted().UnixMicro()})
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
		r = b.orphan(q.Account, q.ID, q.ID.Minted().Add(q.Lease).UnixMicro(), q.Retention.Microseconds(), holds)
	}
	b.close(r, q.Actual)
	r.waits = true
	return b.check(q.Account, holds, answer.Levels)
}

// close gives a reservation what it really used.
func (b *books) close(r *bookRecord, actual []quota.Amount) {
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
		if ends := b.now() + q.Lease.Microseconds(); ends > r.expires {
			r.expires, r.past = ends, false
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
		r = b.orphan(q.Account, q.ID, q.ID.Minted().Add(q.Lease).UnixMicro(), q.Retention.Microseconds(), q.Holds)
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
		if most := min(h.Amount, c.room(b.now())); given != most && !b.loose {
			return fmt.Errorf("books: %s took %d back, by the books %d", h.Limit, given, most)
		}
		if given > 0 {
			c.correct(h, 0, given, 0, b.now(), b.walked)
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
