package reservation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// auditWorkers is how many accounts an audit on demand looks at at once.
const auditWorkers = 4

// Pauses between looks at what has not settled: they double.
const firstRelook = 200 * time.Millisecond

// Audit audits now. A difference counts as a gap when it is still there at a
// second look, after what was on its way has arrived: it waits for that 2 s, and
// up to 5 s for closings that wait for the ledger.
//
// Without Repair nothing is changed but that the engine takes over newer usage
// rows, as it does all the time.
//
// Of all accounts one that can't be read is reported as failed, and the others
// are audited; one such audit runs at a time, and others wait for it.
//
// Errors: *InvalidError, ErrNotFound, ErrUnavailable, ledger errors.
func (a *Auditor) Audit(ctx context.Context, q AuditQuery) (AuditReport, error) {
	accounts := []string{q.Account}
	if q.Account == "" {
		select {
		case a.auditing <- struct{}{}:
			defer func() { <-a.auditing }()
		case <-ctx.Done():
			return AuditReport{}, fmt.Errorf("%w: another audit of all accounts is running: %w", ErrUnavailable, ctx.Err())
		}
		accounts = slices.Sorted(maps.Keys(a.broker.Policies.Current().Accounts))
	} else if err := quota.ValidateAccountName(q.Account); err != nil {
		return AuditReport{}, &InvalidError{Field: "account", Problem: err.Error()}
	}
	d := demand{auditor: a, query: q}
	if err := d.forEach(ctx, accounts, d.first); err != nil {
		return AuditReport{}, err
	}
	if _, known := a.broker.Policies.Current().Accounts[q.Account]; q.Account != "" && !known && d.empty() {
		return AuditReport{}, fmt.Errorf("account %q: %w", q.Account, ErrNotFound)
	}
	if err := d.settle(ctx); err != nil {
		return AuditReport{}, err
	}
	if err := d.forEach(ctx, slices.Sorted(maps.Keys(d.open)), d.judge); err != nil {
		return AuditReport{}, err
	}
	return d.finish(), nil
}

// demand is an audit on demand on its way.
type demand struct {
	auditor *Auditor
	query   AuditQuery

	mu     sync.Mutex
	report AuditReport
	gaps   []AuditedCounter
	rest   []AuditedCounter      // with All: those without a gap
	open   map[string]*openAudit // accounts that need another look
}

// openAudit is an account that differs, or where closings wait. Of its looks
// only the counters that differ are kept.
type openAudit struct {
	first, last *look
}

// onlyFailing drops the counters that do not differ.
func (l *look) onlyFailing() *look {
	maps.DeleteFunc(l.counters, func(_ ledger.UsageKey, c *AuditedCounter) bool { return c.gaps == 0 })
	return l
}

// forEach does work for several accounts at once. One that fails is noted, and
// ends the audit when it is the only one, or when nothing answers any more.
func (d *demand) forEach(ctx context.Context, accounts []string, work func(context.Context, string) error) error {
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(auditWorkers)
	for _, account := range accounts {
		workers.Go(func() error {
			err := work(ctx, account)
			if err == nil || d.query.Account != "" || ctx.Err() != nil || d.auditor.broker.ping(ctx) != nil {
				return err
			}
			d.failed(account, err)
			return nil
		})
	}
	return workers.Wait()
}

// ping says whether engine and ledger answer.
func (b *Broker) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, auditDeadline)
	defer cancel()
	return errors.Join(b.Store.Ping(ctx), b.Ledger.Ping(ctx))
}

// failed notes an account that can't be audited.
func (d *demand) failed(account string, err error) {
	d.auditor.broker.metrics.audit.failed.Inc()
	d.auditor.broker.config.Logger.Warn("an account can't be audited", "account", account, "error", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, account)
	d.report.Failed++
	if len(d.report.FailedAccounts) < MaxFailedAccounts {
		d.report.FailedAccounts = append(d.report.FailedAccounts, account)
	}
}

// first looks at an account for the first time. Most are done with that.
func (d *demand) first(ctx context.Context, account string) error {
	l, err := d.auditor.look(ctx, account, lookFor{everything: true, sums: true})
	if err != nil {
		return err
	}
	if l.failing == 0 && l.waiting == 0 {
		d.add(l, nil, accountGaps{})
		return nil
	}
	d.auditor.push(ctx, l, false)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[string]*openAudit{}
	}
	l.onlyFailing()
	d.open[account] = &openAudit{first: l, last: l}
	return nil
}

// empty says whether nothing at all was found.
func (d *demand) empty() bool { return len(d.open) == 0 && d.report.Checked == 0 }

// settle looks again and again at what is open, until it has settled or it has
// had time enough to.
func (d *demand) settle(ctx context.Context) error {
	began := time.Now()
	for wait := firstRelook; ; wait *= 2 {
		left := d.unsettled(time.Since(began))
		if len(left) == 0 {
			return nil
		}
		if !pause(ctx, min(wait, settleWithin-time.Since(began))) {
			return ctx.Err()
		}
		if err := d.forEach(ctx, left, d.again); err != nil {
			return err
		}
	}
}

// unsettled lists the accounts that may still get right by themselves.
func (d *demand) unsettled(waited time.Duration) []string {
	if waited >= settleWithin {
		return nil
	}
	var left []string
	for account, o := range d.open {
		differs := len(o.last.stillThere(o.first)) > 0
		if o.last.waiting > 0 || differs && waited < secondLook {
			left = append(left, account)
		}
	}
	slices.Sort(left)
	return left
}

func (d *demand) again(ctx context.Context, account string) error {
	// The entries do not get right by themselves: they were compared at the
	// first look and are at the last.
	l, err := d.auditor.look(ctx, account, lookFor{everything: true})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[account].last = l.onlyFailing()
	return nil
}

// judge says what stands in an account, and repairs if it was asked to.
func (d *demand) judge(ctx context.Context, account string) error {
	d.mu.Lock()
	o := d.open[account]
	d.mu.Unlock()
	how := lookFor{everything: true, sums: true}
	last, err := d.auditor.look(ctx, account, how)
	if err != nil {
		return err
	}
	stand := last.stillThere(o.first)
	seen := accountGaps{}
	for c, gaps := range stand {
		seen.addDrift(c, gaps)
	}
	if len(stand) > 0 && d.query.Repair {
		if stand, err = d.auditor.mend(ctx, last, stand, how); err != nil {
			return err
		}
	}
	d.add(last, stand, seen)
	return nil
}

// add takes an account into the report.
func (d *demand) add(l *look, stand map[*AuditedCounter]auditGaps, seen accountGaps) {
	a := d.auditor
	for _, gaps := range stand {
		seen.addStanding(gaps)
	}
	a.broker.audited.report(l.account, seen, gapEntries, gapRow, gapHeld, gapUnposted)
	a.broker.metrics.audit.checked.Add(float64(len(l.counters)))
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.report
	r.Accounts++
	r.Checked += len(l.counters)
	r.Waiting += l.waiting
	if l.unsummed {
		r.Unsummed++
	}
	if l.partial {
		r.Partial++
	}
	for _, c := range l.sorted() {
		gaps := stand[c]
		c.Gap = c.describe(gaps)
		if gaps != 0 {
			r.Gaps++
		}
		if c.Repaired {
			r.Repaired++
		}
		switch {
		case gaps != 0 || c.Repaired:
			d.gaps = d.list(d.gaps, c)
		case d.query.All:
			d.rest = d.list(d.rest, c)
		}
	}
}

// list adds a counter, or counts it as left out.
func (d *demand) list(to []AuditedCounter, c *AuditedCounter) []AuditedCounter {
	if len(to) == MaxAuditReport {
		d.report.LeftOut++
		return to
	}
	return append(to, *c)
}

// finish puts the report together.
func (d *demand) finish() AuditReport {
	r := d.report
	r.Waiting += d.auditor.broker.spooled()
	slices.Sort(r.FailedAccounts)
	for _, list := range [][]AuditedCounter{d.gaps, d.rest} {
		slices.SortFunc(list, func(x, y AuditedCounter) int { return x.UsageKey.Compare(y.UsageKey) })
		fits := min(len(list), MaxAuditReport-len(r.Counters))
		r.Counters = append(r.Counters, list[:fits]...)
		r.LeftOut += len(list) - fits
	}
	return r
}
