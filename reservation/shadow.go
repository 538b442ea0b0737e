package reservation

import (
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/budgetd/budgetd/quota"
)

// A shadow limit counts as if it were enforced, beside those that are, and
// refuses nobody. Where its hold does not fit, the reservation is made without
// it, as if the call had been refused by it: a missed hold takes 0, and what the
// call used later does not count in it either.

// Decides says that the engine decides something of the holds, which the stored
// token has to say: the output, or which shadow holds are missed.
func (r *ReserveRequest) Decides() bool { return r.Output != nil || r.Shadows() }

// Shadows says whether a hold is that of a shadow limit.
func (r *ReserveRequest) Shadows() bool {
	for i := range r.Holds { // by index: holds are large, and every Reserve asks
		if r.Holds[i].Shadow {
			return true
		}
	}
	return false
}

// Granting is the request as a shadow hold is compared with it: for the output
// that was granted, whatever less the caller would have taken.
func (r *ReserveRequest) Granting(d Decided) *ReserveRequest {
	if r.Output == nil {
		return r
	}
	granting, output := *r, *r.Output
	output.Least = d.Tokens
	granting.Output = &output
	return &granting
}

// Miss notes that hold i, of n, is missed.
func (d *Decided) Miss(i, n int) {
	if d.Missed == nil {
		d.Missed = make([]bool, n)
	}
	d.Missed[i] = true
	if i < len(d.Forecast) {
		d.Forecast[i] = false
	}
}

// missed says whether hold i is.
func (d *Decided) missed(i int) bool { return i < len(d.Missed) && d.Missed[i] }

// Taken is what each hold took.
func (r *ReserveRequest) Taken(d Decided) []Taken {
	var taken []Taken
	if r.Output != nil {
		taken = r.Output.Taken(r.Holds, d)
	} else {
		taken = make([]Taken, len(r.Holds))
		for i := range r.Holds {
			taken[i].Amount = r.Holds[i].Amount
		}
	}
	for i := range taken {
		if d.missed(i) {
			taken[i] = Taken{}
		}
	}
	return taken
}

// shadows says whether a hold of the reservation is that of a shadow limit.
func (t *reservationToken) shadows() bool {
	for i := range t.Holds {
		if t.Holds[i].Shadow {
			return true
		}
	}
	return false
}

// undecided says that the engine has something to decide.
func (t *reservationToken) undecided() bool { return t.output() != nil || t.Shadowing }

// miss makes the token the one of the shadow holds that were missed.
func (t *reservationToken) miss(d Decided) error {
	for i := range t.Holds {
		h := &t.Holds[i]
		if !d.missed(i) {
			continue
		}
		if !h.Shadow {
			return errBadToken
		}
		h.leaveOut()
	}
	t.Shadowing = false
	return nil
}

// leaveOut makes a hold a missed one.
func (h *plannedHold) leaveOut() { h.Missed, h.Wanted, h.Amount, h.Risk = true, h.Amount, 0, 0 }

// leaveOutShadows does so for quotas that can't be seeded now, if none of them is
// enforced: what is only watched must not stand in a call's way.
func (w *work) leaveOutShadows(b *Broker, tickets []Ticket) (left bool, err error) {
	for _, ticket := range tickets {
		if !w.token.Holds[ticket.Hold].Shadow {
			return false, nil
		}
	}
	for _, ticket := range tickets {
		h := &w.token.Holds[ticket.Hold]
		h.leaveOut()
		h.Wanted = 0 // nobody knows whether it would have refused
	}
	w.raw, err = w.token.seal(b.Keys)
	return err == nil, err
}

// withoutMissed is the outcome without what missed holds do not count.
func (t *reservationToken) withoutMissed(o outcome) outcome {
	o.Shadow = t.wouldRefuse()
	cloned := false
	for i := range t.Holds {
		if t.Holds[i].Missed && i < len(o.Actual) && o.Actual[i] != 0 {
			if !cloned {
				o.Actual, cloned = slices.Clone(o.Actual), true
			}
			o.Actual[i] = 0
		}
	}
	return o
}

// ShadowRefusal is what remains known of a limit that would have refused a
// reservation.
type ShadowRefusal struct {
	Limit, Pool, Scope string
	Meter              quota.Meter
	Reason             Reason
	Asked              quota.Amount
}

// wouldRefuse is missedLimits as it is kept.
func (t *reservationToken) wouldRefuse() []ShadowRefusal {
	var refusals []ShadowRefusal
	for _, l := range t.missedLimits() {
		refusals = append(refusals, ShadowRefusal{Limit: l.Limit, Pool: l.Pool, Scope: l.Scope, Meter: l.Meter, Reason: l.Reason, Asked: l.Asked})
	}
	return refusals
}

// missedLimits lists the limits whose holds were missed. The levels of the time are
// not known.
func (t *reservationToken) missedLimits() []RefusedLimit {
	var limits []RefusedLimit
	for i := range t.Holds {
		h := &t.Holds[i]
		if h.Missed && h.Wanted > 0 {
			limits = append(limits, h.refused(h.missedBy(), h.Wanted))
		}
	}
	return limits
}

// missedBy is why a missed hold did not fit.
func (h *plannedHold) missedBy() Reason {
	switch {
	case h.Wanted > h.Capacity():
		return ExceedsCapacity
	case h.Kind == quota.KindSlots:
		return ConcurrencyLimited
	case h.Kind == quota.KindQuota:
		return QuotaExhausted
	}
	return RateLimited
}

// Marks of holds in a token: one byte each, none at all without shadow holds.
const (
	markEnforced = '0'
	markShadow   = '1'
	markMissed   = '2'
)

func appendShadows(b []byte, t *reservationToken) []byte {
	if !t.shadows() {
		return msgp.AppendString(b, "")
	}
	marks := make([]byte, len(t.Holds))
	for i := range t.Holds {
		switch h := &t.Holds[i]; {
		case h.Missed:
			marks[i] = markMissed
		case h.Shadow:
			marks[i] = markShadow
		default:
			marks[i] = markEnforced
		}
	}
	b = msgp.AppendString(b, string(marks))
	for i := range t.Holds {
		if t.Holds[i].Missed {
			b = msgp.AppendInt64(b, int64(t.Holds[i].Wanted))
		}
	}
	return b
}

func (r *reader) shadows(t *reservationToken) {
	marks := r.text()
	if marks == "" {
		return
	}
	if len(marks) != len(t.Holds) {
		r.err = errBadToken
		return
	}
	for i := range t.Holds {
		t.Holds[i].Shadow = marks[i] != markEnforced
		if marks[i] == markMissed {
			t.Holds[i].Missed, t.Holds[i].Wanted = true, quota.Amount(r.integer())
		}
	}
}

func appendShadowRefusals(b []byte, refusals []ShadowRefusal) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(refusals)))
	for _, s := range refusals {
		for _, text := range []string{s.Limit, s.Pool, s.Scope, string(s.Meter)} {
			b = msgp.AppendString(b, text)
		}
		b = msgp.AppendInt64(b, int64(s.Reason))
		b = msgp.AppendInt64(b, int64(s.Asked))
	}
	return b
}

func (r *reader) shadowRefusals() []ShadowRefusal {
	var refusals []ShadowRefusal
	for range r.length(MaxHolds) {
		refusals = append(refusals, ShadowRefusal{
			Limit: r.text(), Pool: r.text(), Scope: r.text(), Meter: quota.Meter(r.text()),
			Reason: Reason(r.integer()), Asked: quota.Amount(r.integer()),
		})
	}
	return refusals
}
