package memstore

import (
	"math/rand/v2"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// shareBook has the accounts that use a fair limit of a pool: see [quota.FairShare]. An
// account is here while it has had its share until an instant that is ahead, and until
// a call forgets it after that.
type shareBook struct {
	of      map[string]*share
	ordered *share // all of them, as a tree
	latest  int64  // not before any of theirs
}

// count is how many accounts use the limit at now. Some of those whose instant has passed
// are forgotten: more than one call adds, and so few that a call after many have left
// does not pay for all of them.
func (s *shareBook) count(now int64) int {
	const forgotten = 16
	n := s.ordered.after(now)
	for range min(s.ordered.len()-n, forgotten) {
		past := s.ordered.first()
		s.ordered = s.ordered.without(past)
		delete(s.of, past.account)
	}
	return n
}

// until is when the account has had its share; 0 when it is not ahead of now.
func (s *shareBook) until(account string, now int64) int64 {
	if own := s.of[account]; own != nil && own.until > now {
		return own.until
	}
	return 0
}

// put stores an account's instant.
func (s *shareBook) put(account string, until, now int64) {
	own := s.of[account]
	if own != nil {
		s.ordered = s.ordered.without(own)
	}
	switch {
	case until <= now:
		if own != nil {
			delete(s.of, account)
		}
		return
	case own == nil:
		if s.of == nil {
			s.of = map[string]*share{}
		}
		own = &share{account: account, weight: rand.Uint32()}
		s.of[account] = own
	}
	own.until = until
	s.ordered = s.ordered.with(own)
	s.latest = max(s.latest, until)
}

// shareEnd is an instant from which on nobody is ahead; 0 where nobody ever was.
func (c *counter) shareEnd() int64 {
	if c.shares == nil || len(c.shares.of) == 0 {
		return 0
	}
	return c.shares.latest
}

// retryAhead is when to ask again for so much, of whom is ahead of its share: once
// the limit covers the reserve too, or once the account is not ahead any more and the
// limit covers it, at retry.
func (l *look) retryAhead(h *reservation.Hold, want quota.Amount, retry int64) int64 {
	share := quota.FairShare(h.Bucket)
	return min(l.startFor(h, want+share.Reserve()), max(retry, l.share-share.Slack()))
}

// shareOf reads the share that an account has of a fair limit.
func (l *look) shareOf(account string, h *reservation.Hold, now int64) {
	if !h.Fair || l.counter == nil || l.counter.shares == nil {
		return
	}
	s := l.counter.shares
	l.share, l.sharing = s.until(account, now), s.count(now)
	l.isAhead = quota.FairShare(h.Bucket).IsAhead(l.share, now)
}

// sharers is how many accounts use the limit once this one takes from it.
func (l *look) sharers() int {
	if l.share == 0 {
		return l.sharing + 1
	}
	return l.sharing
}

// showShare adds the share to a level.
func (l *look) showShare(shown *reservation.Level, h *reservation.Hold, now int64) {
	if !h.Fair {
		return
	}
	shown.Sharing = l.sharing
	if share := quota.FairShare(h.Bucket); share.IsAhead(l.share, now) {
		shown.ShareAt = at(l.share - share.Slack())
	}
}

// takeShare has the look show what the account has after the hold.
func (l *look) takeShare(h *reservation.Hold) {
	if !h.Fair || h.Amount == 0 {
		return
	}
	l.sharing = l.sharers()
	l.share = quota.FairShare(h.Bucket).Take(l.share, l.at, h.Amount, l.sharing)
}

// takeShare charges the account's share with a new hold, whose look is as it was
// before, but at the start.
func (h *hold) takeShare(from *reservation.Hold, l *look, now int64) {
	if !from.Fair {
		return
	}
	n := l.sharers()
	h.sharing = int32(min(n, 1<<30))
	if from.Amount == 0 {
		return
	}
	if h.counter.shares == nil {
		h.counter.shares = &shareBook{}
	}
	h.counter.shares.put(h.record.account.name, quota.FairShare(from.Bucket).Take(l.share, l.at, from.Amount, n), now)
}

// correctShare brings the account's share to what the hold costs more, or less.
func (h *hold) correctShare(difference quota.Amount, now int64) {
	if h.sharing == 0 || difference == 0 {
		return
	}
	s, account := h.counter.shares, h.record.account.name
	if s == nil {
		if difference < 0 {
			return
		}
		s = &shareBook{}
		h.counter.shares = s
	}
	s.put(account, quota.FairShare(h.bucket).Correct(s.until(account, now), now, difference, int(h.sharing)), now)
}
