package policystore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/budgetd/budgetd/quota"
)

const (
	maxWarnings = 20  // of one kind that are made about one change
	maxLookups  = 500 // histories of objects that are read for one change
	maxLookBack = 200 // changes of an object that are read, the newest first
)

// doubt is a limit that a change enforces and that was not in force just before. It
// is a warning unless the history has it in shadow.
type doubt struct {
	kind  Kind
	name  string
	limit quota.Limit
	plan  string // of an account: its plan, whose limit this may be

	// upTo, unless zero, asks whether the limit was in force at that time, enforced or
	// in shadow: it was pinned off since, and only comes back.
	upTo time.Time
}

func (d doubt) String() string {
	return fmt.Sprintf("limit %s of %s %s is enforced and was not in shadow before: mode: shadow shows what it would refuse", d.limit.Name, d.kind, d.name)
}

// unwatched doubts limits that a change enforces in what was stored before, and that
// were not in shadow just before: they were not there, or off. What the first policy
// states and what a new plan has meets nobody yet, and what a pin of those above holds
// in shadow is watched now.
func (e edit) unwatched(before snapshot, above *quota.Policy) []doubt {
	if len(before.documents[KindPlan])+len(before.documents[KindPool])+len(before.documents[KindAccount]) == 0 {
		return nil
	}
	var doubts []doubt
	for _, kind := range []Kind{KindPlan, KindPool, KindAccount} {
		for _, name := range slices.Sorted(maps.Keys(e.new[kind])) {
			old, new := e.old[kind][name], e.new[kind][name]
			if new == "" || old == new || old == "" && kind != KindPool {
				continue
			}
			known, plan := limitsIn(kind, name, old), ""
			if kind == KindAccount {
				// An override of a plan's limit is no new limit.
				if o, err := decodeObject(kind, name, new); err == nil {
					plan = o.account.Plan
					known = append(limitsIn(KindPlan, plan, e.latest(before.documents, KindPlan, plan)), known...)
				}
			}
			for _, limit := range limitsIn(kind, name, new) {
				isKnown := slices.ContainsFunc(known, func(l quota.Limit) bool { return isOf(l, limit) && l.Mode != quota.ModeOff })
				d := doubt{kind: kind, name: name, limit: limit, plan: plan}
				if pin := d.pinOf(above); limit.Mode != "" || isKnown || pin != nil && pin.Mode == quota.ModeShadow {
					continue
				}
				doubts = append(doubts, d)
			}
		}
	}
	return doubts
}

// pinOf is the pin above that counts for the limit; nil for none.
func (d doubt) pinOf(above *quota.Policy) *quota.Pin {
	switch d.kind {
	case KindPlan:
		return above.PinOf(d.limit.Name, d.name, "", "")
	case KindPool:
		return above.PinOf(d.limit.Name, "", d.name, "")
	}
	return above.PinOf(d.limit.Name, d.plan, "", d.name)
}

// unpinnedDoubts doubts limits that a change of pins enforces, and that were off. Of
// those that a pin had turned off the ones that were in force before it only come back.
func unpinnedDoubts(before snapshot, old, new *quota.Policy) []doubt {
	var doubts []doubt
	consider := func(d doubt, was, will *quota.Pin) {
		if inForceBeneath(d.limit, was) != quota.ModeOff || inForceBeneath(d.limit, will) != quota.ModeEnforce {
			return
		}
		if was != nil && d.limit.Mode != quota.ModeOff {
			d.upTo = was.Since
		}
		doubts = append(doubts, d)
	}
	for _, kind := range []Kind{KindPlan, KindPool, KindAccount} {
		for _, name := range slices.Sorted(maps.Keys(before.documents[kind])) {
			document := before.documents[kind][name]
			if kind == KindAccount && !strings.Contains(document, `"limits"`) {
				continue // most accounts have none of their own, and there may be a million
			}
			o, err := decodeObject(kind, name, document)
			if err != nil {
				continue
			}
			for _, limit := range limitsIn(kind, name, document) {
				d := doubt{kind: kind, name: name, limit: limit, plan: o.account.Plan}
				consider(d, d.pinOf(old), d.pinOf(new))
			}
		}
	}
	for _, account := range pinnedAccounts(old, new) {
		a, err := decodeAccount(account, before.documents[KindAccount][account])
		if err != nil {
			continue
		}
		for _, limit := range limitsIn(KindPlan, a.Plan, before.documents[KindPlan][a.Plan]) {
			if slices.ContainsFunc(a.Overrides, func(l quota.Limit) bool { return l.Name == limit.Name }) {
				continue
			}
			was, will := old.PinOf(limit.Name, a.Plan, "", account), new.PinOf(limit.Name, a.Plan, "", account)
			if was != nil && was.Account != "" || will != nil && will.Account != "" {
				consider(doubt{kind: KindPlan, name: a.Plan, limit: limit}, was, will)
			}
		}
	}
	return doubts
}

// pinnedAccounts are those that have pins of their own, by name.
func pinnedAccounts(policies ...*quota.Policy) []string {
	var names []string
	for _, policy := range policies {
		for _, pin := range policy.Pins() {
			if pin.Account != "" {
				names = append(names, pin.Account)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// inForceBeneath is the mode of a limit beneath a pin, which may be nil.
func inForceBeneath(limit quota.Limit, pin *quota.Pin) quota.Mode {
	if pin != nil {
		return pin.Mode
	}
	return quota.Mode(limit.Mode.Word())
}

// isOf says that two limits have one name and one counter.
func isOf(l, other quota.Limit) bool { return l.Name == other.Name && l.ID() == other.ID() }

// settle turns those doubts into warnings that the history does not dispel.
func (e *edit) settle(ctx context.Context, from queryer) error {
	var said []string
	histories := make(map[Kind]map[string][]pastLimits)
	lookups := 0
	look := func(kind Kind, name string) ([]pastLimits, error) {
		past, known := histories[kind][name]
		if known || lookups == maxLookups {
			return past, nil
		}
		lookups++
		past, err := readPast(ctx, from, kind, name)
		if histories[kind] == nil {
			histories[kind] = make(map[string][]pastLimits)
		}
		histories[kind][name] = past
		return past, err
	}
	for _, d := range e.doubts {
		past, err := look(d.kind, d.name)
		if err == nil && d.plan != "" {
			var more []pastLimits
			more, err = look(KindPlan, d.plan)
			past = slices.Concat(past, more)
		}
		if err != nil {
			return err
		}
		if d.dispelled(past) || slices.Contains(said, d.String()) {
			continue
		}
		if len(said) == maxWarnings {
			said = append(said, "and more limits")
			break
		}
		said = append(said, d.String())
	}
	e.warnings, e.doubts = append(said, e.warnings...), nil
	return nil
}

func (d doubt) dispelled(past []pastLimits) bool {
	for _, then := range past {
		for _, limit := range then.limits {
			if !isOf(limit, d.limit) {
				continue
			}
			if limit.Mode == quota.ModeShadow || !d.upTo.IsZero() && !then.at.After(d.upTo) && limit.Mode != quota.ModeOff {
				return true
			}
		}
	}
	return false
}

// pastLimits are the limits that an object had from an instant on.
type pastLimits struct {
	at     time.Time
	limits []quota.Limit
}

func readPast(ctx context.Context, from queryer, kind Kind, name string) ([]pastLimits, error) {
	rows, err := from.QueryContext(ctx, `SELECT changed_at_us, new_document FROM policy_changes
		WHERE kind = $1 AND name = $2 AND new_document IS NOT NULL ORDER BY version DESC LIMIT $3`, string(kind), name, maxLookBack)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var past []pastLimits
	for rows.Next() {
		var at int64
		var document string
		if err := rows.Scan(&at, &document); err != nil {
			return nil, err
		}
		past = append(past, pastLimits{fromMicros(at), limitsIn(kind, name, document)})
	}
	return past, rows.Err()
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
