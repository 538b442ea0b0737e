package reservation

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// plan is what an ask comes to: its holds in the order of the limits, with the
// rule that applies to each limit when the engine does not answer.
type plan struct {
	account quota.Account
	holds   []plannedHold
	limits  []*quota.Limit // beside holds
}

// newPlan finds the limits that a call meets and what it asks of each. It is a
// pure function of its arguments. Slots are left out of a charge, which has no
// duration. A counter that several views meet takes the largest amount.
func newPlan(policy *quota.Policy, account string, views []View, at time.Time, charge bool) (plan, error) {
	p := plan{}
	seen := map[Counter]int{}
	for i, view := range views {
		applied, err := policy.Applied(account, view.Labels)
		if errors.Is(err, quota.ErrUnknownAccount) {
			return plan{}, fmt.Errorf("account %q: %w", account, ErrNotFound)
		}
		if err != nil {
			return plan{}, err
		}
		applied = append(applied, policy.Pinned(account, view.Extra)...)
		if p.holds == nil {
			p.account = policy.Accounts[account]
			p.holds, p.limits = make([]plannedHold, 0, len(applied)), make([]*quota.Limit, 0, len(applied))
		}
		for _, a := range applied {
			if charge && a.Limit.Kind == quota.KindSlots || a.Mode == quota.ModeOff {
				continue
			}
			hold, err := viewedHold(policy, p.account, a, view, at)
			if err != nil {
				return plan{}, err
			}
			if len(views) > 1 {
				hold.Views = 1 << i
				if at, met := seen[hold.Counter]; met {
					before := &p.holds[at]
					hold.Views |= before.Views
					if hold.Amount <= before.Amount {
						before.Views = hold.Views
					} else {
						*before = hold
					}
					continue
				}
				seen[hold.Counter] = len(p.holds)
			}
			if len(p.holds) == MaxHolds {
				return plan{}, &InvalidError{Field: "account", Problem: fmt.Sprintf("account %q has too many limits", account), Bound: fmt.Sprintf("at most %d for one call", MaxHolds)}
			}
			p.limits = append(p.limits, a.Limit)
			p.holds = append(p.holds, hold)
		}
	}
	return p, nil
}

// viewedHold is what a view of a call asks of a limit.
func viewedHold(policy *quota.Policy, account quota.Account, a quota.Applied, view View, at time.Time) (plannedHold, error) {
	if a.Limit.Kind == quota.KindQuota && len(a.Scope) > ledger.MaxTextBytes {
		return plannedHold{}, &InvalidError{
			Field:   "labels",
			Problem: fmt.Sprintf("their values make a scope of %d bytes for quota %q", len(a.Scope), a.Limit.Name),
			Bound:   fmt.Sprintf("at most %d bytes; shorten the values of %s", ledger.MaxTextBytes, strings.Join(a.Limit.Per, ", ")),
		}
	}
	amount, err := a.Limit.Ask(view.Amounts, view.Labels)
	if err != nil {
		return plannedHold{}, &InvalidError{Field: fmt.Sprintf("amounts[%q]", a.Limit.Meter), Problem: err.Error()}
	}
	hold := newHold(policy, account, a, amount, at)
	hold.Weight = a.Limit.Weight(view.Labels)
	return hold, nil
}

// newHold is a hold without its weight.
func newHold(policy *quota.Policy, account quota.Account, a quota.Applied, amount quota.Amount, at time.Time) plannedHold {
	h := plannedHold{
		Hold: Hold{
			Counter:  Counter{Pool: a.Pool, Limit: a.ID, Scope: a.Scope},
			Kind:     a.Limit.Kind,
			Amount:   amount,
			OnExpiry: a.Limit.OnExpiry,
			Shadow:   a.Mode == quota.ModeShadow,

			CountRefusals: a.Limit.CountRefusals,
			Ban:           a.Limit.Ban,
			Fair:          a.Limit.Fair && a.Pool != "",
		},
		Name:  a.Limit.Name,
		Meter: a.Limit.Meter,
		Soft:  a.Limit.Soft,
	}
	if a.Limit.Kind == quota.KindQuota {
		h.Period = account.PeriodAt(a.Limit.Period, at)
	}
	h.measure(policy, account, a, at)
	return h
}

// measure gives the hold the parameters that the policy has for its limit; a quota's
// are those of the hold's period.
func (h *Hold) measure(policy *quota.Policy, account quota.Account, a quota.Applied, at time.Time) {
	switch {
	case h.Kind.IsLevel():
		h.Bucket = a.Limit.Bucket()
	case h.Kind.IsWindow():
		h.Window = a.Limit.Window()
	case h.Kind == quota.KindSlots:
		h.Max = a.Limit.Max
	case h.Kind == quota.KindQuota:
		h.Max = policy.Allowance(account, a, h.Period, at).Max
	}
}

// refused is a refusal of the hold's limit, without what only the engine knows.
func (h *plannedHold) refused(reason Reason, asked quota.Amount) RefusedLimit {
	return RefusedLimit{
		Reason: reason, Limit: h.Name, Pool: h.Pool, Scope: h.Scope, Meter: h.Meter, Kind: h.Kind, Views: h.Views,
		Asked: asked, Max: h.Capacity(), Window: h.window(), Ban: h.Ban,
	}
}

// keepFor has each hold leave what its limit keeps from calls of the priority.
func (p plan) keepFor(priority quota.Priority) {
	for i, limit := range p.limits {
		if len(limit.KeepFor) > 0 {
			p.holds[i].Keep = limit.Kept(priority)
		}
	}
}

// closedLimit returns the first limit whose rule is to refuse while the engine
// does not answer, or nil when every limit is open.
func (p plan) closedLimit() *quota.Limit {
	for i, limit := range p.limits {
		if !p.holds[i].Shadow && limit.WhenDown != quota.DownOpen {
			return limit
		}
	}
	return nil
}

// enforced counts the limits that may refuse.
func (p plan) enforced() int {
	n := 0
	for i := range p.limits {
		if !p.holds[i].Shadow {
			n++
		}
	}
	return n
}

// Capacity is the most that a call could ever take from the hold's counter.
func (h *Hold) Capacity() quota.Amount {
	switch {
	case h.Kind.IsLevel():
		return h.Bucket.Capacity
	case h.Kind.IsWindow():
		return h.Window.Max
	}
	return h.Max
}

// window is the span that a limit counts over, for the RateLimit-Policy header.
func (h *Hold) window() time.Duration {
	switch {
	case h.Kind.IsLevel():
		micros := h.Bucket.MicrosUntil(0, 0, h.Bucket.Capacity)
		if micros >= int64(maxWindow/time.Microsecond) {
			return maxWindow
		}
		return (time.Duration(micros)*time.Microsecond + time.Second - 1).Truncate(time.Second)
	case h.Kind.IsWindow():
		return (time.Duration(h.Window.Length)*time.Microsecond + time.Second - 1).Truncate(time.Second)
	case h.Kind == quota.KindQuota:
		return h.Period.End.Sub(h.Period.Start)
	}
	return 0
}

// maxWindow bounds what is reported for buckets that take centuries to fill.
const maxWindow = 100 * 365 * 24 * time.Hour

// seen is the engine's level as callers see it.
func (h *plannedHold) seen(level Level) Level {
	if h.Soft {
		level.Remaining -= quota.MaxAmount - h.Max
	}
	level.Remaining -= h.Keep
	return level
}

func (h *plannedHold) shown(level Level, known bool) HeldLimit {
	if known {
		level = h.seen(level)
	}
	return HeldLimit{
		Limit: h.Name, Pool: h.Pool, Scope: h.Scope, Meter: h.Meter, Amount: h.Amount,
		Max: h.Capacity(), Window: h.window(), Views: h.Views, Level: level, LevelKnown: known, Shadow: h.Shadow,
	}
}

// shown lists the holds that took something, with the levels where the engine
// told them.
func (t *reservationToken) shown(levels []Level) []HeldLimit {
	shown := make([]HeldLimit, 0, len(t.Holds))
	for i := range t.Holds {
		h := &t.Holds[i]
		if h.Amount == 0 {
			continue
		}
		if i < len(levels) {
			shown = append(shown, h.shown(levels[i], true))
		} else {
			shown = append(shown, h.shown(Level{}, false))
		}
	}
	return shown
}
