package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxFaults is how many faults [Parse] reports at most; the last then says how
// many more there are.
const MaxFaults = 100

// Fault is one thing wrong with a file.
type Fault struct {
	Line    int    // from 1; 0 when the file as a whole is meant
	Column  int    // from 1, in characters
	Path    string // "plans.pro.limits[3].mode"; "" when there is none
	Problem string // the value, the bound, and what to do
}

// Error returns "line 12: path: problem".
func (f *Fault) Error() string {
	var text strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&text, "line %d: ", f.Line)
	}
	if f.Path != "" {
		text.WriteString(f.Path + ": ")
	}
	text.WriteString(f.Problem)
	return text.String()
}

// join sorts the faults by place and joins them; nil when there are none.
func join(faults []*Fault) error {
	slices.SortStableFunc(faults, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	errs := make([]error, 0, min(len(faults), MaxFaults+1))
	for _, fault := range faults {
		if len(errs) == MaxFaults {
			more := &Fault{Problem: fmt.Sprintf("%d more faults; repair the first %d", len(faults)-MaxFaults, MaxFaults)}
			errs = append(errs, more)
			break
		}
		errs = append(errs, fault)
	}
	return errors.Join(errs...)
}

// show quotes a piece of the file for a message, cut to 60 bytes.
func show(text string) string {
	if len(text) <= 60 {
		return fmt.Sprintf("%q", text)
	}
	cut := 57
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%q", text[:cut]+"...")
}

// pathKey is a key as a path shows it: bare when it could be a name.
func pathKey(key string) string {
	bare := key != "" && len(key) <= 128
	for i := range len(key) {
		c := key[i]
		bare = bare && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._:@-", c) >= 0)
	}
	if bare {
		return key
	}
	return show(key)
}
