package policyfile

import (
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/token"

	"github.com/budgetd/budgetd/quota"
)

var grantWords = []string{"name", "limit", "amount", "scope", "from", "until", "priority", "reason"}

// grants reads the grants of an account. Each is validated by itself; places
// gets their lines.
func (r *reader) grants(field entry, places map[string]*token.Token) []quota.Grant {
	elements, _ := r.list(field.value, field.path, "[{name: top-up, limit: spend, amount: $50}]")
	var grants []quota.Grant
	for _, element := range elements {
		known := len(r.faults)
		grant, at, ok := r.grant(element)
		if !ok {
			continue
		}
		if len(r.faults) == known {
			r.validated(element, at, grant.Validate())
		}
		place := "grants." + grant.Name
		if first, twice := places[place]; twice && grant.Name != "" {
			r.fault(element.token, element.path+".name", "%s is the name of a grant in line %d already; give every grant of the account a name of its own", show(grant.Name), first.Position.Line)
			continue
		}
		places[place] = element.token
		grants = append(grants, grant)
	}
	return grants
}

func (r *reader) grant(e entry) (quota.Grant, map[string]*token.Token, bool) {
	var grant quota.Grant
	want := strings.Join(grantWords, ", ")
	entries, ok := r.mapping(e.value, e.path, "{name, limit, amount, ...}")
	if !ok {
		return grant, nil, false
	}
	places := make(map[string]*token.Token, len(entries))
	for _, field := range entries {
		places[field.key] = field.token
		switch field.key {
		case "name":
			grant.Name, _ = r.text(field, "a name")
		case "limit":
			grant.Limit, _ = r.text(field, "the name of a quota")
		case "amount":
			grant.Amount, grant.Money = r.grantAmount(field)
		case "scope":
			grant.Scope, _ = r.text(field, "a counter of the quota, such as team=red")
		case "from":
			grant.From = r.instant(field)
		case "until":
			grant.Until = r.instant(field)
		case "priority":
			grant.Priority = r.priority(field)
		case "reason":
			grant.Reason, _ = r.text(field, "a text")
		default:
			r.refuse(field, nil, want)
		}
	}
	for _, required := range []struct{ word, advice string }{
		{"name", "name the grant, as reports will"},
		{"limit", "write the name of the quota that it adds to"},
		{"amount", "write how much it adds, such as $50 or 1M"},
	} {
		if _, stated := places[required.word]; !stated {
			r.fault(e.token, e.path+"."+required.word, "it is missing; %s", required.advice)
		}
	}
	return grant, places, true
}

// grantAmount reads money where it has a $, else a number. Which of them the
// quota counts, its plan says, which may be in another file.
func (r *reader) grantAmount(e entry) (quota.Amount, bool) {
	text, ok := r.text(e, "an amount")
	if !ok {
		return 0, false
	}
	meter, money := quota.MeterRequests, strings.HasPrefix(text, "$")
	if money {
		meter = quota.MeterCost
	}
	amount, err := quota.ParseAmount(meter, text)
	if err != nil {
		r.fault(e.token, e.path, "%v", err)
	}
	return amount, money
}

func (r *reader) priority(e entry) int {
	const want = "a whole number from -100 to 100"
	text, ok := r.text(e, want)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text {
		r.fault(e.token, e.path, "%s is not %s", show(text), want)
		return 0
	}
	return n
}

// instant reads an instant of RFC 3339, or a date, which is its midnight in
// UTC.
func (r *reader) instant(e entry) time.Time {
	const want = "an instant such as 2026-12-01T00:00:00Z, or a date, which is midnight UTC"
	text, ok := r.text(e, want)
	if !ok {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			if at.Nanosecond()%int(time.Microsecond) != 0 {
				r.fault(e.token, e.path, "%s has more than six decimals of a second; write fewer", show(text))
			}
			return at.UTC()
		}
	}
	r.fault(e.token, e.path, "%s is not %s", show(text), want)
	return time.Time{}
}
