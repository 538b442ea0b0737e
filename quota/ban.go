package quota

import (
	"fmt"
	"strings"
	"time"
)

// Bounds of a [Ban].
const (
	MaxBanRefusals = 100 // refusals that a counter remembers one by one

	MinBanSpan = time.Second    // shortest Within and For
	MaxBanSpan = 24 * time.Hour // longest Within and For
)

// Ban shuts a counter for a while to whoever goes on asking it. The zero value is no
// ban.
type Ban struct {
	Refusals int           // so many refusals by the limit, 1 to MaxBanRefusals
	Within   time.Duration // in any span of this length; MinBanSpan to MaxBanSpan, whole milliseconds
	For      time.Duration // have the counter refuse everything for so long; likewise
}

// Window is the arithmetic by which a ban's refusals are counted, each as one unit.
func (b Ban) Window() Window {
	return Window{Kind: KindSlidingLog, Max: Amount(b.Refusals), Length: b.Within.Microseconds()}
}

// Count returns the state after one more refusal, and whether it is the one that
// brings the ban.
func (b Ban) Count(u Counted, now int64) (after Counted, banned bool) {
	w := b.Window()
	after, _ = w.Take(w.Advance(u, now), 1, now)
	return after, w.Remaining(after, now) <= 0
}

// String is the ban as the plan language has it, "" for none.
func (b Ban) String() string {
	if b == (Ban{}) {
		return ""
	}
	return fmt.Sprintf("refusals: %d, within: %s, for: %s", b.Refusals, FormatSpan(b.Within), FormatSpan(b.For))
}

// FormatSpan writes a span as [ParseSpan] reads it.
func FormatSpan(span time.Duration) string {
	for _, u := range spans {
		if span >= u.span && span%u.span == 0 {
			return fmt.Sprintf("%d%s", span/u.span, u.name)
		}
	}
	return span.String()
}

// ParseSpan reads a span of time, as in 30s, 10min (or 10m) or 1h, between least and
// most.
func ParseSpan(text string, least, most time.Duration) (time.Duration, error) {
	whole := text
	if strings.HasSuffix(text, "m") {
		whole += "in"
	}
	span, err := parseSpan(whole)
	if err != nil || span < least || span > most || text[0] < '1' || text[0] > '9' {
		return 0, fmt.Errorf("%s is not a span between %s and %s; write a whole number and us, ms, s, min, h or day, as in 10min", quoteShort(text), FormatSpan(least), FormatSpan(most))
	}
	return span, nil
}

func (l Limit) validateRefusals(f *faults) {
	if l.CountRefusals && !l.Kind.HasRate() {
		f.add("count_refusals", "only a limit with a rate can count what it did not admit; leave it out")
	} else if l.CountRefusals && l.Kind == KindLeakyQueue {
		f.add("count_refusals", "a leaky queue delays and has nobody to keep out; leave it out, or choose another algorithm")
	}
	if l.Ban == (Ban{}) {
		return
	}
	if l.Soft {
		f.add("ban", "a soft quota refuses nobody, so nobody can be banned; leave one of the two out")
		return
	}
	if l.Ban.Refusals < 1 || l.Ban.Refusals > MaxBanRefusals {
		f.add("ban", "refusals: %d is not between 1 and %d", l.Ban.Refusals, MaxBanRefusals)
	}
	for _, span := range []struct {
		word string
		is   time.Duration
	}{{"within", l.Ban.Within}, {"for", l.Ban.For}} {
		if span.is < MinBanSpan || span.is > MaxBanSpan || span.is%time.Millisecond != 0 {
			f.add("ban", "%s: %s is not a whole number of milliseconds between %s and %s", span.word, FormatSpan(span.is), FormatSpan(MinBanSpan), FormatSpan(MaxBanSpan))
		}
	}
}
