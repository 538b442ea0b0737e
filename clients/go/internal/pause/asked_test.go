package pause

import (
	"net/http"
	"testing"
	"time"
)

// TestAsked has the cases in which the client once read the headers in two ways.
func TestAsked(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for _, example := range []struct {
		ms, after string
		want      time.Duration
	}{
		{"", "", 0},
		{"", "3", 3 * time.Second},
		{"", "0.5", 500 * time.Millisecond},
		{"", "0", 0},
		{"", "Tue, 01 Dec 2026 12:00:09 GMT", 9 * time.Second},
		{"", "Tue, 01 Dec 2026 11:00:00 GMT", 0},
		{"", "Tue, 01 Dec 2099 11:00:00 GMT", MaxAsked},
		{"", "-3", 0}, {"", "soon", 0}, {"", "NaN", 0},
		{"", "1e300", MaxAsked}, {"", "1e999", 0}, {"", "Inf", MaxAsked},
		{"20", "3", 20 * time.Millisecond},
		{"12.5", "3", 12500 * time.Microsecond}, // the SDKs of OpenAI read fractions
		{"0", "3", 0},                           // at once, which Retry-After can't say as finely
		{"-1", "3", 3 * time.Second}, {"x", "3", 3 * time.Second}, {"NaN", "3", 3 * time.Second}, {"", "3", 3 * time.Second},
		{"9999999999999999", "", MaxAsked}, {"1e300", "", MaxAsked},
	} {
		h := http.Header{}
		if example.ms != "" {
			h.Set("Retry-After-Ms", example.ms)
		}
		if example.after != "" {
			h.Set("Retry-After", example.after)
		}
		if got := Asked(h, now); got != example.want {
			t.Errorf("%q, %q: %v, want %v", example.ms, example.after, got, example.want)
		}
	}
}

func FuzzAsked(f *testing.F) {
	f.Add("3", "")
	f.Add("Tue, 01 Dec 2026 12:00:07 GMT", "12.5")
	f.Fuzz(func(t *testing.T, after, ms string) {
		if got := Asked(http.Header{"Retry-After": {after}, "Retry-After-Ms": {ms}}, time.Unix(0, 0)); got < 0 || got > MaxAsked {
			t.Errorf("%q, %q: %v", after, ms, got)
		}
	})
}
