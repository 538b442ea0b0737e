package reservation

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// Deadlines of one step of an audit, which no caller of Reserve waits for.
const (
	auditDeadline = 5 * time.Second
	sumsDeadline  = time.Minute
)

// suspect is a difference that waits for its second look.
type suspect struct {
	first *look
	part  int
	at    time.Time // of the second look
}

// maxSuspects bounds the accounts that wait for a second look; the walk waits
// when there are as many.
const maxSuspects = 1000

// trouble logs the first of a row of failures, and their end.
type trouble struct {
	logger *slog.Logger
	what   string
	failed bool
}

func (t *trouble) note(ctx context.Context, err error) {
	if failed := err != nil && ctx.Err() == nil; failed != t.failed {
		if t.failed = failed; failed {
			t.logger.Warn(t.what+" fails", "error", err)
		} else if ctx.Err() == nil {
			t.logger.Info(t.what + " works again")
		}
	}
}

// walk looks at one account after the other, for ever.
func (a *Auditor) walk(ctx context.Context) {
	b := a.broker
	news := trouble{logger: b.config.Logger, what: "auditing quota counters"}
	pace := time.Duration(float64(time.Second) / b.config.AuditRate)
	var suspects []suspect
	for round := 0; ; round++ {
		began := time.Now()
		for _, account := range slices.Sorted(maps.Keys(b.Policies.Current().Accounts)) {
			for len(suspects) >= maxSuspects || len(suspects) > 0 && !time.Now().Before(suspects[0].at) {
				if !pause(ctx, time.Until(suspects[0].at)) {
					return
				}
				news.note(ctx, a.lookAgain(ctx, suspects[0]))
				suspects = suspects[1:]
			}
			started := time.Now()
			found, err := a.look(ctx, account, lookFor{part: round})
			if news.note(ctx, err); err == nil {
				if next, ok := a.firstLook(ctx, found, round); ok {
					suspects = append(suspects, next)
				}
			} else {
				b.metrics.audit.failed.Inc()
			}
			if !pause(ctx, max(pace, auditShare*time.Since(started))) {
				return
			}
		}
		for ; len(suspects) > 0; suspects = suspects[1:] {
			if !pause(ctx, time.Until(suspects[0].at)) {
				return
			}
			news.note(ctx, a.lookAgain(ctx, suspects[0]))
		}
		known := b.Policies.Current().Accounts
		b.audited.keep(func(account string) bool { _, is := known[account]; return is })
		b.metrics.audit.round.Set(float64(b.config.Now().Unix()))
		if !pause(ctx, shortestRound-time.Since(began)) {
			return
		}
	}
}

// firstLook counts what was seen, brings the engine up to date with rows that it
// is behind of, and says whether a second look is needed.
func (a *Auditor) firstLook(ctx context.Context, l *look, part int) (suspect, bool) {
	a.broker.metrics.audit.checked.Add(float64(len(l.counters)))
	if l.unsummed {
		a.broker.metrics.audit.unsummed.Inc()
	}
	if l.failing == 0 {
		a.broker.audited.report(l.account, accountGaps{}, gapRow, gapHeld, gapUnposted)
		return suspect{}, false
	}
	a.push(ctx, l, false)
	return suspect{first: l, part: part, at: time.Now().Add(secondLook)}, true
}

// push has the engine take over the rows that it is behind of, and with same
// those of which it shows another value. A failure shows at the next look.
func (a *Auditor) push(ctx context.Context, l *look, same bool) {
	usage := l.pushes(a.quotasOf(l.account), same)
	for part := range slices.Chunk(usage, MaxPush) {
		if err := a.broker.pushUsage(ctx, l.account, part); err != nil {
			return
		}
	}
}

// pushUsage has the engine take over ledger values.
func (b *Broker) pushUsage(ctx context.Context, account string, usage []CounterUsage) error {
	if len(usage) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sweepDeadline)
	defer cancel()
	return engineError(b.Store.Push(ctx, account, usage))
}

// lookAgain looks a second time, and repairs what is still there.
func (a *Auditor) lookAgain(ctx context.Context, s suspect) error {
	second, err := a.look(ctx, s.first.account, lookFor{part: s.part})
	if err != nil {
		a.broker.metrics.audit.failed.Inc()
		return err
	}
	stand := second.stillThere(s.first)
	seen := accountGaps{}
	for c, gaps := range stand {
		seen.addDrift(c, gaps)
	}
	if len(stand) > 0 {
		last, err := a.mend(ctx, second, stand, lookFor{part: s.part})
		if err != nil {
			a.broker.metrics.audit.failed.Inc()
			return err
		}
		stand = last
	}
	for _, gaps := range stand {
		seen.addStanding(gaps)
	}
	if a.broker.audited.report(s.first.account, seen, gapRow, gapHeld, gapUnposted) {
		for c, gaps := range stand {
			a.logGap(c, gaps)
		}
	}
	return nil
}

// stillThere returns the counters of this look that differ as at the first one.
func (l *look) stillThere(first *look) map[*AuditedCounter]auditGaps {
	stand := map[*AuditedCounter]auditGaps{}
	for key, c := range l.counters {
		if before := first.counters[key]; before != nil {
			if gaps := c.stillThere(before); gaps != 0 {
				stand[c] = gaps
			}
		}
	}
	return stand
}

// mend repairs what is safe to repair, and returns what stands after it.
func (a *Auditor) mend(ctx context.Context, l *look, stand map[*AuditedCounter]auditGaps, how lookFor) (map[*AuditedCounter]auditGaps, error) {
	if !how.sums {
		if err := a.readSums(ctx, l); err != nil {
			return nil, err
		}
	}
	a.push(ctx, l, true)
	how.repair = true
	after, err := a.look(ctx, l.account, how)
	if err != nil {
		return nil, err
	}
	if after.failing > 0 {
		// What the step that repairs shows is what it found.
		how.repair = false
		if after, err = a.look(ctx, l.account, how); err != nil {
			return nil, err
		}
	}
	left := map[*AuditedCounter]auditGaps{}
	for c, gaps := range stand {
		now := after.counters[c.UsageKey]
		if now == nil {
			now = &AuditedCounter{UsageKey: c.UsageKey}
			after.counters[c.UsageKey] = now
		}
		remain := now.stillThere(c) & gaps
		for kind := range gapKinds {
			if gaps.has(kind) && !remain.has(kind) {
				a.broker.metrics.audit.repaired.WithLabelValues(kind.String()).Inc()
			}
		}
		if now.Repaired = remain != gaps; now.Repaired {
			a.broker.config.Logger.Warn("a quota counter was repaired", "account", l.account, "limit", c.Limit, "scope", c.Scope, "period", c.Period, "gap", c.describe(gaps&^remain))
		}
		if remain != 0 {
			left[now] = remain
		}
	}
	*l = *after
	return left, nil
}

func (g *accountGaps) addDrift(c *AuditedCounter, gaps auditGaps) {
	for kind := range gapKinds {
		g.drift[kind][driftUnitOf(c.Meter)] += c.drift(gaps & (1 << kind))
	}
}

func (g *accountGaps) addStanding(gaps auditGaps) {
	for kind := range gapKinds {
		if gaps.has(kind) {
			g.stand[kind]++
		}
	}
}

// walkSums adds up the entries of one account after the other, for ever. It is
// slow on purpose: it reads every entry.
func (a *Auditor) walkSums(ctx context.Context) {
	b := a.broker
	news := trouble{logger: b.config.Logger, what: "adding up the ledger's entries"}
	pace := time.Duration(10 * float64(time.Second) / b.config.AuditRate)
	for {
		began := time.Now()
		for _, account := range slices.Sorted(maps.Keys(b.Policies.Current().Accounts)) {
			started := time.Now()
			err := a.lookAtSums(ctx, account)
			if news.note(ctx, err); err != nil {
				b.metrics.audit.failed.Inc()
			}
			if !pause(ctx, max(pace, auditShare*time.Since(started))) {
				return
			}
		}
		if !pause(ctx, shortestRound-time.Since(began)) {
			return
		}
	}
}

// lookAtSums compares the account's rows with the sums of their entries. One
// reading is of one moment, so no second look is needed.
func (a *Auditor) lookAtSums(ctx context.Context, account string) error {
	ctx, cancel := context.WithTimeout(ctx, sumsDeadline)
	defer cancel()
	wrong, err := a.broker.Ledger.CheckSums(ctx, account)
	if err != nil {
		return err
	}
	seen := accountGaps{}
	stand := make([]AuditedCounter, len(wrong))
	for i, m := range wrong {
		c := AuditedCounter{UsageKey: m.UsageKey, Row: m.Used, Version: m.Version, Entries: m.Entries}
		c.gaps = c.compare(false)
		seen.addDrift(&c, c.gaps)
		seen.addStanding(c.gaps)
		stand[i] = c
	}
	if a.broker.audited.report(account, seen, gapEntries) {
		for i := range stand {
			a.logGap(&stand[i], stand[i].gaps)
		}
	}
	return nil
}

// logGap says it once, not at every round.
func (a *Auditor) logGap(c *AuditedCounter, gaps auditGaps) {
	a.broker.config.Logger.Error("the books differ", "account", c.Account, "limit", c.Limit, "scope", c.Scope, "period", c.Period, "meter", string(c.Meter), "gap", c.describe(gaps))
}

// pause waits, and says whether to go on.
func pause(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
