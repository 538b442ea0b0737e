package memstore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Audit implements reservation.Store. It looks at every open and waiting record
// of the account, with the engine locked.
func (s *Store) Audit(ctx context.Context, q reservation.AuditRequest) (reservation.AuditAnswer, error) {
	if err := q.Validate(); err != nil {
		return reservation.AuditAnswer{}, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return reservation.AuditAnswer{}, err
	}
	defer s.mu.Unlock()
	answer := reservation.AuditAnswer{Now: at(now)}
	a := s.accounts[q.Account]
	sums := map[*counter]*shares{}
	if a != nil {
		answer.Records = len(a.open) + len(a.waiting)
		if answer.TooMany = answer.Records > reservation.MaxAuditRecords; !answer.TooMany {
			answer.Waiting = len(a.waiting)
			addShares(sums, a.open)
			addShares(sums, a.waiting)
		}
	}
	named := map[*counter]bool{}
	for i := range q.Counters {
		asked := &q.Counters[i]
		row := reservation.CounterAudit{Counter: asked.Counter, PeriodKey: asked.Period.Key}
		c := s.lookup(a, &reservation.Hold{Counter: asked.Counter, Kind: quota.KindQuota, Period: asked.Period})
		if c != nil {
			s.audit(c, sums[c], &row, q.Repair && !answer.TooMany, now)
			named[c] = true
		}
		answer.Counters = append(answer.Counters, row)
	}
	for c, sum := range sums {
		if named[c] {
			continue
		}
		row := reservation.CounterAudit{Counter: reservation.Counter{Limit: c.key.limit, Scope: c.key.scope}, PeriodKey: c.key.period}
		s.audit(c, sum, &row, q.Repair, now)
		answer.Counters = append(answer.Counters, row)
	}
	slices.SortFunc(answer.Counters[len(q.Counters):], func(a, b reservation.CounterAudit) int {
		return cmp.Or(strings.Compare(a.Counter.Limit, b.Counter.Limit), strings.Compare(a.Counter.Scope, b.Counter.Scope), strings.Compare(a.PeriodKey, b.PeriodKey))
	})
	if a != nil {
		s.settle(a)
	}
	return answer, nil
}

// shares are what records add to a quota's counter.
type shares struct{ held, unposted quota.Amount }

func addShares(sums map[*counter]*shares, records recordHeap) {
	for _, r := range records {
		for i := range r.holds {
			h := &r.holds[i]
			if h.held == 0 && h.unposted == 0 {
				continue
			}
			sum := sums[h.counter]
			if sum == nil {
				sum = &shares{}
				sums[h.counter] = sum
			}
			sum.held += h.held
			sum.unposted += h.unposted
		}
	}
}

// audit fills in a counter's row, and sets the counter right.
func (s *Store) audit(c *counter, sum *shares, row *reservation.CounterAudit, repair bool, now int64) {
	if sum == nil {
		sum = &shares{}
	}
	if row.Seeded = c.incarnation == s.incarnation && !c.quotaOver(now); row.Seeded {
		row.Used, row.Version = c.used, c.version
	}
	row.Held, row.Unposted, row.HeldSum, row.UnpostedSum = c.held, c.unposted, sum.held, sum.unposted
	if repair && (c.held != sum.held || c.unposted != sum.unposted) {
		c.held, c.unposted, row.Repaired = sum.held, sum.unposted, true
		s.release(c, now)
	}
}
