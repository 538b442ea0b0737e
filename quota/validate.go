package quota

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds on what a policy may state.
const (
	MaxLimits      = 64        // limits of one account, quotas included
	MaxPools       = 64        // pools of a policy: a call looks at each
	MaxPlans       = 10_000    // plans of a policy
	MaxAccounts    = 1_000_000 // accounts of a policy
	MaxPer         = 8         // labels that split one limit
	MaxMatchLabels = 16        // labels of one match
	MaxMatchValues = 64        // accepted values of one label of a match
	MaxCostRules   = 64        // cost rules of one limit

	MinEvery = time.Millisecond // shortest span of a rate
	MaxEvery = 24 * time.Hour   // longest span of a rate

	MaxWeight Amount = 1_000_000 // largest weight of a cost rule

	maxNameBytes    = 63
	maxAccountBytes = 128
)

// FieldError is one fault of a policy.
type FieldError struct {
	// Field is the path of the faulty field in the words of the plan language,
	// from the value that was validated: "burst", "match.route",
	// "plans.pro.limits.tokens.burst".
	Field string
	// Problem is the faulty value, the bound, and what to do.
	Problem string
}

// Error returns "field: problem".
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// FieldErrors returns the faults that an error of this package's validation
// joins, in their order; nil when there are none.
func FieldErrors(err error) []*FieldError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*FieldError
		for _, e := range joined.Unwrap() {
			all = append(all, FieldErrors(e)...)
		}
		return all
	}
	var field *FieldError
	if errors.As(err, &field) {
		return []*FieldError{field}
	}
	return nil
}

// faults collects field errors.
type faults []error

func (f *faults) add(field, format string, values ...any) {
	*f = append(*f, &FieldError{Field: field, Problem: fmt.Sprintf(format, values...)})
}

// under adds what err holds, each below the path.
func (f *faults) under(path string, err error) {
	for _, e := range FieldErrors(err) {
		*f = append(*f, &FieldError{Field: path + "." + e.Field, Problem: e.Problem})
	}
}

func (f faults) err() error { return errors.Join(f...) }

func isName(name string) bool {
	if name == "" || len(name) > maxNameBytes {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || i > 0 && (c == '_' || c == '-') {
			continue
		}
		return false
	}
	return true
}

func nameProblem(name string) string {
	if isName(name) {
		return ""
	}
	return fmt.Sprintf("%s is not a name; use 1 to %d of a-z, 0-9, '_' and '-', starting with a letter or digit", quoteShort(name), maxNameBytes)
}

func meterProblem(meter Meter) string {
	valid := meter != "" && len(meter) <= maxNameBytes && 'a' <= meter[0] && meter[0] <= 'z'
	for i := range len(meter) {
		c := meter[i]
		valid = valid && ('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_')
	}
	if valid {
		return ""
	}
	return fmt.Sprintf("%s is not a meter; use requests, tokens, input_tokens, output_tokens, cost, in_flight, or a unit of your own that matches [a-z][a-z0-9_]{0,62}", quoteShort(string(meter)))
}

// ValidateAccountName returns an error unless the name is 1 to 128 bytes of
// [A-Za-z0-9._:@-] and starts with a letter or digit.
func ValidateAccountName(name string) error {
	valid := name != "" && len(name) <= maxAccountBytes
	for i := range len(name) {
		c := name[i]
		alphanumeric := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		valid = valid && (alphanumeric || i > 0 && strings.IndexByte("._:@-", c) >= 0)
	}
	if valid {
		return nil
	}
	return &FieldError{Field: "account", Problem: fmt.Sprintf("%s is not an account name; use 1 to %d of A-Z, a-z, 0-9 and '._:@-', starting with a letter or digit", quoteShort(name), maxAccountBytes)}
}

func anchorDayProblem(day int) string {
	if day >= 1 && day <= 31 {
		return ""
	}
	return fmt.Sprintf("%d is not a day of the month; write 1 to 31 (a month without that day starts on its last)", day)
}

func positiveProblem(a Amount) string {
	if a >= 1 && a <= MaxAmount {
		return ""
	}
	return fmt.Sprintf("%d is not between 1 and %d", int64(a), int64(MaxAmount))
}

// Validate returns the faults of the limit as joined [FieldError] values, nil
// when it has none. Fields that have a default may be zero.
func (l Limit) Validate() error {
	var f faults
	if p := nameProblem(l.Name); p != "" {
		f.add("name", "%s", p)
	}
	if p := meterProblem(l.Meter); p != "" {
		f.add("meter", "%s", p)
	}
	l.validateRule(&f)
	l.validatePer(&f)
	validateMatch(&f, "match", l.Match)
	l.validateCosts(&f)
	switch l.Mode {
	case "", ModeEnforce, ModeShadow, ModeOff:
	default:
		f.add("mode", "%s is not a mode; write enforce, shadow or off", quoteShort(string(l.Mode)))
	}
	switch l.WhenDown {
	case "", DownClosed, DownOpen:
	default:
		f.add("when_down", "%s is not a rule; write open or closed", quoteShort(string(l.WhenDown)))
	}
	switch l.OnExpiry {
	case "", ExpiryGiveBack, ExpiryCharge:
	default:
		f.add("on_expiry", "%s is not a rule; write give_back or charge", quoteShort(string(l.OnExpiry)))
	}
	l.validateHold(&f)
	l.validateKeepFor(&f)
	l.validateRefusals(&f)
	l.validateFair(&f)
	l.validateMaxWait(&f)
	return f.err()
}

func (l Limit) validateHold(f *faults) {
	switch {
	case l.Hold != "" && l.Hold != HoldWorstCase && l.Hold != HoldForecast:
		f.add("hold", "%s is not a rule; write worst_case or forecast", quoteShort(string(l.Hold)))
	case l.Hold != HoldForecast && l.Tolerance != 0:
		f.add("tolerance", "only a limit with hold: forecast has one; leave it out, or state hold: forecast")
	case l.Hold != HoldForecast:
	case l.Kind != KindBucket:
		f.add("hold", "a forecast goes with a rate and algorithm: token_bucket; leave it out, and the worst case is held")
	case l.Meter != MeterTokens && l.Meter != MeterOutputTokens && l.Meter != MeterCost:
		f.add("hold", "a forecast is of the output of model calls: it goes with the meters tokens, output_tokens and cost, not %s", quoteShort(string(l.Meter)))
	case l.Tolerance == 0:
		f.add("tolerance", "it is missing; write how much the open forecasts may be short by in all, such as half the burst")
	default:
		if p := positiveProblem(l.Tolerance); p != "" {
			f.add("tolerance", "%s", p)
		}
	}
}

func (l Limit) validateRule(f *faults) {
	if (l.Kind == KindSlots) != (l.Meter == MeterInFlight) {
		f.add("meter", "in_flight counts slots: it goes with max, and max goes with in_flight; got meter %s", quoteShort(string(l.Meter)))
	}
	switch {
	case l.Kind.HasRate():
		l.validateRate(f)
	case l.Kind == KindSlots:
		if p := positiveProblem(l.Max); p != "" {
			f.add("max", "%s", p)
		}
	case l.Kind == KindQuota:
		if p := positiveProblem(l.Max); p != "" {
			f.add("amount", "%s", p)
		}
		if l.Period.letter() == 0 {
			f.add("period", "%s is not a period; write day, week, month or year", quoteShort(string(l.Period)))
		}
	default:
		f.add("kind", "%d is not a kind of limit; state a rate, a max, or an amount and a period", l.Kind)
	}
	if !l.Kind.HasRate() {
		if l.Rate != (Rate{}) {
			f.add("rate", "only a limit over time has a rate; state this as a limit of its own")
		}
		if l.Burst != 0 {
			f.add("burst", "only a limit with a rate has a burst; leave it out")
		}
	}
	if l.FirstUse && l.Kind != KindFixedWindow {
		f.add("starts", "only a fixed window begins with its first call; leave it out, or write algorithm: fixed_window")
	}
	l.validateAlerts(f)
	if l.Kind != KindQuota && l.Period != "" {
		f.add("period", "only a quota has a period; leave it out or state the limit under quotas")
	}
}

func (l Limit) validateRate(f *faults) {
	if p := positiveProblem(l.Rate.Amount); p != "" {
		f.add("rate", "the amount %s", p)
	} else if l.Kind == KindSlidingLog && l.Rate.Amount > MaxLogUnits {
		f.add("rate", "a sliding log remembers every call, so its amount is at most %d, not %d; write algorithm: sliding_window, which counts any amount", MaxLogUnits, int64(l.Rate.Amount))
	}
	every := l.Rate.Every
	spanned := every >= MinEvery && every <= MaxEvery && every%time.Microsecond == 0
	if !spanned {
		f.add("rate", "the span %v is not a whole number of microseconds between %v and %v; state the same rate over another span", every, MinEvery, MaxEvery)
	}
	if l.Burst != 0 {
		if p := positiveProblem(l.Burst); p != "" {
			f.add(l.BurstWord(), "%s; leave it out for the amount of the rate", p)
		} else if l.Kind.IsWindow() {
			f.add("burst", "a window admits the amount of its rate and has no burst; leave it out, or write algorithm: token_bucket or gcra")
		} else if l.Kind == KindGCRA && spanned && l.Rate.Amount > 0 && GCRA(l.Bucket()).Cost(l.Burst) == maxGCRAMicros {
			f.add("burst", "it would take more than 142 years to refill, which gcra can't count; state less, or write algorithm: token_bucket")
		}
	}
	if q := Queue(l.Bucket()); l.Kind == KindLeakyQueue && spanned && l.Rate.Amount > 0 && q.Capacity > 0 && GCRA(q).Cost(q.Capacity) > MaxQueue {
		f.add("queue", "%d units take more than %v to go at that rate, and no call waits longer; let fewer wait, or raise the rate", int64(q.Capacity), time.Duration(MaxQueue)*time.Microsecond)
	}
	if l.Max != 0 {
		f.add("max", "a limit with a rate has no max; state the capacity as burst")
	}
}

func (l Limit) validateAlerts(f *faults) {
	if l.Kind != KindQuota {
		if l.Soft {
			f.add("soft", "only a quota may be soft; leave it out")
		}
		if len(l.AlertAt) > 0 {
			f.add("alert_at", "only a quota has alerts; leave it out")
		}
		return
	}
	if len(l.AlertAt) > MaxAlerts {
		f.add("alert_at", "%d percents are listed, at most %d are accepted", len(l.AlertAt), MaxAlerts)
		return
	}
	stated := make(map[int]bool, len(l.AlertAt))
	for _, percent := range l.AlertAt {
		if percent < 1 || percent > MaxAlertPercent {
			f.add("alert_at", "%d%% is not between 1%% and %d%%", percent, MaxAlertPercent)
		} else if stated[percent] {
			f.add("alert_at", "%d%% is listed twice; keep one", percent)
		}
		stated[percent] = true
	}
}

func (l Limit) validatePer(f *faults) {
	per := normalPer(l.Per)
	if len(per) > MaxPer {
		f.add("per", "%d labels are listed, at most %d are accepted", len(per), MaxPer)
		return
	}
	for _, label := range per {
		if p := labelNameProblem(label); p != "" {
			f.add("per", "%s: %s", quoteShort(label), p)
		}
	}
}

func (l Limit) validateCosts(f *faults) {
	if len(l.Costs) > 0 && l.Kind == KindSlots {
		f.add("costs", "a call always takes 1 slot; leave costs out")
		return
	}
	if len(l.Costs) > MaxCostRules {
		f.add("costs", "%d rules are listed, at most %d are accepted", len(l.Costs), MaxCostRules)
		return
	}
	for i, rule := range l.Costs {
		path := fmt.Sprintf("costs[%d]", i)
		validateMatch(f, path+".match", rule.Match)
		if rule.Weight < 1 || rule.Weight > MaxWeight {
			f.add(path+".weight", "%d is not between 1 and %d", int64(rule.Weight), int64(MaxWeight))
		}
	}
}

func validateMatch(f *faults, path string, match map[string][]string) {
	if len(match) > MaxMatchLabels {
		f.add(path, "%d labels are listed, at most %d are accepted", len(match), MaxMatchLabels)
		return
	}
	for _, label := range sortedKeys(match) {
		at := path + "." + label
		if p := labelNameProblem(label); p != "" {
			f.add(path, "%s: %s", quoteShort(label), p)
			continue
		}
		values := match[label]
		if len(values) == 0 || len(values) > MaxMatchValues {
			f.add(at, "%d values are listed, 1 to %d are accepted; write * for any value", len(values), MaxMatchValues)
			continue
		}
		for _, value := range values {
			if p := labelValueProblem(value); p != "" {
				f.add(at, "%s", p)
			} else if star := strings.IndexByte(value, '*'); star >= 0 && star != len(value)-1 {
				f.add(at, "%s has a * before its end; a * is accepted only as the last character, where it matches any rest", quoteShort(value))
			}
		}
	}
}

// Validate returns the faults of the plan as joined [FieldError] values, nil
// when it has none.
func (p Plan) Validate() error {
	var f faults
	if problem := nameProblem(p.Name); problem != "" {
		f.add("name", "%s", problem)
	}
	validateLimits(&f, p.Limits)
	return f.err()
}

func validateLimits(f *faults, limits []Limit) {
	if len(limits) > MaxLimits {
		f.add("limits", "%d limits are stated, at most %d are accepted, quotas included", len(limits), MaxLimits)
		return
	}
	validateNamed(f, "limits", "limit and quota of a plan", limits, func(l Limit) string { return l.Name }, Limit.validateOwn)
}

// validateOwn is Validate for a limit of a plan or an account.
func (l Limit) validateOwn() error {
	if !l.Fair {
		return l.Validate()
	}
	var f faults
	f.add("fair", "only the limit of a pool is shared between accounts; leave it out")
	l.Fair = false
	return errors.Join(f.err(), l.Validate())
}

// validateNamed adds the faults of the items of a list, each below its name, and
// of names that are stated twice. What is what an item is, for people.
func validateNamed[T any](f *faults, list, what string, items []T, name func(T) string, validate func(T) error) {
	stated := make(map[string]bool, len(items))
	for i, item := range items {
		path := list + "." + name(item)
		if !isName(name(item)) {
			path = fmt.Sprintf("%s[%d]", list, i)
		}
		f.under(path, validate(item))
		if stated[name(item)] {
			f.add(path, "the name is stated twice; every %s needs a name of its own", what)
		}
		stated[name(item)] = true
	}
}

// Validate returns the faults of the pool as joined [FieldError] values, nil
// when it has none.
func (p Pool) Validate() error {
	var f faults
	if problem := nameProblem(p.Name); problem != "" {
		f.add("name", "%s", problem)
	} else if p.Limit.Name != p.Name {
		f.add("limit.name", "%s is not the pool's name %q", quoteShort(p.Limit.Name), p.Name)
	}
	if p.Limit.Kind == KindQuota {
		f.add("period", "a pool has no quota; state a rate or a max")
	}
	if p.Limit.CountRefusals {
		f.add("count_refusals", "a pool is shared: the refusals of one account would use up what the others have; state it in a limit of the plan")
	}
	if p.Limit.Ban != (Ban{}) {
		f.add("ban", "a pool is shared: the refusals of one account would shut out all others; state it in a limit of the plan")
	}
	if slices.Contains(p.Limit.Per, LabelAccount) {
		f.add("per", "a pool is shared by all accounts; leave account out, or state the limit in a plan")
	}
	for _, e := range FieldErrors(p.Limit.Validate()) {
		if e.Field != "name" {
			f = append(f, e)
		}
	}
	return f.err()
}

// Validate returns the faults of the account as joined [FieldError] values,
// nil when it has none. Whether its plan exists, [NewPolicy] checks.
func (a Account) Validate() error {
	var f faults
	if err := ValidateAccountName(a.Name); err != nil {
		f = append(f, err)
	}
	if p := nameProblem(a.Plan); p != "" {
		f.add("plan", "%s", p)
	}
	if _, err := loadZone(a.TimeZone); err != nil {
		f.add("time_zone", "%s", strings.TrimPrefix(err.Error(), "time_zone: "))
	}
	if p := anchorDayProblem(a.AnchorDay); p != "" && a.AnchorDay != 0 {
		f.add("anchor_day", "%s", p)
	}
	validateLimits(&f, a.Overrides)
	validateGrants(&f, a.Grants)
	return f.err()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
