package trace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// fieldOf finds what a column means.
func fieldOf(name string) (field, error) {
	f := field{name: name, kind: fieldNames[name]}
	if f.kind != 0 {
		return f, nil
	}
	group, key, _ := strings.Cut(name, ".")
	switch group {
	case "labels":
		f.kind = fieldLabel
		if err := quota.ValidateLabels(map[string]string{key: ""}); err != nil {
			return field{}, err
		}
	case "amounts", "held":
		f.kind = fieldAmount
		if group == "held" {
			f.kind = fieldHeld
		}
		if err := (quota.Amounts{quota.Meter(key): 1}).Validate(); err != nil {
			return field{}, err
		}
	default:
		return field{}, fmt.Errorf("is not known; use %s, write labels.%s to keep it as a label, or leave it out", Fields, shorten(name))
	}
	f.key = key
	return f, nil
}

// shorten cuts what an error repeats of a line.
func shorten(text string) string {
	const most = 64
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}

// ending is how a line says when its call ended.
type ending struct {
	duration time.Duration
	stated   bool
}

// set fills one field of a call. An empty value states nothing.
func (c *Call) set(f *field, value string, e *ending) (err error) {
	if value == "" && f.kind != fieldLabel {
		return nil
	}
	switch f.kind {
	case fieldTime:
		c.At, err = ParseInstant(value)
	case fieldEnd:
		c.Ends, err = ParseInstant(value)
	case fieldDuration:
		e.duration, err = parseDuration(value)
		e.stated = true
	case fieldAccount:
		c.Account = value
		if quota.ValidateAccountName(value) != nil {
			err = errors.New("is not an account name; use 1 to 128 of A-Z, a-z, 0-9 and '._:@-', starting with a letter or digit")
		}
	case fieldProvider:
		c.Provider = value
	case fieldModel:
		c.Model = value
	case fieldInput:
		c.Input, err = parseTokens(value)
		c.Tokens = true
	case fieldOutput:
		c.Output, err = parseTokens(value)
		c.Tokens = true
	case fieldMaxOutput:
		c.MaxOutput, err = parseTokens(value)
	case fieldLabel:
		if c.Labels == nil {
			c.Labels = make(map[string]string, 4)
		}
		c.Labels[f.key] = value
	case fieldAmount:
		err = addAmount(&c.Amounts, quota.Meter(f.key), value)
	case fieldHeld:
		err = addAmount(&c.Held, quota.Meter(f.key), value)
	}
	if err != nil {
		return fmt.Errorf("%q %w", shorten(value), err)
	}
	return nil
}

func parseTokens(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > MaxRequestTokens {
		return 0, fmt.Errorf("is not a whole number between 0 and %d", MaxRequestTokens)
	}
	return n, nil
}

// addAmount takes whole numbers in the meter's unit, and what policies write: $0.02.
func addAmount(to *quota.Amounts, meter quota.Meter, text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	amount := quota.Amount(n)
	if err != nil {
		amount, err = quota.ParseAmount(meter, text)
	} else {
		err = amount.Check()
	}
	if err != nil {
		return fmt.Errorf("is not an amount of %s: %w", meter, err)
	}
	if *to == nil {
		*to = make(quota.Amounts, 2)
	}
	(*to)[meter] = amount
	return nil
}

var errDuration = fmt.Errorf("is not a duration such as 1.5s, 300ms or 1.5 (seconds), between 0 and %s", MaxDuration)

func parseDuration(text string) (time.Duration, error) {
	if strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > MaxDuration {
		return 0, errDuration
	}
	return d, nil
}

// finish checks what only the whole line shows. It returns the field at fault.
func (c *Call) finish(e *ending) (name string, err error) {
	if c.At.IsZero() {
		return "time", errors.New("is missing")
	}
	switch {
	case e.stated && !c.Ends.IsZero():
		return "duration", errors.New("is stated beside end; state one of them")
	case e.stated:
		c.Ends = c.At.Add(e.duration.Truncate(time.Microsecond))
	case c.Ends.IsZero():
	case c.Ends.Before(c.At):
		return "end", errors.New("is before time")
	case c.Ends.Sub(c.At) > MaxDuration:
		return "end", fmt.Errorf("is more than %s after time", MaxDuration)
	}
	if err := quota.ValidateLabels(c.Labels); err != nil {
		return "labels", err
	}
	for _, list := range []struct {
		name    string
		amounts quota.Amounts
	}{{"amounts", c.Amounts}, {"held", c.Held}} {
		if len(list.amounts) == 0 {
			continue
		}
		if err := list.amounts.Validate(); err != nil {
			return list.name, err
		}
		if _, stated := list.amounts[quota.MeterInFlight]; stated {
			return list.name + ".in_flight", errors.New("is stated; every call takes one slot, leave it out")
		}
	}
	return "", nil
}

// sortedNames are the keys of a map in order.
func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
