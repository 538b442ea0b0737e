package quota

import (
	"testing"
	"time"
)

func TestParseWait(t *testing.T) {
	for text, want := range map[string]time.Duration{"0s": 0, "1ms": time.Millisecond, "2s": 2 * time.Second, "10m": 10 * time.Minute, "60min": time.Hour, "1h": time.Hour} {
		if got, err := ParseWait(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		} else if again, err := ParseWait(FormatSpan(got)); err != nil || again != got {
			t.Errorf("%s is written as %s and read as %v, %v", text, FormatSpan(got), again, err)
		}
	}
	for _, text := range []string{"", "0", "00s", "-1s", "2", "999us", "61min", "2h", "1.5s", "1m30s", "s"} {
		if got, err := ParseWait(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// What a limit lets wait changes it, and makes it no other limit.
func TestMaxWaitIsNoOtherLimit(t *testing.T) {
	limit := Limit{Name: "a", Meter: MeterTokens, Kind: KindBucket, Rate: Rate{Amount: 1, Every: time.Second}}
	before := limit.ID()
	for _, wait := range []time.Duration{0, time.Hour} {
		limit.MaxWait = &wait
		if err := limit.Validate(); err != nil || limit.ID() != before {
			t.Errorf("%v: %v, id %s and not %s", wait, err, limit.ID(), before)
		}
	}
	for _, wait := range []time.Duration{-time.Second, time.Hour + time.Second, time.Microsecond} {
		limit.MaxWait = &wait
		if fields := FieldErrors(limit.Validate()); len(fields) != 1 || fields[0].Field != "max_wait" {
			t.Errorf("%v: %v", wait, fields)
		}
	}
}
