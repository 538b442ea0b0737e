package policystore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/budgetd/budgetd/quota"
)

// Switch names limits and the mode that they get.
type Switch struct {
	Limit string // its name; with All, ""
	All   bool   // every limit

	// Where the limits are; at most one is stated. None: wherever they are.
	Plan, Pool, Account string

	Mode quota.Mode
	// IfVersion is as [Options.IfVersion].
	IfVersion *int64
}

func (w Switch) validate() error {
	places := 0
	for _, place := range []string{w.Plan, w.Pool, w.Account} {
		if place != "" {
			places++
		}
	}
	switch {
	case w.All == (w.Limit != ""):
		return errors.New("limit: name one limit, or say that all are meant, and not both")
	case places > 1:
		return errors.New("plan, pool, account: at most one of them says where the limits are")
	}
	if _, ok := quota.ParseMode(w.Mode.Word()); !ok {
		return fmt.Errorf("mode: %.40q is not one; write enforce, shadow or off", w.Mode)
	}
	return nil
}

// change sets the mode of the limits that are meant, and says whether there are
// any.
func (w Switch) change(limits []quota.Limit) bool {
	met := false
	for i := range limits {
		if w.All || limits[i].Name == w.Limit {
			met = true
			if limits[i].Mode = w.Mode; w.Mode == quota.ModeEnforce {
				limits[i].Mode = ""
			}
		}
	}
	return met
}

// SwitchLimits changes the mode of limits, as one change of the policy. With
// dryRun it only says what would change. What is stored is changed: a policy that
// is applied later states the modes anew, and a limit that is pinned stays at the
// pin's mode; see [Store.PinLimits]. The error wraps [ErrNotFound] when no
// limit is meant, [ErrVersionMoved], [ErrBroken] or [ErrUnavailable].
func (s *Store) SwitchLimits(ctx context.Context, w Switch, by string, dryRun bool) (Change, error) {
	if err := errors.Join(validateBy(by), w.validate()); err != nil {
		return Change{}, err
	}
	edits := func(before snapshot) (edit, error) {
		e, err := w.edit(before)
		if err == nil && len(before.documents[KindPin]) > 0 {
			e.warnings = append(e.warnings, s.switchedBeneathPins(before, e, w.Limit)...)
		}
		return e, err
	}
	if dryRun {
		return s.preview(ctx, edits)
	}
	return s.editWhole(ctx, by, edits)
}

func (w Switch) edit(before snapshot) (edit, error) {
	if err := before.mustBeAt(w.IfVersion); err != nil {
		return edit{}, err
	}
	e := newEdit()
	for kind, only := range map[Kind]string{KindPlan: w.Plan, KindPool: w.Pool, KindAccount: w.Account} {
		if only == "" && (w.Plan != "" || w.Pool != "" || w.Account != "") {
			continue
		}
		for name, document := range before.documents[kind] {
			if only != "" && name != only {
				continue
			}
			switched, met, err := w.document(kind, name, document)
			if err != nil {
				return edit{}, refused{err}
			}
			if met {
				e.put(kind, name, document, switched)
			}
		}
	}
	if len(e.objects()) == 0 {
		return edit{}, refused{fmt.Errorf("limit %.140q there: %w", w.Limit, ErrNotFound)}
	}
	e.warnings = e.unwatched(before.documents)
	return e, nil
}

// document is an object with the limits switched that are meant.
func (w Switch) document(kind Kind, name, document string) (switched string, met bool, err error) {
	o, err := decodeObject(kind, name, document)
	if err != nil {
		return "", false, err
	}
	switch kind {
	case KindPlan:
		met = w.change(o.plan.Limits)
		switched, err = encodePlan(o.plan)
	case KindPool:
		limits := []quota.Limit{o.pool.Limit}
		met = w.change(limits)
		o.pool.Limit = limits[0]
		switched, err = encodePool(o.pool)
	default:
		met = w.change(o.account.Overrides)
		switched, err = encodeAccount(o.account)
	}
	return switched, met, err
}

// maxWarnings bounds what is said about one change.
const maxWarnings = 20

// unwatched warns of limits that a change enforces in what was stored before, and
// that were not in shadow: they were not there, or off. What the first policy
// states and what a new plan has meets nobody yet.
func (e edit) unwatched(before documents) []string {
	if len(before[KindPlan])+len(before[KindPool])+len(before[KindAccount]) == 0 {
		return nil
	}
	var warnings []string
	for _, kind := range []Kind{KindPlan, KindPool, KindAccount} {
		for _, name := range slices.Sorted(maps.Keys(e.new[kind])) {
			old, new := e.old[kind][name], e.new[kind][name]
			if new == "" || old == new || old == "" && kind != KindPool {
				continue
			}
			known := limitsIn(kind, name, old)
			if kind == KindAccount {
				// An override of a plan's limit is no new limit.
				if o, err := decodeObject(kind, name, new); err == nil {
					known = append(limitsIn(KindPlan, o.account.Plan, e.latest(before, KindPlan, o.account.Plan)), known...)
				}
			}
			for _, limit := range limitsIn(kind, name, new) {
				at := slices.IndexFunc(known, func(l quota.Limit) bool {
					return l.Name == limit.Name && l.ID() == limit.ID() && l.Mode != quota.ModeOff
				})
				if limit.Mode != "" || at >= 0 {
					continue
				}
				if len(warnings) == maxWarnings {
					return append(warnings, "and more limits")
				}
				warnings = append(warnings, fmt.Sprintf("limit %s of %s %s is enforced and was not in shadow before: mode: shadow shows what it would refuse", limit.Name, kind, name))
			}
		}
	}
	return warnings
}

// latest is an object as it will be.
func (e edit) latest(before documents, kind Kind, name string) string {
	if new := e.new[kind][name]; new != "" {
		return new
	}
	return before[kind][name]
}

// limitsIn are the limits of a stored object; none of one that can't be read.
func limitsIn(kind Kind, name, document string) []quota.Limit {
	if document == "" {
		return nil
	}
	o, err := decodeObject(kind, name, document)
	switch {
	case err != nil:
		return nil
	case kind == KindPlan:
		return o.plan.Limits
	case kind == KindPool:
		return []quota.Limit{o.pool.Limit}
	}
	return o.account.Overrides
}
