package policyfile

import "github.com/budgetd/budgetd/quota"

// ban reads after how many refusals a counter is shut, and for how long.
func (r *reader) ban(field entry) quota.Ban {
	const want = "{refusals: 20, within: 1min, for: 10min}"
	var ban quota.Ban
	known := len(r.faults)
	entries, ok := r.mapping(field.value, field.path, want)
	stated := map[string]bool{}
	for _, e := range entries {
		stated[e.key] = true
		switch e.key {
		case "refusals":
			ban.Refusals = int(r.count(e, quota.MaxBanRefusals, "a number of refusals from 1 to 100"))
		case "within", "for":
			text, ok := r.text(e, "a span such as 10min")
			if !ok {
				continue
			}
			span, err := quota.ParseSpan(text, quota.MinBanSpan, quota.MaxBanSpan)
			if err != nil {
				r.fault(e.token, e.path, "%v", err)
			} else if e.key == "within" {
				ban.Within = span
			} else {
				ban.For = span
			}
		default:
			r.refuse(e, nil, "refusals, within or for")
		}
	}
	for _, word := range []string{"refusals", "within", "for"} {
		if ok && len(r.faults) == known && !stated[word] {
			r.fault(field.token, field.path+"."+word, "it is missing; write %s", want)
		}
	}
	if len(r.faults) > known {
		return quota.Ban{}
	}
	return ban
}
