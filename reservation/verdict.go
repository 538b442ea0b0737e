package reservation

import (
	"time"

	"github.com/budgetd/budgetd/quota"
)

// Renewal is what a Renew asks.
type Renewal struct {
	Lease *time.Duration // how long the lease runs from now; nil: as it was made
	// Usage is what the call used so far, in all; a meter that it does not name, 0. It
	// asks for a verdict, and states nothing where nothing was used. nil: not told.
	Usage *Usage
}

// Renewed is its answer.
type Renewed struct {
	ExpiresAt time.Time
	Verdict   Verdict       // with a Usage
	Remaining quota.Amounts // with a Usage: what may still be used of each meter that decides
	Tightest  *Tightest     // of what decided that it is not GoOn
}

// Verdict says what a call under way should do.
type Verdict uint8

// The verdicts.
const (
	NoVerdict Verdict = iota
	GoOn              // less than WindDownShare of what may be used is used
	WindDown          // end within Remaining
	Stop              // nothing is left
)

// WindDownShare is the share of what a call may use in all, in percent, from which
// on it is told to wind down.
const WindDownShare = 80

// Tightest is what has the smallest share left.
type Tightest struct {
	Reason StopReason
	Limit  string // its name; "" with AccountRemoved
	Pool   string
	Scope  string
	Meter  quota.Meter
}

// StopReason is why a verdict is not GoOn.
type StopReason uint8

// The reasons.
const (
	LimitUsed      StopReason = iota + 1 // the hold, and what its limit has left, are used or nearly so
	EnvelopeUsed                         // what its envelope granted is, or what it was granted as one
	AccountRemoved                       // the policy has no such account any more
)

// usedSoFar is what each hold of the reservation has used, by the caller's account.
func (t *reservationToken) usedSoFar(reported report) ([]quota.Amount, error) {
	used := make([]quota.Amount, len(t.Holds))
	for i := range t.Holds {
		h := &t.Holds[i]
		if h.Kind == quota.KindSlots || h.Missed {
			continue
		}
		amount, err := h.weighed(reported.amounts[h.Meter])
		if err != nil {
			return nil, err
		}
		used[i] = amount
	}
	return used, nil
}

// peek is the reservation's holds as the present policy has their limits, and which
// of them decide: those that an enforced limit stands for, of what grows while the
// call runs. A request is whole from its start, and so is the input of a model call.
func (t *reservationToken) peek(policy *quota.Policy) (holds []Hold, decides []bool, err error) {
	limits, err := policy.Limits(t.Account)
	if err != nil {
		return nil, nil, err
	}
	account := policy.Accounts[t.Account]
	holds, decides = t.holds(), make([]bool, len(t.Holds))
	for i := range holds {
		h := &t.Holds[i]
		for _, a := range limits {
			if a.Pool != h.Pool || a.ID != h.Limit || a.Limit.Kind != h.Kind {
				continue
			}
			holds[i].measure(policy, account, a, t.ID.Minted())
			whole := h.Meter == quota.MeterRequests || t.Output != nil && h.Meter == quota.MeterInputTokens
			decides[i] = a.Mode != quota.ModeShadow && a.Mode != quota.ModeOff && !a.Limit.Soft && !h.Missed && h.Kind != quota.KindSlots && !whole
		}
	}
	return holds, decides, nil
}

// verdict is what the standing of its holds comes to.
func (t *reservationToken) verdict(answer *RenewAnswer, decides []bool) Renewed {
	r := Renewed{ExpiresAt: answer.ExpiresAt, Verdict: GoOn, Remaining: quota.Amounts{}}
	var tightest share
	for i := range answer.Standing {
		h, st := &t.Holds[i], &answer.Standing[i]
		if !decides[i] || st.Granted == 0 && st.Used == 0 {
			continue
		}
		room, reason := st.Left-st.Used, LimitUsed
		switch {
		case answer.Envelope && st.Granted > 0:
			reason = EnvelopeUsed // it never has more
		case st.Funded:
			reason = EnvelopeUsed
			room += st.Room
		case !st.Level.Seeded:
			continue // a quota whose counter was just lost says nothing
		default:
			room += max(0, st.Level.Remaining)
		}
		room = min(max(0, room), quota.MaxAmount)
		left := room
		if h.Weight > 1 {
			left = room / h.Weight
		}
		if known, stated := r.Remaining[h.Meter]; !stated || left < known {
			r.Remaining[h.Meter] = left
		}
		verdict := GoOn
		own := share{room: room, spent: st.Granted - st.Left + st.Used}
		switch {
		case room == 0 && !(answer.Envelope && answer.Company):
			verdict = Stop
		case own.isNearlyUsed():
			verdict = WindDown // or its calls hold all of it, and may give some back
		}
		r.Verdict = max(r.Verdict, verdict)
		if verdict != GoOn && (r.Tightest == nil || own.tighter(tightest)) {
			tightest = own
			r.Tightest = &Tightest{Reason: reason, Limit: h.Name, Pool: h.Pool, Scope: h.Scope, Meter: h.Meter}
		}
	}
	return r
}

// share is what is left of a hold, with all there is beyond it, beside what is spent.
type share struct{ room, spent quota.Amount }

// isNearlyUsed says that WindDownShare percent are spent: spent/(spent+room) is that
// at least.
func (s share) isNearlyUsed() bool {
	return quota.CompareProducts(uint64(s.spent), 100-WindDownShare, uint64(s.room), WindDownShare) >= 0
}

// tighter says that a smaller share is left than of the other.
func (s share) tighter(than share) bool {
	return quota.CompareProducts(uint64(s.room), uint64(than.spent), uint64(than.room), uint64(s.spent)) < 0
}
