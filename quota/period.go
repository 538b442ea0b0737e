package quota

import (
	"errors"
	"fmt"
	"sort"
	"time"
)

// PeriodUnit is the calendar span over which a quota counts.
type PeriodUnit string

// The calendar spans of a quota. All are in the account's time zone.
const (
	PeriodDay   PeriodUnit = "day"   // from midnight
	PeriodWeek  PeriodUnit = "week"  // from Monday's midnight
	PeriodMonth PeriodUnit = "month" // from the account's anchor day, or the month's last day where it has no such day
	PeriodYear  PeriodUnit = "year"  // from the account's anchor day in January
)

// letter is the first byte of a period key; 0 for an unknown unit.
func (u PeriodUnit) letter() byte {
	switch u {
	case PeriodDay, PeriodWeek, PeriodMonth, PeriodYear:
		return u[0]
	}
	return 0
}

// Period is one span of a quota, half open: Start is in it, End is the start
// of the next.
type Period struct {
	// Key is the unit's first letter and the local date on which the period
	// nominally starts: "m2026-11-15". It is at most 11 bytes.
	Key string
	// Start is the first instant at which the local clock shows midnight of
	// that date or later. (Where midnight does not exist, as on some days on
	// which a zone moves forward, that is the first instant that does.)
	Start time.Time
	// End is the Start of the next period.
	End time.Time
}

// Contains says whether Start <= at < End.
func (p Period) Contains(at time.Time) bool {
	return !at.Before(p.Start) && at.Before(p.End)
}

// ErrPeriodKey says that a period key is malformed, or that no period of the
// account starts on its date.
var ErrPeriodKey = errors.New("invalid period key")

// Limits of the years in which periods exist.
const (
	minPeriodYear = 1
	maxPeriodYear = 9998 // its periods still end in a year of four digits
)

// PeriodAt returns the period of the account that contains the instant, for
// years 1 to 9998.
//
// Periods tile time: once a period has begun it goes on until the next begins.
// Where a zone sets its clock back over midnight, so that the last minutes of
// a day are shown twice, the second showing belongs to the period that has
// already begun.
//
// An account from a [Policy] always has a valid zone and anchor day. For any
// other account an unknown zone counts as UTC and an anchor day outside 1 to
// 31 as the nearer of the two. An unknown unit counts as a day.
func (a Account) PeriodAt(unit PeriodUnit, at time.Time) Period {
	location, err := loadZone(a.TimeZone)
	if err != nil {
		location = time.UTC
	}
	rule := periodRule{unit: unit, anchor: min(max(a.AnchorDay, 1), 31)}
	if unit.letter() == 0 {
		rule.unit = PeriodDay
	}
	year, month, day := at.In(location).Date()
	start := rule.floor(date{year, month, day})
	next := rule.next(start)
	end := next.begins(location)
	for !at.Before(end) {
		start, next = next, rule.next(next)
		end = next.begins(location)
	}
	return Period{Key: rule.key(start), Start: start.begins(location), End: end}
}

// PeriodFromKey returns the period that [Account.PeriodAt] gave the key, for an
// account in time zone tz ("" is UTC) with the given anchor day (0 is 1). The
// error wraps [ErrPeriodKey] when the key is malformed, when no period of such
// an account starts on its date, or when its date was skipped altogether by
// the zone; an unknown zone and an anchor day outside 0 to 31 are errors too.
func PeriodFromKey(key, tz string, anchorDay int) (Period, error) {
	unit, year, month, day, err := ParsePeriodKey(key)
	if err != nil {
		return Period{}, err
	}
	location, err := loadZone(tz)
	if err != nil {
		return Period{}, err
	}
	if anchorDay == 0 {
		anchorDay = 1
	}
	if p := anchorDayProblem(anchorDay); p != "" {
		return Period{}, fmt.Errorf("anchor_day: %s", p)
	}
	rule := periodRule{unit: unit, anchor: anchorDay}
	start := date{year, month, day}
	if first := rule.floor(start); first != start {
		return Period{}, fmt.Errorf("%w: %q: no %s with anchor day %d starts on that date, the one that contains it is %q", ErrPeriodKey, key, unit, anchorDay, rule.key(first))
	}
	period := Period{Key: key, Start: start.begins(location), End: rule.next(start).begins(location)}
	if !period.Start.Before(period.End) {
		return Period{}, fmt.Errorf("%w: %q: that date does not exist in %s", ErrPeriodKey, key, location)
	}
	return period, nil
}

// ParsePeriodKey splits a key into its unit and the local date on which the
// period starts. Which instants those are depends on the account; see
// [PeriodFromKey]. The error wraps [ErrPeriodKey].
func ParsePeriodKey(key string) (unit PeriodUnit, year int, month time.Month, day int, err error) {
	malformed := func() (PeriodUnit, int, time.Month, int, error) {
		return "", 0, 0, 0, fmt.Errorf("%w: %s is not one of d, w, m, y and a date, as in m2026-11-15", ErrPeriodKey, quoteShort(key))
	}
	if len(key) != len("m2026-11-15") {
		return malformed()
	}
	for _, u := range [...]PeriodUnit{PeriodDay, PeriodWeek, PeriodMonth, PeriodYear} {
		if u.letter() == key[0] {
			unit = u
		}
	}
	start, err := time.Parse(time.DateOnly, key[1:])
	if unit == "" || err != nil || start.Year() < minPeriodYear || start.Year() > maxPeriodYear {
		return malformed()
	}
	year, month, day = start.Date()
	return unit, year, month, day, nil
}

// date is a day of the proleptic Gregorian calendar, in no zone.
type date struct {
	year  int
	month time.Month
	day   int
}

func (d date) plus(days int) date {
	year, month, day := time.Date(d.year, d.month, d.day+days, 0, 0, 0, 0, time.UTC).Date()
	return date{year, month, day}
}

func (d date) weekday() time.Weekday {
	return time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC).Weekday()
}

// begins returns the first instant at which a clock in the zone shows midnight
// of the date or later. time.Date would not do: it guesses where midnight is
// missing or comes twice.
func (d date) begins(location *time.Location) time.Time {
	// What UTC shows at that midnight; t + offset(t) >= midnight is sought.
	midnight := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC)
	// RFC 8536 section 3.2 keeps offsets below 26 hours, so no earlier instant
	// can show it.
	at := midnight.Add(-26 * time.Hour)
	for {
		local := at.In(location)
		_, offset := local.Zone()
		candidate := midnight.Add(-time.Duration(offset) * time.Second)
		if candidate.Before(at) {
			candidate = at // the zone jumped over midnight here
		}
		changes := nextChange(local)
		if changes.IsZero() || candidate.Before(changes) {
			return candidate.In(location)
		}
		at = changes
	}
}

// nextChange returns an instant after at and not after the next change of the
// zone's offset, the zero time when there is none. It is the change itself
// except where time.ZoneBounds is wrong: from the first leap year that a zone's
// table leaves to its rule (2040 in most), it takes years to have 365 days,
// and on December 31 reports an end that has passed already.
func nextChange(at time.Time) time.Time {
	const step = time.Hour
	_, end := at.ZoneBounds()
	if end.IsZero() || end.After(at) {
		return end
	}
	_, offset := at.Zone()
	changed := func(seconds int) bool {
		_, other := at.Add(time.Duration(seconds) * time.Second).Zone()
		return other != offset
	}
	return at.Add(time.Duration(sort.Search(int(step/time.Second), func(i int) bool { return changed(i + 1) })+1) * time.Second)
}

// periodRule is how an account divides the calendar.
type periodRule struct {
	unit   PeriodUnit
	anchor int // 1 to 31
}

// floor returns the date on which the period that contains d starts.
func (r periodRule) floor(d date) date {
	switch r.unit {
	case PeriodWeek:
		return d.plus(-(int(d.weekday()) + 6) % 7)
	case PeriodMonth:
		start := r.inMonth(d.year, d.month)
		if d.day < start.day {
			start = r.inMonth(previousMonth(d.year, d.month))
		}
		return start
	case PeriodYear:
		if d.month == time.January && d.day < r.anchor {
			return date{d.year - 1, time.January, r.anchor}
		}
		return date{d.year, time.January, r.anchor}
	default:
		return d
	}
}

// next returns the start of the period after the one that starts on d.
func (r periodRule) next(d date) date {
	switch r.unit {
	case PeriodWeek:
		return d.plus(7)
	case PeriodMonth:
		if d.month == time.December {
			return r.inMonth(d.year+1, time.January)
		}
		return r.inMonth(d.year, d.month+1)
	case PeriodYear:
		return date{d.year + 1, time.January, r.anchor}
	default:
		return d.plus(1)
	}
}

// inMonth returns the anchor day in that month, or its last day.
func (r periodRule) inMonth(year int, month time.Month) date {
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return date{year, month, min(r.anchor, last)}
}

func previousMonth(year int, month time.Month) (int, time.Month) {
	if month == time.January {
		return year - 1, time.December
	}
	return year, month - 1
}

func (r periodRule) key(start date) string {
	key := make([]byte, 0, len("m2026-11-15"))
	key = append(key, r.unit.letter())
	key = appendPadded(key, start.year, 4)
	key = append(key, '-')
	key = appendPadded(key, int(start.month), 2)
	key = append(key, '-')
	key = appendPadded(key, start.day, 2)
	return string(key)
}

func appendPadded(to []byte, number, digits int) []byte {
	for divisor := pow10(digits - 1); divisor > 0; divisor /= 10 {
		to = append(to, byte('0'+number/divisor%10))
	}
	return to
}

func pow10(exponent int) int {
	power := 1
	for range exponent {
		power *= 10
	}
	return power
}
