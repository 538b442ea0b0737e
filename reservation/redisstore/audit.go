package redisstore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Audit is one script call that reads every record of the account, and blocks
// the server as long: see BenchmarkAudit.
//
// Of a counter that only the records named, a limit or scope whose key holds
// its hash (names of more than 200 bytes, escaped) is shown as that hash.
func (s *Store) Audit(ctx context.Context, r reservation.AuditRequest) (reservation.AuditAnswer, error) {
	if err := r.Validate(); err != nil {
		return reservation.AuditAnswer{}, err
	}
	p := s.account(r.Account)
	keys := []string{p.hash(), p.dues(), p.index()}
	var counters args
	counters.list(4 * len(r.Counters))
	for i := range r.Counters {
		keys = s.packQuota(&counters, p, r.Counters[i].Counter, r.Counters[i].Period, keys)
	}
	a := make(args, 0, 128+len(counters))
	a.int(s.now())
	a.str(p.name)
	a.int(reservation.MaxAuditRecords)
	a.bool(r.Repair)
	a.int(s.idle)
	a.bytes(counters)
	out, err := s.run(ctx, scriptAudit, keys, a)
	if err != nil {
		return reservation.AuditAnswer{}, err
	}
	answer := reservation.AuditAnswer{Now: instant(out.int()), Records: int(out.int()), Waiting: int(out.int()), TooMany: out.int() == 1}
	for n := out.list(); n > 0 && out.err == nil; n -= auditValues {
		ref, where := string(out.bytes()), out.int()
		row := reservation.CounterAudit{
			PeriodKey: string(out.bytes()),
			Seeded:    out.int() == 1, Used: quota.Amount(out.int()), Version: out.int(),
			Held: quota.Amount(out.int()), Unposted: quota.Amount(out.int()),
			HeldSum: quota.Amount(out.int()), UnpostedSum: quota.Amount(out.int()), Repaired: out.int() == 1,
		}
		if !row.Seeded {
			row.Used, row.Version = 0, 0
		}
		if i := len(answer.Counters); i < len(r.Counters) {
			row.Counter = r.Counters[i].Counter
		} else {
			row.Counter = p.counterOf(int(where), ref)
		}
		answer.Counters = append(answer.Counters, row)
	}
	if out.err != nil {
		return reservation.AuditAnswer{}, out.err
	}
	slices.SortFunc(answer.Counters[len(r.Counters):], func(a, b reservation.CounterAudit) int {
		return cmp.Or(strings.Compare(a.Counter.Limit, b.Counter.Limit), strings.Compare(a.Counter.Scope, b.Counter.Scope), strings.Compare(a.PeriodKey, b.PeriodKey))
	})
	return answer, nil
}

// auditValues is how many values the script lists for a counter.
const auditValues = 11

// counterOf is the quota's counter that place puts there.
func (p space) counterOf(where int, ref string) reservation.Counter {
	if where == inField {
		return reservation.Counter{Limit: strings.TrimPrefix(ref, "q")}
	}
	limit, scope, _ := strings.Cut(strings.TrimPrefix(ref, p.base+"q:"+p.escaped+":"), ":")
	return reservation.Counter{Limit: unescape(limit), Scope: unescape(scope)}
}
