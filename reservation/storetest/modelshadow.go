package storetest

import (
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// outputFor is an Output of which so many tokens are the least.
func outputFor(o *reservation.Output, tokens int64) *reservation.Output {
	granted := *o
	granted.Least = tokens
	return &granted
}

// missShadows returns the holds without what shadow limits would refuse, and puts
// their refusals and marks into the answer. q is as it was asked, with the tokens
// that are granted as the least.
func (m *Model) missShadows(q *reservation.ReserveRequest, holds []reservation.Hold, start int64, answer *reservation.ReserveAnswer) []reservation.Hold {
	holds = slices.Clone(holds)
	if answer.Decided.Forecast == nil {
		answer.Decided.Forecast = make([]bool, len(holds))
	}
	for i, h := range holds {
		if !h.Shadow || h.Kind == quota.KindSlots && q.Settle != nil {
			continue
		}
		until := start
		if h.Kind == quota.KindLeakyQueue {
			until = q.QueueUntil(m.now())
		}
		refusal, fits := m.whyNot(q, i, false, until)
		if fits {
			continue
		}
		refusal = m.countMissed(q, i, refusal, until)
		answer.Shadow = append(answer.Shadow, refusal)
		if answer.Decided.Missed == nil {
			answer.Decided.Missed = make([]bool, len(holds))
		}
		answer.Decided.Missed[i], answer.Decided.Forecast[i] = true, false
		holds[i].Amount, holds[i].Risk = 0, 0
	}
	return holds
}

// shadows compares what shadow limits would have refused.
func (d *differences) shadows(got, want reservation.ReserveAnswer) {
	d.check(slices.Equal(got.Decided.Missed, want.Decided.Missed), "missed", got.Decided.Missed, want.Decided.Missed)
	if len(got.Shadow) != len(want.Shadow) {
		d.check(false, "shadow refusals", got.Shadow, want.Shadow)
		return
	}
	for i := range want.Shadow {
		g, w := got.Shadow[i], want.Shadow[i]
		d.instant("shadow retry at", g.RetryAt, w.RetryAt)
		g.RetryAt = w.RetryAt
		d.check(g == w, "shadow refusal", g, w)
	}
}

// switchShadow puts a limit into shadow, or enforces it again.
func (h *historyState) switchShadow(t *rapid.T) {
	limit := &h.limits[rapid.IntRange(0, len(h.limits)-1).Draw(t, "limit")]
	limit.Shadow = !limit.Shadow
	t.Logf("limit %s %s in shadow: %t", limit.Limit, limit.Scope, limit.Shadow)
}

// missed are the shadow limits that would have refused.
func (f facts) missed(names []string, answer reservation.ReserveAnswer, now time.Time) {
	var missed []string
	for i, r := range answer.Shadow {
		missed = append(missed, names[r.Hold])
		if i == 0 {
			f["missed."+nameIn(reasonNames, r.Reason)], f["missed.asked"] = true, r.Asked
			f.span("missed.retry", r.RetryAt, now)
		}
	}
	f["missed"] = strings.Join(missed, ",")
}
