package faults

import (
	"slices"
	"testing"
	"time"
)

// outage is a time in which answered Refunds may be in a spool only: PostgreSQL
// is down, or a broker with its spool.
type outage struct{ from, to time.Time }

// drainedWithin is how long after an outage spools may still hold something.
const drainedWithin = 10 * time.Second

// spooledUntil is when a Refund that was answered then is in the ledger at the
// latest.
func (t *traffic) spooledUntil(acked time.Time) time.Time {
	until := acked
	for _, o := range t.outages {
		if end := o.to.Add(drainedWithin); !acked.Before(o.from) && acked.Before(end) && end.After(until) {
			until = end
		}
	}
	return until
}

// forgotten is what Redis may not know of a call after it forgot: the windows of
// docs/guarantees.md. Until then it may grant so much too much.
func (t *traffic) forgotten(c *call, lost time.Time) (until time.Time) {
	if c.asked.After(lost) {
		return time.Time{}
	}
	if c.acked.IsZero() { // open until its lease ends, if it was not asked for before
		until = c.answered.Add(c.lease)
	} else {
		until = t.spooledUntil(c.acked)
		if c.acked.Before(lost) && !until.After(lost) {
			return time.Time{} // posted before: seeded with the rest
		}
	}
	if until.Before(lost) {
		return time.Time{}
	}
	return until
}

// checkQuotas holds each grant against the quota and the windows that were open
// when it was made.
//
// What was taken is bounded from below: a reservation counts as held from its
// answer until its Refund was sent or its lease had ended, and with what it
// used from the answer of the Refund on. So a violation that is reported is one.
// What overruns and late Refunds charged while the grant was on its way may be
// above the quota by definition.
func checkQuotas(t *testing.T, traffic *traffic) {
	t.Helper()
	grants, closed := 0, 0
	for _, name := range names() {
		var calls []*call
		for _, c := range traffic.calls {
			if c.account == name {
				calls = append(calls, c)
			}
		}
		var widest, most int64
		for _, change := range changesOf(calls) {
			g := change.granted
			if g == nil {
				continue
			}
			most = max(most, change.level)
			var windows, beyond int64
			for _, c := range calls {
				if c != g && slices.ContainsFunc(traffic.losses, func(lost time.Time) bool {
					return !lost.After(g.answered) && !traffic.forgotten(c, lost).Before(g.asked)
				}) {
					windows += max(c.held, c.used)
				}
				if c.acked.After(g.asked) && !c.acked.After(g.answered) {
					if c.late || c.expired {
						beyond += c.used
					} else {
						beyond += max(c.used-c.held, 0)
					}
				}
			}
			grants++
			if windows == 0 {
				closed++
			}
			widest = max(widest, windows)
			if change.level > quotas[name]+beyond+windows {
				t.Errorf("%s: after a grant %d of a quota of %d are taken, with %d beyond it by definition and windows of %d",
					name, change.level, quotas[name], beyond, windows)
			}
		}
		t.Logf("%-7s quota %8d: at most %8d taken at a grant; the widest window that was open at one: %d", name, quotas[name], most, widest)
	}
	t.Logf("%d grants, %d of them while no window was open; Redis forgot %d times", grants, closed, len(traffic.losses))
	if 20*closed < grants {
		t.Errorf("only %d of %d grants were made while no window was open: that proves little", closed, grants)
	}
}

// change is a moment at which what is taken changed.
type change struct {
	at      time.Time
	level   int64 // afterwards
	granted *call // what was granted; nil: something came back, or was charged
}

func changesOf(calls []*call) []change {
	var changes []change
	note := func(at time.Time, difference int64, granted *call) {
		changes = append(changes, change{at, difference, granted})
	}
	for _, c := range calls {
		ends := c.asked.Add(c.lease)
		if !c.refunding.IsZero() && c.refunding.Before(ends) {
			ends = c.refunding
		}
		if ends.Before(c.answered) {
			ends = c.answered
		}
		note(c.answered, c.held, c)
		note(ends, -c.held, nil)
		if !c.acked.IsZero() {
			note(c.acked, c.used, nil)
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	level := int64(0)
	for i := range changes {
		level += changes[i].level
		changes[i].level = level
	}
	return changes
}
