package policyfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/token"

	"github.com/budgetd/budgetd/quota"
)

// wordList is what a place of the plan language accepts.
type wordList struct {
	keys    []string
	example string
}

var (
	commonWords = []string{"per", "match", "costs", "mode", "when_down", "on_expiry", "hold", "tolerance", "keep_for", "count_refusals", "ban", "max_wait"}
	limitWords  = wordList{append([]string{"name", "meter", "rate", "burst", "queue", "max", "algorithm", "starts"}, commonWords...), "tokens"}
	quotaWords  = wordList{append([]string{"name", "meter", "amount", "period", "soft", "alert_at"}, commonWords...), "spend"}
	poolWords   = wordList{append([]string{"meter", "rate", "burst", "queue", "max", "algorithm", "starts", "fair"}, commonWords...), ""}
)

// elsewhere says where a word belongs that is known, but not in this place.
func elsewhere(words wordList, key string) string {
	isQuota := slices.Contains(words.keys, "amount")
	switch key {
	case "amount", "period", "quotas", "soft", "alert_at":
		if !slices.Contains(words.keys, "name") {
			return "a pool with a quota is not supported by this version; state a rate or a max"
		}
		return "only a quota has it; state the limit under quotas, or a rate or a max"
	case "rate", "burst", "queue", "max", "algorithm", "starts":
		if isQuota {
			return "a quota has an amount and a period; state this limit under limits"
		}
	case "fair":
		return "only the limit of a pool is shared between accounts; leave it out"
	case "name":
		return "a pool is named by its key; leave it out"
	}
	return ""
}

// limit reads the fields of one limit. It returns the place of each under the
// name by which the domain reports it, and false when there was no mapping.
func (r *reader) limit(e entry, words wordList) (quota.Limit, map[string]*token.Token, bool) {
	var limit quota.Limit
	want := strings.Join(words.keys, ", ")
	entries, ok := r.mapping(e.value, e.path, "{"+strings.Join(words.keys[:3], ", ")+", ...}")
	if !ok {
		return limit, nil, false
	}
	places := make(map[string]*token.Token, len(entries))
	fields := make(map[string]entry, len(entries))
	misplaced := false
	for _, field := range entries {
		if slices.Contains(words.keys, field.key) {
			fields[field.key] = field
			places[field.key] = field.token
		} else if advice := elsewhere(words, field.key); advice != "" {
			misplaced = true
			r.fault(field.token, field.path, "%s", advice)
		} else {
			r.refuse(field, unbuiltLimitWords, want)
		}
	}
	r.limitName(&limit, e, fields, words)
	// Amounts are read in the unit of the meter, so that comes first.
	meter, stated := fields["meter"]
	if !stated {
		r.fault(e.token, e.path+".meter", "it is missing; write what the limit counts, such as tokens, requests, cost or in_flight")
		return limit, places, true
	}
	text, ok := r.text(meter, "what the limit counts")
	if !ok {
		return limit, places, true
	}
	limit.Meter = quota.Meter(text)
	r.limitRule(&limit, e, fields, words, misplaced)
	r.limitScope(&limit, fields, places)
	if field, stated := fields["mode"]; stated {
		word, _ := r.word(field, []string{string(quota.ModeEnforce), string(quota.ModeShadow), string(quota.ModeOff)}, nil)
		limit.Mode, _ = quota.ParseMode(word)
	}
	if field, stated := fields["when_down"]; stated {
		word, _ := r.word(field, []string{string(quota.DownClosed), string(quota.DownOpen)}, []string{"local"})
		limit.WhenDown = quota.DownRule(word)
	}
	if field, stated := fields["on_expiry"]; stated {
		word, _ := r.word(field, []string{string(quota.ExpiryGiveBack), string(quota.ExpiryCharge)}, nil)
		limit.OnExpiry = quota.ExpiryRule(word)
	}
	if field, stated := fields["soft"]; stated {
		word, _ := r.word(field, []string{"true", "false"}, nil)
		limit.Soft = word == "true"
	}
	if field, stated := fields["alert_at"]; stated {
		limit.AlertAt = r.percents(field)
	}
	if field, stated := fields["hold"]; stated {
		word, _ := r.word(field, []string{string(quota.HoldWorstCase), string(quota.HoldForecast)}, nil)
		if word == string(quota.HoldForecast) { // the other is the default
			limit.Hold = quota.HoldForecast
		}
	}
	if field, stated := fields["fair"]; stated {
		word, _ := r.word(field, []string{"true", "false"}, nil)
		limit.Fair = word == "true"
	}
	if field, stated := fields["keep_for"]; stated {
		limit.KeepFor = r.keepFor(field)
	}
	if field, stated := fields["count_refusals"]; stated {
		word, _ := r.word(field, []string{"true", "false"}, nil)
		limit.CountRefusals = word == "true"
	}
	if field, stated := fields["ban"]; stated {
		limit.Ban = r.ban(field)
	}
	if field, stated := fields["max_wait"]; stated {
		if text, ok := r.text(field, "a span such as 2s"); ok {
			wait, err := quota.ParseWait(text)
			if err != nil {
				r.fault(field.token, field.path, "%v", err)
			} else {
				limit.MaxWait = &wait
			}
		}
	}
	if field, stated := fields["tolerance"]; stated {
		var ok bool
		// The domain would take a stated 0 for unstated.
		if limit.Tolerance, ok = r.amount(field, limit.Meter); ok && limit.Tolerance == 0 {
			r.fault(field.token, field.path, "0 is not between 1 and %d; leave hold and tolerance out to hold the worst case", quota.MaxAmount)
		}
	}
	return limit, places, true
}

func (r *reader) limitName(limit *quota.Limit, e entry, fields map[string]entry, words wordList) {
	if !slices.Contains(words.keys, "name") {
		return
	}
	field, stated := fields["name"]
	if !stated {
		r.fault(e.token, e.path+".name", "it is missing; name the limit, as refusals and reports will")
		return
	}
	limit.Name, _ = r.text(field, "a name")
}

// limitRule reads what makes the limit a bucket, slots or a quota. With words
// misplaced, as refused already, a missing rate is no fault of its own.
func (r *reader) limitRule(limit *quota.Limit, e entry, fields map[string]entry, words wordList, misplaced bool) {
	rate, hasRate := fields["rate"]
	most, hasMax := fields["max"]
	amount, hasAmount := fields["amount"]
	switch {
	case slices.Contains(words.keys, "amount"):
		limit.Kind = quota.KindQuota
		if hasAmount {
			limit.Max, _ = r.amount(amount, limit.Meter)
		} else {
			r.fault(e.token, e.path+".amount", "it is missing; write how much a period has, such as $500 or 10M")
		}
		period, hasPeriod := fields["period"]
		if !hasPeriod {
			r.fault(e.token, e.path+".period", "it is missing; write day, week, month or year")
			return
		}
		text, _ := r.text(period, "day, week, month or year")
		limit.Period = quota.PeriodUnit(text)
	case hasRate && hasMax:
		r.fault(most.token, most.path, "a limit has a rate or a max, not both; state two limits")
	case hasRate:
		r.algorithm(limit, fields)
		if text, ok := r.text(rate, "a rate such as 600/min"); ok {
			var err error
			if limit.Rate, err = quota.ParseRate(limit.Meter, text); err != nil {
				r.fault(rate.token, rate.path, "%v", err)
			}
		}
		r.capacity(limit, fields)
	case hasMax:
		limit.Kind = quota.KindSlots
		limit.Max, _ = r.amount(most, limit.Meter)
		for _, word := range []string{"burst", "queue", "algorithm", "starts"} {
			if field, stated := fields[word]; stated {
				r.fault(field.token, field.path, "only a rate has this; leave it out")
			}
		}
	case !misplaced:
		r.fault(e.token, e.path+".rate", "neither rate nor max is stated; write a rate such as 600/min, or max for calls in flight")
	}
}

// algorithm reads how a limit with a rate counts.
func (r *reader) algorithm(limit *quota.Limit, fields map[string]entry) {
	limit.Kind = quota.KindBucket
	if field, stated := fields["algorithm"]; stated {
		if word, ok := r.word(field, quota.Algorithms(), nil); ok {
			limit.Kind = quota.KindOfAlgorithm(word)
		}
	}
	if field, stated := fields["starts"]; stated {
		word, _ := r.word(field, []string{"calendar", "first_use"}, nil)
		limit.FirstUse = word == "first_use"
		if word == "calendar" && limit.Kind != quota.KindFixedWindow {
			r.fault(field.token, field.path, "only a fixed window begins by the calendar or with its first call; leave it out, or write algorithm: fixed_window")
		}
	}
}

// capacity reads how much a limit with a rate admits at once, or lets wait.
func (r *reader) capacity(limit *quota.Limit, fields map[string]entry) {
	own, other, advice := "burst", "queue", "only a leaky queue has this; write burst, or algorithm: leaky_queue"
	if limit.Kind == quota.KindLeakyQueue {
		own, other, advice = other, own, "a leaky queue has no burst: its calls start one after the other; write queue for how much may wait"
	}
	if field, stated := fields[other]; stated {
		r.fault(field.token, field.path, "%s", advice)
	}
	if field, stated := fields[own]; stated {
		var ok bool
		// The domain would take a stated 0 for unstated.
		if limit.Burst, ok = r.amount(field, limit.Meter); ok && limit.Burst == 0 {
			r.fault(field.token, field.path, "0 is not between 1 and %d; leave it out for the amount of the rate", quota.MaxAmount)
		}
	}
}

// percents reads a list of whole percents.
func (r *reader) percents(field entry) []int {
	const want = "percents of the amount, such as [50%, 80%, 100%]"
	elements, _ := r.list(field.value, field.path, want)
	var percents []int
	for _, element := range elements {
		if n, ok := r.percent(element, want); ok {
			percents = append(percents, n)
		}
	}
	return percents
}

func (r *reader) percent(e entry, want string) (int, bool) {
	text, ok := r.text(e, want)
	if !ok {
		return 0, false
	}
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	if !percent || err != nil || strconv.Itoa(n) != digits {
		r.fault(e.token, e.path, "%s is not a whole percent; write one with its sign, such as 80%%", show(text))
		return 0, false
	}
	return n, true
}

// keepFor reads the shares that are kept for priorities.
func (r *reader) keepFor(field entry) map[quota.Priority]int {
	const want = "priorities with their share, such as {interactive: 20%}"
	entries, _ := r.mapping(field.value, field.path, want)
	var keep map[quota.Priority]int
	for _, e := range entries {
		priority, err := quota.ParsePriority(e.key)
		if err != nil || e.key == "" {
			r.fault(e.token, e.path, "%s is not a priority; write default, interactive or critical", show(e.key))
			continue
		}
		if n, ok := r.percent(e, want); ok {
			if keep == nil {
				keep = map[quota.Priority]int{}
			}
			keep[priority] = n
		}
	}
	return keep
}

func (r *reader) amount(e entry, meter quota.Meter) (quota.Amount, bool) {
	text, ok := r.text(e, "an amount")
	if !ok {
		return 0, false
	}
	amount, err := quota.ParseAmount(meter, text)
	if err != nil {
		r.fault(e.token, e.path, "%v", err)
	}
	return amount, err == nil
}

// limitScope reads which calls meet the limit, which counter, and at what cost.
func (r *reader) limitScope(limit *quota.Limit, fields map[string]entry, places map[string]*token.Token) {
	if field, stated := fields["per"]; stated {
		limit.Per = r.texts(field, "a list of labels, such as [model]")
	}
	if field, stated := fields["match"]; stated {
		limit.Match = r.match(field, "match", places)
	}
	field, stated := fields["costs"]
	if !stated {
		return
	}
	rules, _ := r.list(field.value, field.path, "[{match: {...}, weight: 5}]")
	for i, element := range rules {
		var rule quota.CostRule
		at := fmt.Sprintf("costs[%d]", i)
		entries, ok := r.mapping(element.value, element.path, "{match: {...}, weight: 5}")
		hasWeight := false
		for _, e := range entries {
			places[at+"."+e.key] = e.token
			switch e.key {
			case "match":
				rule.Match = r.match(e, at+".match", places)
			case "weight":
				hasWeight = true
				rule.Weight = r.count(e, quota.MaxWeight, fmt.Sprintf("a whole number from 1 to %d", quota.MaxWeight))
			default:
				r.refuse(e, nil, "match or weight")
			}
		}
		if ok && !hasWeight {
			r.fault(element.token, element.path+".weight", "it is missing; write by how much the call's amount is multiplied")
		}
		limit.Costs = append(limit.Costs, rule)
	}
}

func (r *reader) match(field entry, at string, places map[string]*token.Token) map[string][]string {
	entries, ok := r.mapping(field.value, field.path, "labels with a value or a list of values, such as {route: slow}")
	if !ok {
		return nil
	}
	match := make(map[string][]string, len(entries))
	for _, e := range entries {
		match[e.key] = r.texts(e, "a value or a list of values")
		places[at+"."+e.key] = e.token
	}
	return match
}
