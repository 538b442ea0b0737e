package pause

import (
	"net/http"
	"strconv"
	"time"
)

// MaxAsked bounds what an answer can ask to wait: a week.
const MaxAsked = 7 * 24 * time.Hour

// Asked reads how long an answer asks to wait: Retry-After-Ms, and where that is not
// there, negative or can't be read, Retry-After in seconds or as a date (RFC 9110,
// 10.2.3). Both may have fractions. The first is the finer of the two, so that a 0 of
// it counts, too. It is 0 for none, for one that can't be read or has passed, and
// [MaxAsked] at most.
func Asked(header http.Header, now time.Time) time.Duration {
	if wait, ok := number(header.Get("Retry-After-Ms"), time.Millisecond); ok {
		return wait
	}
	text := header.Get("Retry-After")
	if wait, ok := number(text, time.Second); ok {
		return wait
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(date.Sub(now), 0), MaxAsked)
}

// number reads so many units; ok is false for what is no number from 0 up.
func number(text string, unit time.Duration) (wait time.Duration, ok bool) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) { // NaN is not
		return 0, false
	}
	return time.Duration(min(n, float64(MaxAsked/unit)) * float64(unit)), true
}
