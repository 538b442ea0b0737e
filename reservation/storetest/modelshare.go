package storetest

import (
	"math"
	"slices"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// modelShare is until when an account has had its share of a fair limit.
type modelShare struct {
	name    counterName
	kind    quota.Kind
	account string
	until   int64
}

// shareOf is until when an account has had its share; 0 when it is not ahead of now.
func (m *Model) shareOf(account string, h reservation.Hold) int64 {
	for _, s := range m.sharers(h) {
		if s.account == account {
			return s.until
		}
	}
	return 0
}

// sharers are the accounts that use a fair limit.
func (m *Model) sharers(h reservation.Hold) []modelShare {
	var out []modelShare
	for _, s := range m.shared {
		if s.name == nameOf("", h.Counter) && s.kind == h.Kind && s.until > m.now() {
			out = append(out, s)
		}
	}
	return out
}

func (m *Model) putShare(account string, h reservation.Hold, until int64) {
	name := nameOf("", h.Counter)
	m.shared = slices.DeleteFunc(slices.Clone(m.shared), func(s modelShare) bool {
		return s.name == name && s.kind == h.Kind && s.account == account
	})
	m.shared = append(m.shared, modelShare{name, h.Kind, account, until})
}

// isAhead says that the account must leave the reserve of a hold's limit.
func (m *Model) isAhead(account string, h reservation.Hold) bool {
	return h.Fair && quota.FairShare(h.Bucket).IsAhead(m.shareOf(account, h), m.now())
}

// reserve is what the account must leave beside the hold's Keep.
func (m *Model) reserve(account string, h reservation.Hold) quota.Amount {
	if m.isAhead(account, h) {
		return quota.FairShare(h.Bucket).Reserve()
	}
	return 0
}

// fairly is the hold with what it must leave in all.
func (m *Model) fairly(account string, h reservation.Hold) reservation.Hold {
	h.Keep += m.reserve(account, h)
	return h
}

// firstFor is startFor for a hold of the account, which gets no start ahead while it
// is ahead of its share.
func (m *Model) firstFor(account string, h reservation.Hold) int64 {
	first := m.startFor(account, m.fairly(account, h))
	if m.isAhead(account, h) && first > m.now() {
		return math.MaxInt64
	}
	return first
}

// retryAhead is when to ask again, of whom is ahead of its share; retry is when
// others would.
func (m *Model) retryAhead(account string, h reservation.Hold, retry int64) int64 {
	if !m.isAhead(account, h) {
		return retry
	}
	return min(m.startFor(account, m.fairly(account, h)), max(retry, m.shareOf(account, h)-quota.FairShare(h.Bucket).Slack()))
}

// takeShare charges an account's share at a start, and returns how many use the limit.
func (m *Model) takeShare(account string, h reservation.Hold, start int64) int {
	if !h.Fair {
		return 0
	}
	n, until := len(m.sharers(h)), m.shareOf(account, h)
	if until == 0 {
		n++
	}
	if h.Amount > 0 {
		m.putShare(account, h, quota.FairShare(h.Bucket).Take(until, start, h.Amount, n))
	}
	return n
}

// correctShare follows a correction of what a hold took.
func (m *Model) correctShare(account string, h *modelHold, difference quota.Amount) {
	if h.sharing > 0 && difference != 0 {
		m.putShare(account, h.Hold, quota.FairShare(h.Bucket).Correct(m.shareOf(account, h.Hold), m.now(), difference, h.sharing))
	}
}

// showShare adds the share to a level.
func (m *Model) showShare(l *reservation.Level, account string, h reservation.Hold) {
	if !h.Fair {
		return
	}
	l.Sharing = len(m.sharers(h))
	if m.isAhead(account, h) {
		l.ShareAt = instant(m.shareOf(account, h) - quota.FairShare(h.Bucket).Slack())
	}
}

// unshared are the holds of an answer that shows no shares.
func unshared(holds []reservation.Hold) []reservation.Hold {
	holds = slices.Clone(holds)
	for i := range holds {
		holds[i].Fair = false
	}
	return holds
}
