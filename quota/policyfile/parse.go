package policyfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/budgetd/budgetd/internal/spelling"
	"github.com/budgetd/budgetd/quota"
)

// Parse reads a file of at most [MaxBytes]. The error joins every fault that it
// found, as [Fault] values in order of their lines; a file whose syntax is
// malformed has one. What only the whole policy shows, [Document.Policy] says.
func Parse(data []byte) (*Document, error) {
	root, fault := parseSyntax(data)
	if fault != nil {
		return nil, join([]*Fault{fault})
	}
	var r reader
	document := r.document(root)
	if len(r.faults) > 0 {
		return nil, join(r.faults)
	}
	document.sort()
	return document, nil
}

func (r *reader) document(root ast.Node) *Document {
	const want = "plans, pools, accounts or prices"
	d := &Document{}
	if root == nil {
		r.fault(nil, "", "the file states nothing; write %s", want)
		return d
	}
	sections, ok := r.mapping(root, "", want)
	if ok && len(sections) == 0 {
		r.fault(root.GetToken(), "", "the file states nothing; write %s", want)
	}
	for _, section := range sections {
		switch section.key {
		case "plans":
			plans, _ := r.mapping(section.value, section.path, "names with their limits and quotas")
			for _, e := range plans {
				d.Plans = append(d.Plans, r.plan(e))
			}
		case "pools":
			pools, _ := r.mapping(section.value, section.path, "names with their limit")
			for _, e := range pools {
				d.Pools = append(d.Pools, r.pool(e))
			}
		case "accounts":
			accounts, _ := r.mapping(section.value, section.path, "names with their plan")
			for _, e := range accounts {
				d.Accounts = append(d.Accounts, r.account(e))
			}
		case "prices":
			models, _ := r.mapping(section.value, section.path, "provider/model with their prices")
			for _, e := range models {
				d.Prices = append(d.Prices, r.prices(e)...)
			}
		default:
			r.refuse(section, unbuiltSections, want)
		}
	}
	return d
}

// Words of the plan language that this version does not build, with what to do
// instead.
var (
	unbuiltSections = map[string]string{
		"keys":   "keys are secrets: make them with budgetd key create",
		"grants": "state them in their account",
	}
	unbuiltPlanWords = map[string]string{
		"extends":  "state every limit in the plan",
		"grants":   "state them in an account",
		"rollover": "leave it out",
	}
	unbuiltAccountWords = map[string]string{
		"top_ups": "state them as grants",
		"parent":  "leave it out",
		"mode":    "state the mode of each limit",
	}
	unbuiltLimitWords = map[string]string{
		"window":   "leave it out; state the rate over the window's span, and algorithm: fixed_window or sliding_window",
		"grants":   "state them in an account",
		"rollover": "leave it out",
		"queue":    "leave it out; a refusal says when to come back",
	}
)

// refuse says that a key is not known here, or known but not built.
func (r *reader) refuse(e entry, unbuilt map[string]string, want string) {
	advice, known := unbuilt[e.key]
	if !known {
		if near := nearestWord(e.key, want); near != "" {
			r.fault(e.token, e.path, "the key is unknown; did you mean %s? Here may stand %s", near, want)
			return
		}
		r.fault(e.token, e.path, "the key is unknown; write %s", want)
		return
	}
	if text, ok := scalarText(e.value); ok {
		r.fault(e.token, e.path, "%s is not supported by this version; %s", pathKey(text), advice)
		return
	}
	r.fault(e.token, e.path, "it is not supported by this version; %s", advice)
}

// nearestWord is the word of a list, as messages have it, that a key may have meant.
func nearestWord(key, list string) string {
	words := strings.FieldsFunc(strings.ReplaceAll(list, " or ", ", "), func(r rune) bool { return r == ',' || r == ' ' })
	return spelling.Nearest(key, slices.Values(words), 2)
}

func (r *reader) plan(e entry) quota.Plan {
	plan := quota.Plan{Name: e.key}
	known := len(r.faults)
	entries, ok := r.mapping(e.value, e.path, "limits, quotas or both")
	stated := false
	places := map[string]*token.Token{}
	for _, field := range entries {
		switch field.key {
		case "limits", "quotas":
			stated = true
			r.limits(field, &plan.Limits, places)
		default:
			r.refuse(field, unbuiltPlanWords, "limits or quotas")
		}
	}
	if ok && !stated && len(r.faults) == known {
		r.fault(e.token, e.path, "neither limits nor quotas are stated; write limits: [] for a plan without any")
	}
	if len(r.faults) == known {
		r.validated(e, places, plan.Validate())
	}
	return plan
}

func (r *reader) pool(e entry) quota.Pool {
	known := len(r.faults)
	limit, places, ok := r.limit(e, poolWords)
	limit.Name = e.key
	pool := quota.Pool{Name: e.key, Limit: limit}
	if ok && len(r.faults) == known {
		r.validated(e, places, pool.Validate())
	}
	return pool
}

func (r *reader) account(e entry) quota.Account {
	account := quota.Account{Name: e.key}
	known := len(r.faults)
	const want = "plan, time_zone, anchor_day, limits, quotas or grants"
	entries, ok := r.mapping(e.value, e.path, want)
	places := map[string]*token.Token{}
	for _, field := range entries {
		places[field.key] = field.token
		switch field.key {
		case "plan":
			account.Plan, _ = r.text(field, "the name of a plan")
		case "time_zone":
			if account.TimeZone, _ = r.text(field, "an IANA time zone such as Asia/Tokyo"); account.TimeZone == "" && len(r.faults) == known {
				r.fault(field.token, field.path, "it is empty; leave it out for UTC")
			}
		case "anchor_day":
			account.AnchorDay = int(r.count(field, 31, "a day of the month from 1 to 31"))
		case "limits", "quotas":
			r.limits(field, &account.Overrides, places)
		case "grants":
			account.Grants = r.grants(field, places)
		default:
			r.refuse(field, unbuiltAccountWords, want)
		}
	}
	if _, stated := places["plan"]; ok && !stated {
		r.fault(e.token, e.path+".plan", "it is missing; write the name of the account's plan")
	}
	if len(r.faults) == known {
		r.validated(e, places, account.Validate())
	}
	return account
}

// count returns a whole number from 1 to most.
func (r *reader) count(e entry, most quota.Amount, want string) quota.Amount {
	text, ok := r.text(e, want)
	if !ok {
		return 0
	}
	count, err := quota.ParseAmount(quota.MeterRequests, text)
	if err != nil || count < 1 || count > most {
		r.fault(e.token, e.path, "%s is not %s", show(text), want)
		return 0
	}
	return count
}

// validated turns what the domain says of a value into faults with lines.
func (r *reader) validated(e entry, places map[string]*token.Token, err error) {
	for _, fault := range quota.FieldErrors(err) {
		where := e.token
		if place, known := places[fault.Field]; known {
			where = place
		}
		path := e.path + "." + fault.Field
		if fault.Field == "name" || fault.Field == "account" {
			path = e.path
		}
		r.fault(where, path, "%s", fault.Problem)
	}
}

// limits reads a list of limits or quotas into to. Each is validated by itself;
// places gets their lines under the names by which the domain reports what is
// wrong with the list.
func (r *reader) limits(field entry, to *[]quota.Limit, places map[string]*token.Token) {
	words := limitWords
	if field.key == "quotas" {
		words = quotaWords
	}
	elements, _ := r.list(field.value, field.path, fmt.Sprintf("[{name: %s, ...}]", words.example))
	for _, element := range elements {
		known := len(r.faults)
		limit, at, ok := r.limit(element, words)
		if !ok {
			continue
		}
		if len(r.faults) == known {
			r.validated(element, at, limit.Validate())
		}
		place := "limits." + limit.Name
		if first, twice := places[place]; twice && limit.Name != "" {
			r.fault(element.token, element.path+".name", "%s is the name of a limit in line %d already; give every limit and quota a name of its own", show(limit.Name), first.Position.Line)
			continue
		}
		places[place] = element.token
		*to = append(*to, limit)
	}
}
