package storetest

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Drift puts a counter that is there off what its records add up to.
func (m *Model) Drift(account string, c reservation.Counter, p quota.Period, held, unposted quota.Amount) {
	q := m.quotaOf(nameOf(account, c), p.Key)
	q.driftHeld += held
	q.driftUnposted += unposted
}

// Audit compares counters with the records. In the model they are the records'
// sums, and what Drift added.
func (m *Model) Audit(ctx context.Context, q reservation.AuditRequest) (reservation.AuditAnswer, error) {
	if err := q.Validate(); err != nil {
		return reservation.AuditAnswer{}, err
	}
	answer := reservation.AuditAnswer{Now: instant(m.now())}
	counters := slices.Clone(q.Counters)
	for _, r := range m.records {
		if r.account != q.Account || r.confirmed {
			continue
		}
		answer.Records++
		if r.state != reservation.StateHeld {
			answer.Waiting++
		}
		for _, h := range r.holds {
			known := func(c reservation.AuditCounter) bool { return c.Counter == h.Counter && c.Period.Key == h.Period.Key }
			if h.Kind == quota.KindQuota && (h.held != 0 || h.unposted != 0) && !slices.ContainsFunc(counters, known) {
				counters = append(counters, reservation.AuditCounter{Counter: h.Counter, Period: h.Period})
			}
		}
	}
	slices.SortFunc(counters[len(q.Counters):], func(a, b reservation.AuditCounter) int {
		return cmp.Or(strings.Compare(a.Counter.Limit, b.Counter.Limit), strings.Compare(a.Counter.Scope, b.Counter.Scope), strings.Compare(a.Period.Key, b.Period.Key))
	})
	for _, c := range counters {
		name := nameOf(q.Account, c.Counter)
		row := reservation.CounterAudit{Counter: c.Counter, PeriodKey: c.Period.Key}
		row.HeldSum, row.UnpostedSum = m.shares(name, c.Period.Key)
		row.Held, row.Unposted = m.sums(name, c.Period.Key)
		if row.Seeded = m.seeded(name, c.Period.Key); row.Seeded {
			known := m.quotaOf(name, c.Period.Key)
			row.Used, row.Version = known.used, known.version
		}
		if q.Repair && (row.Held != row.HeldSum || row.Unposted != row.UnpostedSum) {
			known := m.quotaOf(name, c.Period.Key)
			known.driftHeld, known.driftUnposted, row.Repaired = 0, 0, true
		}
		answer.Counters = append(answer.Counters, row)
	}
	return answer, nil
}
