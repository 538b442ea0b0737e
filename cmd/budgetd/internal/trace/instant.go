package trace

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// The years in which recorded calls may be: both are far from where engines
// stop counting.
const (
	firstYear = 1970
	lastYear  = 2200
)

var errInstant = errors.New("is not an instant such as 2026-03-10T12:00:00.5Z, 2026-03-10 12:00:00.5 (UTC) or 1773144000.5 (seconds since 1970), of the years 1970 to 2200")

// ParseInstant reads RFC 3339, the same with a space for the T, both in UTC
// where no zone is stated, or seconds since 1970 with at most nine decimals. It
// cuts to the microsecond, which is what engines count in.
func ParseInstant(text string) (time.Time, error) {
	at, err := parseInstant(text)
	if err != nil || at.Year() < firstYear || at.Year() > lastYear {
		return time.Time{}, errInstant
	}
	return at.UTC().Truncate(time.Microsecond), nil
}

func parseInstant(text string) (time.Time, error) {
	if len(text) < len(time.DateOnly) || text[4] != '-' {
		return parseSeconds(text)
	}
	if len(text) < len(time.DateTime) || len(text) > 40 || strings.Contains(text, ",") {
		return time.Time{}, errInstant
	}
	// The one form that the time package reads without looking at a layout.
	b := make([]byte, 0, 48)
	b = append(b, text...)
	if b[10] == ' ' {
		b[10] = 'T'
	}
	if last := b[len(b)-1]; last != 'Z' && !hasOffset(text) {
		b = append(b, 'Z')
	}
	return time.Parse(time.RFC3339Nano, string(b))
}

// hasOffset says whether an instant ends in one such as +01:00.
func hasOffset(text string) bool {
	if len(text) < len(time.DateTime)+6 {
		return false
	}
	sign := text[len(text)-6]
	return (sign == '+' || sign == '-') && text[len(text)-3] == ':'
}

func parseSeconds(text string) (time.Time, error) {
	whole, fraction, point := strings.Cut(text, ".")
	if len(whole) == 0 || len(whole) > 10 || point && fraction == "" || len(fraction) > 9 || strings.Trim(whole+fraction, "0123456789") != "" {
		return time.Time{}, errInstant
	}
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return time.Time{}, errInstant
	}
	nanos, err := strconv.ParseInt(fraction+strings.Repeat("0", 9-len(fraction)), 10, 64)
	if err != nil {
		return time.Time{}, errInstant
	}
	return time.Unix(seconds, nanos), nil
}
