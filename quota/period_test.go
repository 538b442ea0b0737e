package quota_test

import (
	"errors"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
)

// zoneNames are zones with every oddity since 1970: jumps over midnight,
// clocks set back over midnight, half-hour shifts, dates skipped at the date
// line, negative winter time, and offsets at both ends.
var zoneNames = []string{
	"UTC", "Europe/Berlin", "Europe/Dublin", "Europe/London", "Europe/Lisbon", "America/New_York",
	"America/Sao_Paulo", "America/Havana", "America/St_Johns", "America/Asuncion", "America/Santiago",
	"America/Caracas", "America/Scoresbysund", "America/Nuuk", "Asia/Tokyo", "Asia/Kolkata", "Asia/Kathmandu",
	"Asia/Beirut", "Asia/Gaza", "Asia/Amman", "Asia/Tehran", "Asia/Pyongyang", "Asia/Manila", "Africa/Cairo",
	"Africa/Casablanca", "Africa/Monrovia", "Africa/Juba", "Australia/Lord_Howe", "Australia/Adelaide",
	"Antarctica/Troll", "Antarctica/Casey", "Pacific/Apia", "Pacific/Fakaofo", "Pacific/Kwajalein",
	"Pacific/Kiritimati", "Pacific/Kanton", "Pacific/Chatham", "Pacific/Auckland", "Etc/GMT+12", "Etc/GMT-14",
}

var units = []quota.PeriodUnit{quota.PeriodDay, quota.PeriodWeek, quota.PeriodMonth, quota.PeriodYear}

func TestPeriodAt(t *testing.T) {
	for _, c := range []struct {
		name   string
		zone   string
		anchor int
		unit   quota.PeriodUnit
		at     string
		key    string
		start  string
		end    string
	}{
		{"plain month", "", 1, quota.PeriodMonth, "2026-11-15T12:00:00Z",
			"m2026-11-01", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"the first instant is in", "UTC", 1, quota.PeriodMonth, "2026-12-01T00:00:00Z",
			"m2026-12-01", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"the last instant is in", "UTC", 1, quota.PeriodMonth, "2026-11-30T23:59:59.999999999Z",
			"m2026-11-01", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"the account's zone, not ours", "Asia/Tokyo", 15, quota.PeriodMonth, "2026-11-14T15:00:00Z",
			"m2026-11-15", "2026-11-15T00:00:00+09:00", "2026-12-15T00:00:00+09:00"},
		{"before the anchor day", "Asia/Tokyo", 15, quota.PeriodMonth, "2026-11-14T14:59:59Z",
			"m2026-10-15", "2026-10-15T00:00:00+09:00", "2026-11-15T00:00:00+09:00"},
		{"before the anchor day in January", "UTC", 15, quota.PeriodMonth, "2027-01-14T00:00:00Z",
			"m2026-12-15", "2026-12-15T00:00:00Z", "2027-01-15T00:00:00Z"},
		{"anchor 31 in February", "UTC", 31, quota.PeriodMonth, "2027-02-28T00:00:00Z",
			"m2027-02-28", "2027-02-28T00:00:00Z", "2027-03-31T00:00:00Z"},
		{"anchor 31 before the end of February", "UTC", 31, quota.PeriodMonth, "2027-02-27T23:59:59Z",
			"m2027-01-31", "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z"},
		{"anchor 29 in a leap year", "UTC", 29, quota.PeriodMonth, "2028-02-29T00:00:00Z",
			"m2028-02-29", "2028-02-29T00:00:00Z", "2028-03-29T00:00:00Z"},
		{"anchor 30 in a leap year", "UTC", 30, quota.PeriodMonth, "2028-02-29T00:00:00Z",
			"m2028-02-29", "2028-02-29T00:00:00Z", "2028-03-30T00:00:00Z"},
		{"anchor 30 in a year that 100 divides", "UTC", 30, quota.PeriodMonth, "2100-02-28T00:00:00Z",
			"m2100-02-28", "2100-02-28T00:00:00Z", "2100-03-30T00:00:00Z"},
		{"anchor 31 in April", "UTC", 31, quota.PeriodMonth, "2026-04-30T10:00:00Z",
			"m2026-04-30", "2026-04-30T00:00:00Z", "2026-05-31T00:00:00Z"},
		{"a week from Sunday", "UTC", 1, quota.PeriodWeek, "2026-11-15T12:00:00Z",
			"w2026-11-09", "2026-11-09T00:00:00Z", "2026-11-16T00:00:00Z"},
		{"a week from Monday", "UTC", 1, quota.PeriodWeek, "2026-11-16T00:00:00Z",
			"w2026-11-16", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{"a year", "America/New_York", 1, quota.PeriodYear, "2026-07-04T00:00:00Z",
			"y2026-01-01", "2026-01-01T00:00:00-05:00", "2027-01-01T00:00:00-05:00"},
		{"a year before its anchor day", "UTC", 31, quota.PeriodYear, "2028-01-30T23:00:00Z",
			"y2027-01-31", "2027-01-31T00:00:00Z", "2028-01-31T00:00:00Z"},
		{"Feb 29 in a year", "UTC", 29, quota.PeriodYear, "2028-02-29T00:00:00Z",
			"y2028-01-29", "2028-01-29T00:00:00Z", "2029-01-29T00:00:00Z"},
		{"a day of 23 hours", "Europe/Berlin", 1, quota.PeriodDay, "2026-03-29T12:00:00Z",
			"d2026-03-29", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"a day of 25 hours", "Europe/Berlin", 1, quota.PeriodDay, "2026-10-25T12:00:00Z",
			"d2026-10-25", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"a month through a change of clocks", "Europe/Berlin", 1, quota.PeriodMonth, "2026-10-31T12:00:00Z",
			"m2026-10-01", "2026-10-01T00:00:00+02:00", "2026-11-01T00:00:00+01:00"},
		// 2018-11-04 began at 01:00 in Sao Paulo.
		{"a midnight that does not exist", "America/Sao_Paulo", 4, quota.PeriodMonth, "2018-11-04T03:00:00Z",
			"m2018-11-04", "2018-11-04T01:00:00-02:00", "2018-12-04T00:00:00-02:00"},
		{"the instant before it", "America/Sao_Paulo", 1, quota.PeriodDay, "2018-11-04T02:59:59Z",
			"d2018-11-03", "2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00"},
		// Until 2011 St. John's set its clocks back from 00:01 to 23:01 of the
		// day before: 2010-11-07 had begun, and goes on.
		{"a midnight that comes twice", "America/St_Johns", 1, quota.PeriodDay, "2010-11-07T03:00:00Z",
			"d2010-11-07", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		// Samoa skipped 2011-12-30.
		{"before a date that does not exist", "Pacific/Apia", 1, quota.PeriodDay, "2011-12-30T09:59:59Z",
			"d2011-12-29", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"after a date that does not exist", "Pacific/Apia", 1, quota.PeriodDay, "2011-12-30T10:00:00Z",
			"d2011-12-31", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		{"a month from a date that does not exist", "Pacific/Apia", 30, quota.PeriodMonth, "2011-12-31T12:00:00Z",
			"m2011-12-30", "2011-12-31T00:00:00+14:00", "2012-01-30T00:00:00+14:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			account := quota.Account{Name: "a", Plan: "p", TimeZone: c.zone, AnchorDay: c.anchor}
			got := account.PeriodAt(c.unit, instant(t, c.at))
			if got.Key != c.key || !got.Start.Equal(instant(t, c.start)) || !got.End.Equal(instant(t, c.end)) {
				t.Errorf("got %s from %s to %s, want %s from %s to %s", got.Key,
					got.Start.Format(time.RFC3339Nano), got.End.Format(time.RFC3339Nano), c.key, c.start, c.end)
			}
		})
	}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

var (
	year1970 = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	year2101 = time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC)
)

// The months and years of every zone from 1970 to 2100, one after the other.
func TestMonthsAndYearsTileTime(t *testing.T) {
	for _, zone := range zoneNames {
		for _, anchor := range []int{1, 29, 30, 31} {
			account := quota.Account{Name: "a", Plan: "p", TimeZone: zone, AnchorDay: anchor}
			checkTiling(t, account, quota.PeriodMonth, year1970, year2101)
			checkTiling(t, account, quota.PeriodYear, year1970, year2101)
		}
	}
}

// The days and weeks around every change of every zone's clock from 1970 to
// 2100, and all the days of one zone that skipped a date.
func TestDaysAndWeeksTileTime(t *testing.T) {
	for _, zone := range zoneNames {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		account := quota.Account{Name: "a", Plan: "p", TimeZone: zone, AnchorDay: 1}
		// Not ZoneBounds: on some days after 2037 it reports no progress.
		_, offset := year1970.In(location).Zone()
		for at := year1970; at.Before(year2101); at = at.Add(day) {
			_, now := at.In(location).Zone()
			if now == offset {
				continue
			}
			offset = now
			checkTiling(t, account, quota.PeriodDay, at.Add(-3*day), at.Add(3*day))
			checkTiling(t, account, quota.PeriodWeek, at.Add(-8*day), at.Add(8*day))
		}
	}
	checkTiling(t, quota.Account{Name: "a", Plan: "p", TimeZone: "Pacific/Apia", AnchorDay: 1}, quota.PeriodDay, year1970, year2101)
}

// checkTiling walks the periods of a span: each begins where the last ended,
// contains its first and last instant, and has a key of its own that leads
// back to it.
func checkTiling(t *testing.T, account quota.Account, unit quota.PeriodUnit, from, to time.Time) {
	t.Helper()
	period := account.PeriodAt(unit, from)
	if !period.Contains(from) {
		t.Fatalf("%s %s: %v is not in %v to %v", account.TimeZone, unit, from, period.Start, period.End)
	}
	for period.Start.Before(to) {
		if again := account.PeriodAt(unit, period.End.Add(-1)); again != period {
			t.Fatalf("%s %s: the last instant of %s is in %s", account.TimeZone, unit, period.Key, again.Key)
		}
		back, err := quota.PeriodFromKey(period.Key, account.TimeZone, account.AnchorDay)
		if err != nil || back != period {
			t.Fatalf("%s %s: %s leads to %v, %v", account.TimeZone, unit, period.Key, back, err)
		}
		next := account.PeriodAt(unit, period.End)
		if !next.Start.Equal(period.End) || next.Key <= period.Key {
			t.Fatalf("%s %s: %s ends at %v, %s starts at %v", account.TimeZone, unit, period.Key, period.End, next.Key, next.Start)
		}
		period = next
	}
}

func TestPeriodContainsItsInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		account := quota.Account{
			Name: "a", Plan: "p",
			TimeZone:  rapid.SampledFrom(zoneNames).Draw(t, "zone"),
			AnchorDay: rapid.IntRange(1, 31).Draw(t, "anchor"),
		}
		unit := rapid.SampledFrom(units).Draw(t, "unit")
		at := time.Unix(rapid.Int64Range(year1970.Unix(), year2101.Unix()).Draw(t, "at"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		period := account.PeriodAt(unit, at)
		if !period.Contains(at) {
			t.Fatalf("%v is not in %v to %v", at, period.Start, period.End)
		}
		back, err := quota.PeriodFromKey(period.Key, account.TimeZone, account.AnchorDay)
		if err != nil || back != period {
			t.Fatalf("%s leads to %v, %v", period.Key, back, err)
		}
		parsed, year, month, day, err := quota.ParsePeriodKey(period.Key)
		if err != nil || parsed != unit {
			t.Fatalf("%s: %s, %v", period.Key, parsed, err)
		}
		// Where local midnight exists, the period starts on it and on the key's date.
		location, err := time.LoadLocation(account.TimeZone)
		if err != nil {
			t.Fatal(err)
		}
		midnight := time.Date(year, month, day, 0, 0, 0, 0, location)
		if midnight.Hour() == 0 && midnight.Day() == day && !period.Start.Equal(midnight) {
			// time.Date takes the later of two midnights at will; ours is the first.
			if local := period.Start.In(location); local.Hour() != 0 || local.Day() != day || local.After(midnight) {
				t.Fatalf("%s starts at %v, not at %v", period.Key, local, midnight)
			}
		}
		// Another broker, another zone of its own: the same answer.
		if other := account.PeriodAt(unit, at.In(time.FixedZone("odd", 12345))); other != period {
			t.Fatalf("%v and %v for one instant", other, period)
		}
	})
}

// The start of a day is the first instant whose local date is that day or a
// later one, found here by trying every half minute (since 1972 no zone has a
// finer offset).
func TestDayStartsAtItsFirstInstant(t *testing.T) {
	for _, zone := range zoneNames {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		check := func(at time.Time) {
			account := quota.Account{Name: "a", Plan: "p", TimeZone: zone, AnchorDay: 1}
			period := account.PeriodAt(quota.PeriodDay, at)
			first := period.Start.Add(-26 * time.Hour).Truncate(30 * time.Second)
			_, year, month, day, err := quota.ParsePeriodKey(period.Key)
			if err != nil {
				t.Fatal(err)
			}
			ordinal := func(year int, month time.Month, day int) int { return (year*100+int(month))*100 + day }
			for ordinal(first.In(location).Date()) < ordinal(year, month, day) {
				first = first.Add(30 * time.Second)
			}
			if !first.Equal(period.Start) {
				t.Errorf("%s: %s starts at %v, want %v", zone, period.Key, period.Start, first)
			}
		}
		changes := 0
		_, offset := year1970.AddDate(3, 0, 0).In(location).Zone()
		for at := year1970.AddDate(3, 0, 0); at.Before(year2101) && changes < 30; at = at.Add(day) {
			if _, now := at.In(location).Zone(); now != offset {
				offset = now
				changes++
				check(at.Add(-day))
				check(at)
			}
		}
		// The last days of leap years after the zone's table ends.
		for _, year := range []int{2040, 2044, 2096} {
			for hour := -30; hour <= 30; hour += 10 {
				check(time.Date(year, 12, 31, hour, 0, 0, 0, time.UTC))
			}
		}
	}
}

func TestPeriodFromKeyRefuses(t *testing.T) {
	for _, c := range []struct {
		key, zone string
		anchor    int
	}{
		{"", "", 1}, {"m", "", 1}, {"2026-11-01", "", 1}, {"x2026-11-01", "", 1}, {"m2026-11-1", "", 1},
		{"m2026-13-01", "", 1}, {"m2026-02-30", "", 1}, {"m2026-11-01 ", "", 1}, {"M2026-11-01", "", 1},
		{"d0000-01-01", "", 1}, {"d9999-01-01", "", 1}, {"m2026/11/01", "", 1}, {"m+026-11-01", "", 1},
		{"m2026-11-02", "", 1}, {"m2026-11-01", "", 15}, {"w2026-11-15", "", 1}, {"y2026-02-01", "", 1},
		{"m2027-03-28", "", 31}, {"d2011-12-30", "Pacific/Apia", 1},
	} {
		if period, err := quota.PeriodFromKey(c.key, c.zone, c.anchor); !errors.Is(err, quota.ErrPeriodKey) {
			t.Errorf("%q with anchor %d in %q: %v, %v", c.key, c.anchor, c.zone, period, err)
		}
	}
	for _, zone := range []string{"Local", "Mars/Olympus", "../etc/passwd", "EST5EDT4"} {
		if _, err := quota.PeriodFromKey("m2026-11-01", zone, 1); err == nil {
			t.Errorf("zone %q was accepted", zone)
		}
	}
	for _, anchor := range []int{-1, 32} {
		if _, err := quota.PeriodFromKey("m2026-11-01", "", anchor); err == nil {
			t.Errorf("anchor day %d was accepted", anchor)
		}
	}
	if period, err := quota.PeriodFromKey("m2026-11-01", "", 0); err != nil || period.Key != "m2026-11-01" {
		t.Errorf("the default anchor day: %v, %v", period, err)
	}
}

func TestPeriodAtOfAnAccountThatNoPolicyBuilt(t *testing.T) {
	at := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	for _, account := range []quota.Account{{}, {TimeZone: "Mars/Olympus", AnchorDay: -4}} {
		if key := account.PeriodAt(quota.PeriodMonth, at).Key; key != "m2026-11-01" {
			t.Errorf("%+v: %s", account, key)
		}
		if key := account.PeriodAt("fortnight", at).Key; key != "d2026-11-15" {
			t.Errorf("%+v: %s", account, key)
		}
	}
}

func FuzzParsePeriodKey(f *testing.F) {
	for _, seed := range []string{"m2026-11-15", "d2011-12-30", "y9998-01-31", "w", "m2026-02-29"} {
		f.Add(seed, 15)
	}
	f.Fuzz(func(t *testing.T, key string, anchor int) {
		period, err := quota.PeriodFromKey(key, "America/St_Johns", anchor)
		if err != nil {
			return
		}
		unit, _, _, _, err := quota.ParsePeriodKey(key)
		if err != nil {
			t.Fatal(err)
		}
		account := quota.Account{TimeZone: "America/St_Johns", AnchorDay: anchor}
		if again := account.PeriodAt(unit, period.Start); again != period {
			t.Fatalf("%q: %v and %v", key, period, again)
		}
	})
}

func BenchmarkPeriodAt(b *testing.B) {
	account := quota.Account{Name: "a", Plan: "p", TimeZone: "Asia/Tokyo", AnchorDay: 15}
	at := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		account.PeriodAt(quota.PeriodMonth, at)
	}
}
