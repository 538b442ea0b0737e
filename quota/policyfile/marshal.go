package policyfile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/budgetd/budgetd/quota"
)

// Marshal writes the document as YAML that [Parse] reads back as the same
// document: one line a limit, limits before quotas. It fails for a document
// that Parse would refuse.
//
// It quotes for itself: the YAML library leaves texts bare, such as "? x",
// that its own reader then takes for something else.
func Marshal(d *Document) ([]byte, error) {
	var b bytes.Buffer
	switch {
	case len(d.Plans) > 0:
		b.WriteString("plans:\n")
	case len(d.Pools)+len(d.Accounts)+len(d.Prices) == 0:
		b.WriteString("plans: {}\n")
	}
	for _, plan := range d.Plans {
		fmt.Fprintf(&b, "  %s:\n", scalar(plan.Name))
		if len(plan.Limits) == 0 {
			b.WriteString("    limits: []\n")
		}
		writeLimits(&b, plan.Limits)
	}
	if len(d.Pools) > 0 {
		b.WriteString("pools:\n")
	}
	for _, pool := range d.Pools {
		fmt.Fprintf(&b, "  %s: %s\n", scalar(pool.Name), flowLimit(pool.Limit, false))
	}
	if len(d.Accounts) > 0 {
		b.WriteString("accounts:\n")
	}
	for _, account := range d.Accounts {
		fmt.Fprintf(&b, "  %s:\n    plan: %s\n", scalar(account.Name), scalar(account.Plan))
		if account.TimeZone != "" {
			fmt.Fprintf(&b, "    time_zone: %s\n", scalar(account.TimeZone))
		}
		if account.AnchorDay != 0 {
			fmt.Fprintf(&b, "    anchor_day: %d\n", account.AnchorDay)
		}
		writeLimits(&b, account.Overrides)
		for i, grant := range account.Grants {
			if i == 0 {
				b.WriteString("    grants:\n")
			}
			fmt.Fprintf(&b, "      - %s\n", flowGrant(grant))
		}
	}
	if len(d.Prices) > 0 {
		b.WriteString("prices:\n")
	}
	writePrices(&b, d.Prices)
	if _, err := Parse(b.Bytes()); err != nil {
		return nil, fmt.Errorf("the policy can't be written as a file: %w", err)
	}
	return b.Bytes(), nil
}

func flowGrant(grant quota.Grant) string {
	meter := quota.MeterRequests
	if grant.Money {
		meter = quota.MeterCost
	}
	var fields flow
	fields.add("name", scalar(grant.Name))
	fields.add("limit", scalar(grant.Limit))
	fields.add("amount", quota.FormatAmount(meter, grant.Amount))
	for _, text := range []struct{ key, value string }{
		{"scope", grant.Scope}, {"from", formatInstant(grant.From)}, {"until", formatInstant(grant.Until)},
	} {
		if text.value != "" {
			fields.add(text.key, scalar(text.value))
		}
	}
	if grant.Priority != 0 {
		fields.add("priority", strconv.Itoa(grant.Priority))
	}
	if grant.Reason != "" {
		fields.add("reason", scalar(grant.Reason))
	}
	return fields.String()
}

func formatInstant(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

func writeLimits(b *bytes.Buffer, all []quota.Limit) {
	for _, section := range []struct {
		key   string
		quota bool
	}{{"limits", false}, {"quotas", true}} {
		open := false
		for _, limit := range all {
			if (limit.Kind == quota.KindQuota) != section.quota {
				continue
			}
			if !open {
				fmt.Fprintf(b, "    %s:\n", section.key)
				open = true
			}
			fmt.Fprintf(b, "      - %s\n", flowLimit(limit, true))
		}
	}
}

// flow collects the fields of a mapping on one line.
type flow []string

func (f *flow) add(key, value string) { *f = append(*f, scalar(key)+": "+value) }

func (f flow) String() string { return "{" + strings.Join(f, ", ") + "}" }

func flowLimit(limit quota.Limit, named bool) string {
	var fields flow
	if named {
		fields.add("name", scalar(limit.Name))
	}
	fields.add("meter", scalar(string(limit.Meter)))
	// Amounts and rates are of digits, letters, '$', '.' and '/' only.
	switch {
	case limit.Kind.HasRate():
		fields.add("rate", quota.FormatRate(limit.Meter, limit.Rate))
		if limit.Burst != 0 {
			fields.add(limit.BurstWord(), quota.FormatAmount(limit.Meter, limit.Burst))
		}
		if limit.Kind != quota.KindBucket {
			fields.add("algorithm", limit.Kind.Algorithm())
		}
		if limit.FirstUse {
			fields.add("starts", "first_use")
		}
	case limit.Kind == quota.KindSlots:
		fields.add("max", quota.FormatAmount(limit.Meter, limit.Max))
	case limit.Kind == quota.KindQuota:
		fields.add("amount", quota.FormatAmount(limit.Meter, limit.Max))
		fields.add("period", scalar(string(limit.Period)))
		if limit.Soft {
			fields.add("soft", "true")
		}
		if len(limit.AlertAt) > 0 {
			percents := make([]string, len(limit.AlertAt))
			for i, percent := range limit.AlertAt {
				percents[i] = strconv.Itoa(percent) + "%"
			}
			fields.add("alert_at", "["+strings.Join(percents, ", ")+"]")
		}
	}
	if len(limit.Per) > 0 {
		fields.add("per", flowList(limit.Per))
	}
	if len(limit.Match) > 0 {
		fields.add("match", flowMatch(limit.Match))
	}
	if len(limit.Costs) > 0 {
		rules := make([]string, len(limit.Costs))
		for i, rule := range limit.Costs {
			var cost flow
			if len(rule.Match) > 0 {
				cost.add("match", flowMatch(rule.Match))
			}
			cost.add("weight", strconv.FormatInt(int64(rule.Weight), 10))
			rules[i] = cost.String()
		}
		fields.add("costs", "["+strings.Join(rules, ", ")+"]")
	}
	if limit.Mode != "" {
		fields.add("mode", scalar(string(limit.Mode)))
	}
	if limit.WhenDown != "" {
		fields.add("when_down", scalar(string(limit.WhenDown)))
	}
	if limit.OnExpiry != "" {
		fields.add("on_expiry", scalar(string(limit.OnExpiry)))
	}
	if limit.Hold != "" {
		fields.add("hold", scalar(string(limit.Hold)))
	}
	if limit.Tolerance != 0 {
		fields.add("tolerance", quota.FormatAmount(limit.Meter, limit.Tolerance))
	}
	if limit.Fair {
		fields.add("fair", "true")
	}
	if len(limit.KeepFor) > 0 {
		fields = append(fields, "keep_for: {"+limit.Keeps()+"}")
	}
	if limit.CountRefusals {
		fields.add("count_refusals", "true")
	}
	if limit.Ban != (quota.Ban{}) {
		fields.add("ban", "{"+limit.Ban.String()+"}")
	}
	if limit.MaxWait != nil {
		fields.add("max_wait", quota.FormatSpan(*limit.MaxWait))
	}
	return fields.String()
}

func flowMatch(match map[string][]string) string {
	var fields flow
	for _, label := range slices.Sorted(maps.Keys(match)) {
		if values := match[label]; len(values) == 1 {
			fields.add(label, scalar(values[0]))
		} else {
			fields.add(label, flowList(values))
		}
	}
	return fields.String()
}

func flowList(texts []string) string {
	scalars := make([]string, len(texts))
	for i, text := range texts {
		scalars[i] = scalar(text)
	}
	return "[" + strings.Join(scalars, ", ") + "]"
}

// scalar writes a text bare where every YAML reader takes it for that text,
// else in double quotes.
func scalar(text string) string {
	if isBare(text) {
		return text
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func isBare(text string) bool {
	switch strings.ToLower(text) {
	case "", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan":
		return false
	}
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || ('0' > c || c > '9') && strings.IndexByte("_-./", c) < 0) {
			return false
		}
	}
	return true
}
