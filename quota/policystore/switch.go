package policystore

import (
	"context"
	"errors"
	"fmt"

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
		if err != nil {
			return edit{}, err
		}
		e.doubts = e.unwatched(before, s.above(before))
		if len(before.documents[KindPin]) > 0 {
			e.warnings = s.switchedBeneathPins(before, e, w.Limit)
		}
		return e, nil
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
