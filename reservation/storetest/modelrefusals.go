package storetest

import (
	"errors"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// modelBan is what is remembered of a counter's refusals.
type modelBan struct {
	name    counterName
	kind    quota.Kind
	counted quota.Counted
	ends    int64 // of the last ban
}

func (m *Model) banOf(account string, h reservation.Hold) *modelBan {
	name := nameOf(account, h.Counter)
	for _, b := range m.bans {
		if b.name == name && b.kind == h.Kind {
			return b
		}
	}
	b := &modelBan{name: name, kind: h.Kind}
	m.bans = append(m.bans, b)
	return b
}

func (m *Model) cloneBans() []*modelBan {
	var out []*modelBan
	for _, b := range m.bans {
		c := *b // logs are replaced, never changed in place
		out = append(out, &c)
	}
	return out
}

// bannedUntil is when a ban ends, zero for none now.
func (m *Model) bannedUntil(account string, h reservation.Hold) time.Time {
	if h.Ban.Refusals == 0 {
		return time.Time{}
	}
	if b := m.banOf(account, h); b.ends > m.now() {
		return instant(b.ends)
	}
	return time.Time{}
}

// asksLimit says that hold i asks something of its limit, and not of a parent.
func (m *Model) asksLimit(q *reservation.ReserveRequest, i int) bool {
	h := q.Holds[i]
	return h.Amount > 0 && m.funds[i] == nil && (h.Kind != quota.KindSlots || q.Settle == nil)
}

// barred says that a ban refuses a hold.
func (m *Model) barred(q *reservation.ReserveRequest, i int) bool {
	return m.asksLimit(q, i) && !m.bannedUntil(q.Account, q.Holds[i]).IsZero()
}

// banned says that a ban refuses the request.
func (m *Model) banned(q *reservation.ReserveRequest) bool {
	for i, h := range q.Holds {
		if !h.Shadow && m.barred(q, i) {
			return true
		}
	}
	return false
}

// shownLevels are the levels with the bans.
func (m *Model) shownLevels(account string, holds []reservation.Hold) []reservation.Level {
	levels := m.levels(account, holds)
	for i, h := range holds {
		levels[i].BannedUntil = m.bannedUntil(account, h)
	}
	return levels
}

// whyNot says why hold i is refused: decided is false while an output is to be chosen.
func (m *Model) whyNot(q *reservation.ReserveRequest, i int, decided bool, until int64) (reservation.Refusal, bool) {
	refusal, fits := m.refusalBy(q.Account, i, q.Holds[i], until)
	if q.Output != nil && !decided {
		refusal, fits = m.outputRefusal(q, i)
	}
	if !m.barred(q, i) {
		return refusal, fits
	}
	ends := m.bannedUntil(q.Account, q.Holds[i])
	switch {
	case fits:
		refusal.RetryAt = ends
	case refusal.Reason == reservation.ExceedsCapacity:
		return refusal, false
	case ends.After(refusal.RetryAt):
		refusal.RetryAt = ends
	}
	refusal.Reason = reservation.Banned
	return refusal, false
}

// countRefusal leaves what a refusal leaves, and tells the refusal as it is then.
func (m *Model) countRefusal(q *reservation.ReserveRequest, answer *reservation.ReserveAnswer, until int64) {
	refusal := answer.Refusal
	if q.DryRun || m.banned(q) || refusal.Reason == reservation.ExceedsCapacity || refusal.Reason == reservation.EnvelopeExhausted {
		return
	}
	var refused []int
	var count []func()
	for i, h := range q.Holds {
		if h.Kind == quota.KindSlots && q.Settle != nil {
			continue
		}
		latest := until
		if h.Shadow && h.Kind == quota.KindLeakyQueue {
			latest = q.QueueUntil(m.now())
		}
		why, fits := m.whyNot(q, i, false, latest)
		if !h.Shadow && !fits {
			refused = append(refused, i)
		}
		if fits || why.Reason != reservation.ExceedsCapacity && why.Reason != reservation.Banned {
			count = append(count, func() { m.trace(q, i, !fits) })
		}
	}
	for _, each := range count {
		each()
	}
	answer.Refusal = reservation.Refusal{}
	for _, i := range refused {
		if why, _ := m.whyNot(q, i, false, until); answer.Refusal.Reason == 0 || stricter(why, answer.Refusal) {
			answer.Refusal = why
		}
	}
	for i, level := range m.shownLevels(q.Account, q.Holds) {
		if q.Holds[i].Kind.HasRate() {
			answer.Levels[i] = level
		}
		answer.Levels[i].BannedUntil = level.BannedUntil // a place in line may be gone meanwhile
	}
}

// countMissed does so for the shadow limit of hold i.
func (m *Model) countMissed(q *reservation.ReserveRequest, i int, refusal reservation.Refusal, start int64) reservation.Refusal {
	if q.DryRun || refusal.Reason == reservation.ExceedsCapacity || refusal.Reason == reservation.Banned {
		return refusal
	}
	m.trace(q, i, true)
	refusal, _ = m.whyNot(q, i, false, start)
	return refusal
}

// trace is what a refusal of the request leaves in the limit of hold i.
func (m *Model) trace(q *reservation.ReserveRequest, i int, refused bool) {
	h := q.Holds[i]
	if !m.asksLimit(q, i) {
		return
	}
	if h.CountRefusals {
		if q.Output != nil {
			h.Amount = amountFor(q.Output, i, h, q.Output.Least)
		}
		h.Amount = min(h.Amount, m.level(q.Account, h).Remaining-h.Keep)
		if h.Amount > 0 {
			m.takeAt(q.Account, h, m.now())
		}
	}
	if h.Ban.Refusals > 0 && refused {
		b, banned := m.banOf(q.Account, h), false
		b.ends = 0
		if b.counted, banned = h.Ban.Count(b.counted, m.now()); banned {
			b.counted, b.ends = quota.Counted{}, m.now()+h.Ban.For.Microseconds()
		}
	}
}

// ---- in histories

var someBans = rapid.SampledFrom([]quota.Ban{
	{}, {Refusals: 1, Within: time.Second, For: time.Second}, {Refusals: 2, Within: 10 * time.Second, For: 3 * time.Second},
	{Refusals: 3, Within: time.Minute, For: time.Minute}, {Refusals: 2, Within: 333_333 * time.Microsecond, For: 24 * time.Hour},
})

// changeRefusals has a limit count its refusals in another way.
func (h *historyState) changeRefusals(t *rapid.T) {
	limit := &h.limits[rapid.IntRange(0, len(h.limits)-1).Draw(t, "limit")]
	if limit.Pool != "" {
		return
	}
	limit.CountRefusals = limit.Kind.HasRate() && limit.Kind != quota.KindLeakyQueue && rapid.Bool().Draw(t, "counts")
	limit.Ban = someBans.Draw(t, "ban")
	t.Logf("limit %s %s counts refusals: %t, ban %s", limit.Limit, limit.Scope, limit.CountRefusals, limit.Ban)
}

// firstRefusals is how the limits of a history count refusals at first.
func firstRefusals(limits []reservation.Hold) {
	for i := range limits {
		h := &limits[i]
		if h.Pool != "" {
			continue
		}
		h.CountRefusals = h.Kind.HasRate() && h.Kind != quota.KindLeakyQueue && i%2 == 0
		if i%3 != 1 {
			h.Ban = quota.Ban{Refusals: 1 + i%3, Within: 10 * time.Second, For: 3 * time.Second}
		}
	}
}

// ---- in scenarios

var errBan = errors.New("a ban is written ban=REFUSALS/WITHIN/FOR, as in ban=3/10s/1m")

// parseRefusals reads count or ban=N/WITHIN/FOR of a limit. ok is false for another word.
func parseRefusals(word string, h *reservation.Hold) (ok bool, err error) {
	if word == "count" {
		h.CountRefusals = true
		return true, nil
	}
	parts, ok := strings.CutPrefix(word, "ban=")
	if !ok {
		return false, nil
	}
	words := strings.Split(parts, "/")
	if len(words) != 3 {
		return true, errBan
	}
	n, err := parseAmount(words[0])
	if err != nil {
		return true, err
	}
	h.Ban.Refusals = int(n)
	if h.Ban.Within, err = parseSpan(words[1]); err != nil {
		return true, err
	}
	h.Ban.For, err = parseSpan(words[2])
	return true, err
}

// withoutRefusals is a hold as a record keeps it.
func withoutRefusals(h reservation.Hold) reservation.Hold {
	h.CountRefusals, h.Ban = false, quota.Ban{}
	return h
}
