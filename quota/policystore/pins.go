package policystore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

// storedPin is the stored form of a pin, as those in stored.go.
type storedPin struct {
	Limit   string     `json:"limit,omitempty"`
	Plan    string     `json:"plan,omitempty"`
	Pool    string     `json:"pool,omitempty"`
	Account string     `json:"account,omitempty"`
	Mode    quota.Mode `json:"mode"`
	By      string     `json:"by"`
	Reason  string     `json:"reason,omitempty"`
	SinceUS int64      `json:"since_us"`
	UntilUS *int64     `json:"until_us,omitempty"`
}

func encodePin(p quota.Pin) (string, error) {
	stored := storedPin{
		Limit: p.Limit, Plan: p.Plan, Pool: p.Pool, Account: p.Account,
		Mode: p.Mode, By: p.By, Reason: p.Reason, SinceUS: p.Since.UnixMicro(),
	}
	if !p.Until.IsZero() {
		until := p.Until.UnixMicro()
		stored.UntilUS = &until
	}
	return encode(stored)
}

func decodePin(name, document string) (quota.Pin, error) {
	var stored storedPin
	if err := decode(document, &stored); err != nil {
		return quota.Pin{}, broken(KindPin, name, err)
	}
	pin := quota.Pin{
		Limit: stored.Limit, Plan: stored.Plan, Pool: stored.Pool, Account: stored.Account,
		Mode: stored.Mode, By: stored.By, Reason: stored.Reason, Since: fromMicros(stored.SinceUS),
	}
	if stored.UntilUS != nil {
		pin.Until = fromMicros(*stored.UntilUS)
	}
	if pin.Name() != name {
		return quota.Pin{}, broken(KindPin, name, fmt.Errorf("it is about %.140q", pin.Name()))
	}
	return pin, nil
}

func pinFields(p quota.Pin) []field {
	fields := []field{{"mode", p.Mode.Word()}}
	if p.Reason != "" {
		fields = append(fields, field{"reason", p.Reason})
	}
	if !p.Until.IsZero() {
		fields = append(fields, field{"until", p.Until.Format(time.RFC3339)})
	}
	return fields
}

// pins are all that are stored, also those that are over.
func (d documents) pins() ([]quota.Pin, error) {
	var pins []quota.Pin
	for _, name := range slices.Sorted(maps.Keys(d[KindPin])) {
		pin, err := decodePin(name, d[KindPin][name])
		if err != nil {
			return nil, err
		}
		pins = append(pins, pin)
	}
	return pins, nil
}

// pinned lays what is stored of pins above a policy.
func (d documents) pinned(policy *quota.Policy, at time.Time) (*quota.Policy, error) {
	pins, err := d.pins()
	if err != nil {
		return nil, err
	}
	return policy.WithPins(pins, at)
}

// PinLimits holds limits at a mode above the policy, until [Store.UnpinLimits] or, when
// span is not 0, until so much time from now has passed, by each node's clock. What
// the policy states is not changed, and a policy that is applied later does not
// change the pin. A pin of the same limits is replaced; stating one that has no end
// again, with the same mode and reason, changes nothing. By, Since and Until of
// the pin are set here. ifVersion is as [Options.IfVersion]. With dryRun it only says
// what would change.
//
// The error says which field is at fault ([quota.FieldError]), or wraps [ErrNotFound]
// when there is no such limit now, unless every limit everywhere is meant;
// [ErrVersionMoved], [ErrBroken] or [ErrUnavailable].
func (s *Store) PinLimits(ctx context.Context, pin quota.Pin, span time.Duration, by string, ifVersion *int64, dryRun bool) (Change, error) {
	if err := validateBy(by); err != nil {
		return Change{}, err
	}
	now := fromMicros(s.clock().UnixMicro())
	pin.By, pin.Since, pin.Until = by, now, time.Time{}
	if span != 0 {
		pin.Until = fromMicros(now.Add(span).UnixMicro())
	}
	if pin.Mode == "" {
		pin.Mode = quota.ModeEnforce
	}
	if err := pin.Validate(); err != nil {
		return Change{}, err
	}
	return s.editPins(ctx, by, ifVersion, dryRun, func(before snapshot, e *edit, pins map[string]quota.Pin) error {
		name := pin.Name()
		if pin.Limit != "" || pin.Plan != "" || pin.Pool != "" || pin.Account != "" {
			policy, err := before.unpinned()
			if err != nil {
				return err
			}
			if !policy.Covers(pin) {
				return refused{fmt.Errorf("%s: %w", name, ErrNotFound)}
			}
		}
		old, again := pins[name]
		if !again && len(pins) >= quota.MaxPins {
			return refused{&quota.FieldError{Field: "pins", Problem: fmt.Sprintf("%d are in force, which is the most; take some away, or pin every limit of a plan or account", len(pins))}}
		}
		new, err := encodePin(pin)
		if err != nil {
			return err
		}
		if again && old.Mode == pin.Mode && old.Reason == pin.Reason && old.Until.IsZero() && pin.Until.IsZero() {
			new = before.documents[KindPin][name]
		}
		document := before.documents[KindPin][name]
		if !again {
			document = "" // it had ended
		}
		e.put(KindPin, name, document, new)
		return nil
	})
}

// UnpinLimits takes away pins, so that the policy's modes count again: those of the
// limit, or all, and of the place only if one is stated. mode, reason and the rest of
// the pin are not looked at. ifVersion is as [Options.IfVersion]. With dryRun it only
// says what would change. The error wraps [ErrNotFound] when nothing is pinned there,
// unless all is meant; [ErrVersionMoved], [ErrBroken] or [ErrUnavailable].
func (s *Store) UnpinLimits(ctx context.Context, which Switch, by string, dryRun bool) (Change, error) {
	which.Mode = quota.ModeEnforce
	if err := errors.Join(validateBy(by), which.validate()); err != nil {
		return Change{}, err
	}
	return s.editPins(ctx, by, which.IfVersion, dryRun, func(before snapshot, e *edit, pins map[string]quota.Pin) error {
		anywhere := which.Plan == "" && which.Pool == "" && which.Account == ""
		for name, pin := range pins {
			if (which.All || pin.Limit == which.Limit) && (anywhere || pin.Plan == which.Plan && pin.Pool == which.Pool && pin.Account == which.Account) {
				e.put(KindPin, name, before.documents[KindPin][name], "")
			}
		}
		if !which.All && len(e.objects()) == 0 {
			hint := ""
			if slices.ContainsFunc(slices.Collect(maps.Values(pins)), func(p quota.Pin) bool { return p.Limit == "" }) {
				hint = "; every limit is, and those pins go together"
			}
			return refused{fmt.Errorf("limit %.140q is not pinned there%s: %w", which.Limit, hint, ErrNotFound)}
		}
		return nil
	})
}

// editPins changes the pins that are in force, by name, and has those that are over
// swept.
func (s *Store) editPins(ctx context.Context, by string, ifVersion *int64, dryRun bool, work func(before snapshot, e *edit, inForce map[string]quota.Pin) error) (Change, error) {
	edits := func(before snapshot) (edit, error) {
		if err := before.mustBeAt(ifVersion); err != nil {
			return edit{}, err
		}
		stored, err := before.pins()
		if err != nil {
			return edit{}, refused{err}
		}
		now := s.clock()
		e, inForce := newEdit(), make(map[string]quota.Pin)
		for _, pin := range stored {
			if pin.InForce(now) {
				inForce[pin.Name()] = pin
			} else {
				e.ended = append(e.ended, pin.Name())
			}
		}
		if err := work(before, &e, inForce); err != nil {
			return edit{}, err
		}
		if old, new, enforces := e.pinsAround(inForce, now); enforces {
			e.doubts = unpinnedDoubts(before, old, new)
		}
		return e, nil
	}
	if dryRun {
		return s.preview(ctx, edits)
	}
	return s.editWhole(ctx, by, edits)
}

// above is a policy of nothing but the pins in force.
func (s *Store) above(before snapshot) *quota.Policy {
	policy, err := before.pinned(&quota.Policy{}, s.clock())
	if err != nil {
		return &quota.Policy{}
	}
	return policy
}

// pinsAround are the pins before and after an edit of them, and whether it can enforce
// anything that was off.
func (e edit) pinsAround(inForce map[string]quota.Pin, at time.Time) (old, new *quota.Policy, enforces bool) {
	after := maps.Clone(inForce)
	for name, document := range e.new[KindPin] {
		delete(after, name)
		if document == "" {
			enforces = true
		} else if pin, err := decodePin(name, document); err == nil {
			after[name] = pin
			enforces = enforces || pin.Mode == quota.ModeEnforce
		}
	}
	if !enforces {
		return nil, nil, false
	}
	old, err := (&quota.Policy{}).WithPins(slices.Collect(maps.Values(inForce)), at)
	if err != nil {
		return nil, nil, false
	}
	new, err = (&quota.Policy{}).WithPins(slices.Collect(maps.Values(after)), at)
	return old, new, err == nil
}

// unpinned is the policy that is stored, without the pins above it.
func (s snapshot) unpinned() (*quota.Policy, error) {
	policy, err := s.documents.policy(&policyfile.Document{}, nil, s.version)
	if err != nil {
		return nil, refused{err}
	}
	return policy, nil
}

// beneathPins says of limits that a change states, and that pins hold, that what is
// stated of their modes does not count yet. limit is the one that is stated, "" for
// all that the objects have.
func (s *Store) beneathPins(policy *quota.Policy, before snapshot, stated map[Kind][]string, limit string) []string {
	policy, err := before.pinned(policy, s.clock())
	if err != nil || len(policy.Pins()) == 0 {
		return nil
	}
	counts := make(map[quota.Pin]int)
	for kind, names := range stated {
		for _, name := range names {
			var more map[quota.Pin]int
			switch kind {
			case KindPlan:
				more = policy.PinnedLimits(limit, name, "", "")
			case KindPool:
				more = policy.PinnedLimits(limit, "", name, "")
			case KindAccount:
				more = policy.PinnedLimits(limit, "", "", name)
			}
			for pin, n := range more {
				counts[pin] += n
			}
		}
	}
	pins := slices.SortedFunc(maps.Keys(counts), func(a, b quota.Pin) int { return cmp.Compare(a.Name(), b.Name()) })
	var warnings []string
	for i, pin := range pins {
		if i == maxWarnings {
			return append(warnings, fmt.Sprintf("and limits are held by %d more pins", len(pins)-i))
		}
		warnings = append(warnings, fmt.Sprintf("%s pinned %s; what is stated of the mode counts once \"budgetd limit unpin\" takes the pin away%s",
			limitsAre(counts[pin]), pin, orUntil(pin)))
	}
	return warnings
}

func limitsAre(n int) string {
	if n == 1 {
		return "1 limit is"
	}
	return fmt.Sprintf("%d limits are", n)
}

func orUntil(pin quota.Pin) string {
	if pin.Until.IsZero() {
		return ""
	}
	return " or it ends"
}

// switchedBeneathPins is beneathPins for limits that were switched.
func (s *Store) switchedBeneathPins(before snapshot, e edit, limit string) []string {
	policy, err := before.unpinned()
	if err != nil {
		return nil
	}
	switched := make(map[Kind][]string)
	for kind, objects := range e.new {
		switched[kind] = slices.Collect(maps.Keys(objects))
	}
	return s.beneathPins(policy, before, switched, limit)
}
