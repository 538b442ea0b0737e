package policystore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// field is one field of an object as people write it.
type field struct{ path, value string }

// object is a plan, a pool, an account or the prices of a model, decoded.
type object struct {
	plan    quota.Plan
	pool    quota.Pool
	account quota.Account
	prices  []quota.ModelPrice
	pin     quota.Pin
}

func decodeObject(kind Kind, name, document string) (o object, err error) {
	switch kind {
	case KindPlan:
		o.plan, err = decodePlan(name, document)
	case KindPool:
		o.pool, err = decodePool(name, document)
	case KindAccount:
		o.account, err = decodeAccount(name, document)
	case KindPrice:
		o.prices, err = decodePrices(name, document)
	case KindPin:
		o.pin, err = decodePin(name, document)
	default:
		err = fmt.Errorf("%w: %.40q is not a kind of object", ErrBroken, kind)
	}
	return o, err
}

// fieldsOf returns the fields of a stored document, in the order in which they
// are shown. One that this version can't read has a single field, its text.
func fieldsOf(kind Kind, name, document string) []field {
	if document == "" {
		return nil
	}
	o, err := decodeObject(kind, name, document)
	if err != nil {
		return []field{{"document", document}}
	}
	var fields []field
	switch kind {
	case KindPlan:
		fields = limitsFields(o.plan.Limits)
	case KindPool:
		fields = limitFields("", o.pool.Limit)
	case KindAccount:
		fields = append([]field{
			{"plan", o.account.Plan},
			{"time_zone", o.account.TimeZone},
			{"anchor_day", strconv.Itoa(o.account.AnchorDay)},
		}, limitsFields(o.account.Overrides)...)
		fields = append(fields, grantsFields(o.account.Grants)...)
	case KindPrice:
		fields = pricesFields(o.prices)
	case KindPin:
		fields = pinFields(o.pin)
	}
	return fields
}

// orderPath is the path of the order of limits, which is that of the holds of a
// decision.
const orderPath = "order"

func limitsFields(limits []quota.Limit) []field {
	var fields []field
	names := make([]string, len(limits))
	for i, limit := range limits {
		names[i] = limit.Name
		fields = append(fields, limitFields("limits."+limit.Name+".", limit)...)
	}
	if len(limits) > 1 {
		// Shown where only the order differs, see newObjectChange.
		fields = append(fields, field{orderPath, bracketed(names)})
	}
	return fields
}

func limitFields(prefix string, l quota.Limit) []field {
	amount := func(a quota.Amount) string { return quota.FormatAmount(l.Meter, a) }
	fields := []field{{"meter", string(l.Meter)}}
	switch {
	case l.Kind.HasRate():
		fields = append(fields, field{"rate", quota.FormatRate(l.Meter, l.Rate)})
		if l.Burst != 0 {
			fields = append(fields, field{l.BurstWord(), amount(l.Burst)})
		}
		if l.Kind != quota.KindBucket {
			fields = append(fields, field{"algorithm", l.Kind.Algorithm()})
		}
		if l.FirstUse {
			fields = append(fields, field{"starts", "first_use"})
		}
	case l.Kind == quota.KindSlots:
		fields = append(fields, field{"max", amount(l.Max)})
	case l.Kind == quota.KindQuota:
		fields = append(fields, field{"amount", amount(l.Max)}, field{"period", string(l.Period)})
		if l.Soft {
			fields = append(fields, field{"soft", "true"})
		}
		if len(l.AlertAt) > 0 {
			percents := make([]string, len(l.AlertAt))
			for i, percent := range l.AlertAt {
				percents[i] = strconv.Itoa(percent) + "%"
			}
			fields = append(fields, field{"alert_at", bracketed(percents)})
		}
	}
	if len(l.Per) > 0 {
		fields = append(fields, field{"per", bracketed(l.Per)})
	}
	if len(l.Match) > 0 {
		fields = append(fields, field{"match", writeMatch(l.Match)})
	}
	for i, rule := range l.Costs {
		fields = append(fields, field{fmt.Sprintf("costs[%d]", i), fmt.Sprintf("%s weighs %d", writeMatch(rule.Match), rule.Weight)})
	}
	if l.Mode != "" {
		fields = append(fields, field{"mode", string(l.Mode)})
	}
	fields = append(fields, field{"when_down", string(l.WhenDown)}, field{"on_expiry", string(l.OnExpiry)})
	if l.Hold == quota.HoldForecast {
		fields = append(fields, field{"hold", string(l.Hold)}, field{"tolerance", quota.FormatAmount(l.Meter, l.Tolerance)})
	}
	if l.Fair {
		fields = append(fields, field{"fair", "true"})
	}
	if len(l.KeepFor) > 0 {
		fields = append(fields, field{"keep_for", l.Keeps()})
	}
	if l.CountRefusals {
		fields = append(fields, field{"count_refusals", "true"})
	}
	if l.Ban != (quota.Ban{}) {
		fields = append(fields, field{"ban", l.Ban.String()})
	}
	if l.MaxWait != nil {
		fields = append(fields, field{"max_wait", quota.FormatSpan(*l.MaxWait)})
	}
	for i := range fields {
		fields[i].path = prefix + fields[i].path
	}
	return fields
}

func grantsFields(grants []quota.Grant) []field {
	var fields []field
	for _, g := range grants {
		meter := quota.MeterTokens // any that is not money
		if g.Money {
			meter = quota.MeterCost
		}
		for _, f := range []field{
			{"limit", g.Limit},
			{"scope", g.Scope},
			{"amount", quota.FormatAmount(meter, g.Amount)},
			{"from", formatInstant(g.From)},
			{"until", formatInstant(g.Until)},
			{"priority", strconv.Itoa(g.Priority)},
			{"reason", g.Reason},
		} {
			if f.value != "" {
				fields = append(fields, field{"grants." + g.Name + "." + f.path, f.value})
			}
		}
	}
	return fields
}

func pricesFields(prices []quota.ModelPrice) []field {
	var fields []field
	for _, price := range prices {
		path := formatInstant(price.From) + "."
		fields = append(fields, ratesFields(path, price.Rates, price.Tiers)...)
		for _, s := range price.Services {
			fields = append(fields, ratesFields(path+"services."+s.Name+".", s.Rates, s.Tiers)...)
		}
	}
	return fields
}

func ratesFields(path string, rates map[string]quota.NanoUSD, tiers []quota.PriceTier) []field {
	var fields []field
	for _, name := range quota.PriceNames {
		if rate, stated := rates[name]; stated {
			fields = append(fields, field{path + name, rate.String()})
		}
	}
	for _, tier := range tiers {
		fields = append(fields, ratesFields(fmt.Sprintf("%sabove_%d.", path, tier.Above), tier.Rates, nil)...)
	}
	return fields
}

// formatInstant returns "" for no instant.
func formatInstant(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

func bracketed(words []string) string { return "[" + strings.Join(words, " ") + "]" }

func writeMatch(match map[string][]string) string {
	if len(match) == 0 {
		return "any call"
	}
	var labels []string
	for _, label := range slices.Sorted(maps.Keys(match)) {
		labels = append(labels, fmt.Sprintf("%s=%s", label, strings.Join(match[label], "|")))
	}
	return strings.Join(labels, " ")
}

// compareFields returns what differs between two lists of fields: those of the
// new list in its order, then those that are gone.
func compareFields(old, new []field) []FieldChange {
	before := make(map[string]string, len(old))
	for _, f := range old {
		before[f.path] = f.value
	}
	var changes []FieldChange
	after := make(map[string]bool, len(new))
	for _, f := range new {
		after[f.path] = true
		if was, had := before[f.path]; !had || was != f.value {
			changes = append(changes, FieldChange{Path: f.path, Old: was, New: f.value})
		}
	}
	for _, f := range old {
		if !after[f.path] {
			changes = append(changes, FieldChange{Path: f.path, Old: f.value})
		}
	}
	return changes
}

// newObjectChange compares two stored documents; "" stands for none.
func newObjectChange(kind Kind, name, old, new string) ObjectChange {
	change := ObjectChange{Kind: kind, Name: name}
	switch {
	case old == new:
		change.Action = Unchanged
		return change
	case new == "":
		change.Action = Removed
		return change
	case old == "":
		change.Action = Added
	default:
		change.Action = Changed
	}
	before, after := fieldsOf(kind, name, old), fieldsOf(kind, name, new)
	change.Fields = compareFields(before, after)
	nameEnforced(change.Fields, before, after)
	if len(change.Fields) > 1 {
		// That the order differs where limits come or go says nothing new.
		change.Fields = slices.DeleteFunc(change.Fields, func(f FieldChange) bool { return f.Path == orderPath })
	}
	return change
}

// nameEnforced says "enforce" where a limit that stays has no mode of its own.
func nameEnforced(changes []FieldChange, before, after []field) {
	for i := range changes {
		f := &changes[i]
		prefix, isMode := strings.CutSuffix(f.Path, "mode")
		if !isMode || prefix != "" && !strings.HasSuffix(prefix, ".") {
			continue
		}
		has := func(f field) bool { return f.path == prefix+"meter" }
		if f.Old == "" && slices.ContainsFunc(before, has) {
			f.Old = string(quota.ModeEnforce)
		}
		if f.New == "" && slices.ContainsFunc(after, has) {
			f.New = string(quota.ModeEnforce)
		}
	}
}

func sortObjects(objects []ObjectChange) {
	slices.SortFunc(objects, func(a, b ObjectChange) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds[:], a.Kind), slices.Index(kinds[:], b.Kind)), cmp.Compare(a.Name, b.Name))
	})
}
