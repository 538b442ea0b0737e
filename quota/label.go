package quota

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds on the labels of one call.
const (
	MaxLabels          = 32  // labels a call
	MaxLabelNameBytes  = 63  // bytes of a label's name
	MaxLabelValueBytes = 256 // bytes of a label's value
)

// LabelAccount is the name that "per" lists use for the account itself. It is
// no label: a call states its account in a field of its own.
const LabelAccount = "account"

// ValidateLabels returns an error that names the label and the bound unless
// there are at most [MaxLabels] labels, every name matches
// [a-z][a-z0-9_.-]{0,62} and isn't "account", and every value is at most
// [MaxLabelValueBytes] of valid UTF-8 without control characters. An empty
// value is valid, and differs from a label that is absent. Of several faulty
// labels the first in byte order of the names is reported.
func ValidateLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("labels: %d are stated, at most %d are accepted; send only those that plans or reports use", len(labels), MaxLabels)
	}
	faulty, problem := "", ""
	for name, value := range labels {
		p := labelNameProblem(name)
		if p == "" {
			p = labelValueProblem(value)
		}
		if p != "" && (problem == "" || name < faulty) {
			faulty, problem = name, p
		}
	}
	if problem != "" {
		return fmt.Errorf("labels[%s]: %s", quoteShort(faulty), problem)
	}
	return nil
}

func labelNameProblem(name string) string {
	switch {
	case name == "":
		return "the name is empty; name the label with [a-z][a-z0-9_.-]{0,62}"
	case len(name) > MaxLabelNameBytes:
		return fmt.Sprintf("the name has %d bytes, at most %d are accepted; shorten it", len(name), MaxLabelNameBytes)
	case name == LabelAccount:
		return `"account" is not a label; state the account in its own field`
	}
	for i := range len(name) {
		c := name[i]
		if 'a' <= c && c <= 'z' || i > 0 && ('0' <= c && c <= '9' || c == '_' || c == '.' || c == '-') {
			continue
		}
		return "the name does not match [a-z][a-z0-9_.-]{0,62}; use lower-case letters, digits, '_', '.' and '-'"
	}
	return ""
}

func labelValueProblem(value string) string {
	if len(value) > MaxLabelValueBytes {
		return fmt.Sprintf("the value has %d bytes, at most %d are accepted; shorten or hash it", len(value), MaxLabelValueBytes)
	}
	plain := true // printable ASCII, as nearly every value is
	for i := range len(value) {
		plain = plain && 0x20 <= value[i] && value[i] < 0x7f
	}
	if plain {
		return ""
	}
	if !utf8.ValidString(value) {
		return "the value is not valid UTF-8; encode it as UTF-8"
	}
	if strings.ContainsFunc(value, unicode.IsControl) {
		return "the value contains a control character; remove it"
	}
	return ""
}

// quoteShort quotes text for an error message, cut to 80 bytes so that a
// hostile input does not fill a log.
func quoteShort(text string) string {
	if len(text) <= 80 {
		return fmt.Sprintf("%q", text)
	}
	cut := 77
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%q", text[:cut]+"...")
}

// Matches says whether the limit applies to a call with these labels: every
// label of l.Match is present and has one of its accepted values. An accepted
// value that ends in * matches every value with that prefix, so "*" alone
// matches any value, the empty one included. A label that is absent matches
// nothing. A limit without a match applies to every call.
func (l Limit) Matches(labels map[string]string) bool {
	return matchesAll(l.Match, labels)
}

func matchesAll(match map[string][]string, labels map[string]string) bool {
	for label, accepted := range match {
		value, stated := labels[label]
		if !stated || !slices.ContainsFunc(accepted, func(pattern string) bool { return matchesValue(pattern, value) }) {
			return false
		}
	}
	return true
}

func matchesValue(pattern, value string) bool {
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(value, prefix)
	}
	return pattern == value
}

// Scope names the counter of the limit that a call with these labels meets:
// the values of the labels in l.Per, as "model=gpt-4o,user=7". It is "" when
// the limit has one counter an account (or a pool). Two calls have the same
// scope exactly when they agree in every label of l.Per, absence included: a
// label that is absent is written as its bare name ("model,user=7"), an empty
// value with its equals sign ("model=,user=7").
//
// The bytes '%', '=', ',' and control characters of ASCII inside a value are
// written as % and two upper-case hex digits, which makes the encoding
// injective for any values. Labels are in byte order of their names.
func (l Limit) Scope(labels map[string]string) string {
	if len(l.Per) == 0 {
		return ""
	}
	per := l.Per
	if !slices.IsSorted(per) || slices.Contains(per, LabelAccount) {
		per = normalPer(per)
	}
	size := 0
	for _, label := range per {
		size += len(label) + 2 + len(labels[label])
	}
	var scope strings.Builder
	scope.Grow(size)
	for i, label := range per {
		if i > 0 {
			scope.WriteByte(',')
		}
		scope.WriteString(label)
		if value, stated := labels[label]; stated {
			scope.WriteByte('=')
			writeEscaped(&scope, value)
		}
	}
	return scope.String()
}

// CheckScope returns an error, for people, unless the scope is one that
// [Limit.Scope] can give: that of one counter of the limit.
func (l Limit) CheckScope(scope string) error {
	per := normalPer(l.Per)
	if len(per) == 0 {
		if scope != "" {
			return fmt.Errorf("%s has one counter for the whole account; leave the scope out", l.Name)
		}
		return nil
	}
	labels := make(map[string]string, len(per))
	for part := range strings.SplitSeq(scope, ",") {
		name, value, stated := strings.Cut(part, "=")
		if !stated {
			continue
		}
		plain, err := url.PathUnescape(value)
		if err != nil {
			plain = value // it does not come out the same below
		}
		if p := labelValueProblem(plain); p != "" {
			return fmt.Errorf("%s: %s", quoteShort(name), p)
		}
		labels[name] = plain
	}
	if l.Scope(labels) != scope {
		return fmt.Errorf("%s is no counter of %s, which has one for each %s; write it as %s", quoteShort(scope), l.Name, strings.Join(per, ", "), strings.Join(per, "=...,")+"=...")
	}
	return nil
}

func writeEscaped(to *strings.Builder, value string) {
	const hex = "0123456789ABCDEF"
	plain := 0 // start of the bytes not yet written
	for i := range len(value) {
		c := value[i]
		if c >= 0x20 && c != 0x7f && c != '%' && c != '=' && c != ',' {
			continue
		}
		to.WriteString(value[plain:i])
		to.WriteByte('%')
		to.WriteByte(hex[c>>4])
		to.WriteByte(hex[c&15])
		plain = i + 1
	}
	to.WriteString(value[plain:])
}

// normalPer returns the labels sorted, each once, without "account", which
// every counter of an account has implicitly.
func normalPer(per []string) []string {
	var normal []string
	for _, label := range per {
		if label != LabelAccount {
			normal = append(normal, label)
		}
	}
	slices.Sort(normal)
	return slices.Compact(normal)
}
