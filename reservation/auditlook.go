package reservation

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// look is one account as an audit sees it at one moment.
type look struct {
	account  string
	counters map[ledger.UsageKey]*AuditedCounter
	waiting  int  // closings that wait in the engine
	unsummed bool // too many records to be added up
	partial  bool // too many rows to be read at once
	failing  int  // counters with a difference
}

// lookFor says how to look.
type lookFor struct {
	everything bool // rows of every period, and counters however many; else those of the current and the last period, as many as one step takes
	sums       bool // add the entries up
	repair     bool // have the engine set held and unposted to its records' sums
	part       int  // when not everything: which of the parts of the counters
}

// look reads an account: first the usage rows, which say what to ask for, then
// the engine, then the rows again, so that a row is never older than what the
// engine was told of it.
func (a *Auditor) look(ctx context.Context, account string, how lookFor) (*look, error) {
	l := &look{account: account, counters: map[ledger.UsageKey]*AuditedCounter{}}
	known := a.quotasOf(account)
	rows, err := a.rowsOf(ctx, known, l, how.everything)
	if err != nil {
		return nil, err
	}
	a.broker.observe(rows) // makes good what died with a node
	for _, row := range rows {
		l.counters[row.UsageKey] = &AuditedCounter{UsageKey: row.UsageKey, Row: row.Used, Version: row.Version}
	}
	asked := known.counters(rows)
	if err := a.askEngine(ctx, known, l, asked, how); err != nil {
		return nil, err
	}
	if err := a.readRows(ctx, l); err != nil {
		return nil, err
	}
	for _, c := range l.counters {
		c.LimitName = known.name(c.Limit)
		if period, ok := known.period(c.Period); ok {
			c.over = !known.now.Before(period.End)
		}
		c.Entries = c.Row
	}
	if how.sums {
		if err := a.readSums(ctx, l); err != nil {
			return nil, err
		}
	}
	for _, c := range l.counters {
		if c.gaps = c.compare(!l.unsummed); c.gaps != 0 {
			l.failing++
		}
	}
	return l, nil
}

// rowsOf reads the account's usage rows, as many as the ledger gives at once.
func (a *Auditor) rowsOf(ctx context.Context, known *auditedQuotas, l *look, everything bool) ([]ledger.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, a.broker.config.LedgerDeadline)
	defer cancel()
	periods := known.periodKeys()
	if everything {
		rows, err := a.broker.Ledger.AccountUsage(ctx, l.account, "", ledger.MaxAccountUsage)
		if err != nil || len(rows) < ledger.MaxAccountUsage {
			return rows, err
		}
	}
	var rows []ledger.Usage
	for _, period := range periods {
		more, err := a.broker.Ledger.AccountUsage(ctx, l.account, period, ledger.MaxAccountUsage)
		if err != nil {
			return nil, err
		}
		l.partial = l.partial || len(more) == ledger.MaxAccountUsage
		rows = append(rows, more...)
	}
	l.partial = l.partial || everything
	return rows, nil
}

// askEngine audits counters in parts. A counter that only the engine's records
// name is added.
func (a *Auditor) askEngine(ctx context.Context, known *auditedQuotas, l *look, asked []auditedQuota, how lookFor) error {
	parts := slices.Collect(slices.Chunk(asked, MaxAuditCounters))
	if len(parts) == 0 {
		parts = [][]auditedQuota{nil} // its records are added up all the same
	}
	if !how.everything {
		parts = parts[how.part%len(parts):][:1]
	}
	for _, part := range parts {
		request := AuditRequest{Account: l.account, Repair: how.repair}
		for _, c := range part {
			request.Counters = append(request.Counters, c.AuditCounter)
		}
		within, cancel := context.WithTimeout(ctx, auditDeadline)
		answer, err := a.broker.Store.Audit(within, request)
		cancel()
		if err != nil {
			return engineError(err)
		}
		l.waiting, l.unsummed = answer.Waiting, l.unsummed || answer.TooMany
		for i := range answer.Counters {
			seen := &answer.Counters[i]
			key := ledger.UsageKey{Account: l.account, Limit: seen.Counter.Limit, Scope: seen.Counter.Scope, Period: seen.PeriodKey}
			if i < len(part) {
				key.Meter = part[i].meter
			} else {
				key.Meter = known.meterOf(key, l.counters)
			}
			c := l.counters[key]
			if c == nil {
				c = &AuditedCounter{UsageKey: key}
				l.counters[key] = c
			}
			c.Held, c.HeldRecords, c.Unposted, c.UnpostedRecords = seen.Held, seen.HeldSum, seen.Unposted, seen.UnpostedSum
			c.Repaired = c.Repaired || seen.Repaired
			if c.InEngine = seen.Seeded; seen.Seeded {
				c.Used, c.EngineVersion = seen.Used, seen.Version
			}
		}
	}
	return nil
}

// readRows reads the rows of what the engine knows again.
func (a *Auditor) readRows(ctx context.Context, l *look) error {
	var keys []ledger.UsageKey
	for key, c := range l.counters {
		if key.Limit != "" && key.Meter != "" && c.InEngine {
			keys = append(keys, key)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, a.broker.config.LedgerDeadline)
	defer cancel()
	for part := range slices.Chunk(keys, ledger.MaxAppend) {
		rows, err := a.broker.Ledger.Usage(ctx, part)
		if err != nil {
			return err
		}
		for _, row := range rows {
			c := l.counters[row.UsageKey]
			c.Row, c.Version = row.Used, row.Version
		}
	}
	return nil
}

// readSums adds the entries up. Rows that are right are left as they are.
func (a *Auditor) readSums(ctx context.Context, l *look) error {
	ctx, cancel := context.WithTimeout(ctx, sumsDeadline)
	defer cancel()
	wrong, err := a.broker.Ledger.CheckSums(ctx, l.account)
	if err != nil {
		return err
	}
	for _, m := range wrong {
		c := l.counters[m.UsageKey]
		if c == nil {
			c = &AuditedCounter{UsageKey: m.UsageKey}
			l.counters[m.UsageKey] = c
		}
		if !c.InEngine {
			c.Row, c.Version = m.Used, m.Version
		}
		// The row may have moved on since: what counts is by how much they
		// differed in one reading.
		c.Entries = c.Row + (m.Entries - m.Used)
	}
	return nil
}

// sorted returns the counters in the order of their keys.
func (l *look) sorted() []*AuditedCounter {
	return slices.SortedFunc(maps.Values(l.counters), func(x, y *AuditedCounter) int { return x.UsageKey.Compare(y.UsageKey) })
}

// pushes are the rows that the engine is behind of, and with same those of
// which it shows another value at the same version. With same the entries must
// have been added up.
func (l *look) pushes(known *auditedQuotas, same bool) []CounterUsage {
	var usage []CounterUsage
	for _, c := range l.sorted() {
		if !c.gaps.has(gapRow) || c.EngineVersion > c.Version || c.EngineVersion == c.Version && !same {
			continue
		}
		if c.Entries != c.Row {
			continue // the ledger's row is what is wrong
		}
		if period, ok := known.period(c.Period); ok {
			usage = append(usage, CounterUsage{Counter: Counter{Limit: c.Limit, Scope: c.Scope}, Period: period, Used: countable(c.Row), Version: c.Version})
		}
	}
	return usage
}

// auditedQuotas is what the policy says of an account's quotas.
type auditedQuotas struct {
	account quota.Account
	byID    map[string]*quota.Limit
	periods map[string]quota.Period // current and last ones by key
	now     time.Time
}

// auditedQuota is a counter with the meter that it counts.
type auditedQuota struct {
	AuditCounter
	meter quota.Meter
}

// quotasOf reads the policy. An account that was removed has no limits and the
// default calendar.
func (a *Auditor) quotasOf(account string) *auditedQuotas {
	policy := a.broker.Policies.Current()
	known := &auditedQuotas{account: policy.Accounts[account], byID: map[string]*quota.Limit{}, periods: map[string]quota.Period{}}
	known.account.Name = account
	limits, _ := policy.Limits(account) // none for an account that was removed
	for _, applied := range limits {
		if applied.Limit.Kind == quota.KindQuota {
			known.byID[applied.ID] = applied.Limit
		}
	}
	now := a.broker.now()
	known.now = now
	for _, unit := range [...]quota.PeriodUnit{quota.PeriodDay, quota.PeriodWeek, quota.PeriodMonth, quota.PeriodYear} {
		current := known.account.PeriodAt(unit, now)
		last := known.account.PeriodAt(unit, current.Start.Add(-1))
		known.periods[current.Key], known.periods[last.Key] = current, last
	}
	return known
}

func (k *auditedQuotas) name(limit string) string {
	if l := k.byID[limit]; l != nil {
		return l.Name
	}
	return ""
}

// periodKeys are those of the current and the last periods that the account's
// quotas and its totals count over.
func (k *auditedQuotas) periodKeys() []string {
	units := map[quota.PeriodUnit]bool{quota.PeriodMonth: true}
	for _, limit := range k.byID {
		units[limit.Period] = true
	}
	var keys []string
	for key := range k.periods {
		if unit, _, _, _, err := quota.ParsePeriodKey(key); err == nil && units[unit] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// period finds a period by its key.
func (k *auditedQuotas) period(key string) (quota.Period, bool) {
	if period, known := k.periods[key]; known {
		return period, true
	}
	period, err := quota.PeriodFromKey(key, k.account.TimeZone, k.account.AnchorDay)
	return period, err == nil
}

// counters lists what to ask the engine for: the rows of current and last
// periods, and the counters of the whole account that have no row yet.
func (k *auditedQuotas) counters(rows []ledger.Usage) []auditedQuota {
	asked := map[ledger.UsageKey]bool{}
	var counters []auditedQuota
	add := func(key ledger.UsageKey) {
		period, recent := k.periods[key.Period]
		if !recent || asked[key] {
			return
		}
		asked[key] = true
		counters = append(counters, auditedQuota{AuditCounter{Counter{Limit: key.Limit, Scope: key.Scope}, period}, key.Meter})
	}
	for _, row := range rows {
		if row.Limit != "" {
			add(row.UsageKey)
		}
	}
	for id, limit := range k.byID {
		for key := range k.periods {
			if unit, _, _, _, err := quota.ParsePeriodKey(key); err == nil && unit == limit.Period && len(limit.Per) == 0 {
				add(ledger.UsageKey{Account: k.account.Name, Limit: id, Period: key, Meter: limit.Meter})
			}
		}
	}
	slices.SortFunc(counters, func(x, y auditedQuota) int {
		return cmp.Or(cmp.Compare(x.Counter.Limit, y.Counter.Limit), cmp.Compare(x.Counter.Scope, y.Counter.Scope), cmp.Compare(x.Period.Key, y.Period.Key))
	})
	return counters
}

// meterOf finds the meter of a counter that only the engine named: the policy's,
// or that of a row of the counter; "" for a limit that is gone and never posted.
func (k *auditedQuotas) meterOf(key ledger.UsageKey, rows map[ledger.UsageKey]*AuditedCounter) quota.Meter {
	if limit := k.byID[key.Limit]; limit != nil {
		return limit.Meter
	}
	for row := range rows {
		if row.Limit == key.Limit {
			return row.Meter
		}
	}
	return ""
}
