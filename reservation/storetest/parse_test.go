package storetest

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
)

func TestParseScenario(t *testing.T) {
	s, err := parseScenario(`
# A comment.
needs incarnate
limit tokens bucket 10_000 10000/min charge pool=openai   # and another
+1.5s
reserve r1..r3 acme tokens[user=7]=4000 lease=30s key=k -> granted tokens[user=7].remaining=6000 expires=30s
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.needs) != 1 || len(s.steps) != 3 {
		t.Fatalf("%d needs and %d steps", len(s.needs), len(s.steps))
	}
	limit := s.steps[0].limit.hold
	if limit.Pool != "openai" || limit.OnExpiry != quota.ExpiryCharge || limit.Bucket != (quota.Bucket{Capacity: 10_000, Refill: 1, PerMicros: 6000}) {
		t.Errorf("limit %+v", limit)
	}
	if s.steps[1].span != 1500*time.Millisecond {
		t.Errorf("span %s", s.steps[1].span)
	}
	r := s.steps[2]
	if r.line != 6 || strings.Join(r.ids, " ") != "r1 r2 r3" || strings.Join(r.args, " ") != "acme tokens[user=7]=4000" || r.opts["lease"] != "30s" || r.opts["key"] != "k" {
		t.Errorf("step %+v", r)
	}
	wants := []want{{"granted", "true"}, {"tokens[user=7].remaining", "6000"}, {"expires", "30s"}}
	for i, w := range wants {
		if r.wants[i] != w {
			t.Errorf("want %d is %+v, not %+v", i, r.wants[i], w)
		}
	}
}

func TestParseScenarioErrors(t *testing.T) {
	for text, want := range map[string]string{
		"resreve r1 acme tokens=1":           `line 1: unknown step "resreve"`,
		"\n\nreserve":                        "line 3: reserve: the id is missing",
		"reserve r1..x acme":                 "is not a range",
		"reserve r5..r1 acme":                "is not a range",
		"reserve r1..r5000 acme":             "is not a range",
		"reserve r1 acme ->":                 "nothing is expected after ->",
		"reserve r1 acme lease=1s lease=2s":  "lease is stated twice",
		"+soon":                              "is not a span of time",
		"+1ns":                               "whole microseconds",
		"at":                                 "needs one span",
		"limit tokens bucket":                "limit: write limit NAME bucket",
		"limit tokens bucket ten 1/s":        `"ten" is not an amount`,
		"limit tokens bucket 10 1/fortnight": "is not a rate: its span",
		"limit tokens bucket 10 1/48h":       "must be 1ms to 24h",
		"limit tokens bucket 10 0/s":         "is not a rate",
		"limit slow slots 3 4":               "is no limit",
		"limit spend quota 3 fortnight":      "is not day, week, month or year",
		"limit spend leaky 3 month":          "is no limit",
		"needs luck":                         "is none of incarnate",
		"at 2026-13-01T00:00:00Z":            "is not a span of time",
	} {
		_, err := parseScenario(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}

// TestPlayScenarioErrors: a scenario that is wrong about a right engine fails,
// and says where.
func TestPlayScenarioErrors(t *testing.T) {
	const limits = "limit tokens bucket 10 1/s\nlimit slow slots 1\nlimit spend quota 10 day\n"
	for text, want := range map[string]string{
		"reserve r1 acme tokens=4 -> refused":                           "4: reserve r1 acme tokens=4 -> refused\n\trefused is expected, but the answer does not say it",
		"reserve r1 acme tokens=4 -> granted remaining=7":               "remaining is 6, not 7",
		"reserve r1 acme tokens=4 -> granted expires=61s":               "expires is 1m0s, not 1m1s",
		"reserve r1 acme tokens=4 -> granted tokens.resets=none":        "tokens.resets is 4s, not none",
		"reserve r1..r3 acme tokens=4 -> granted":                       "4 (r3): reserve",
		"reserve r1 acme tokens=11 -> refused retry=1s":                 "retry is none, not 1s",
		"reserve r1 acme toks=4":                                        `limit "toks" was not defined`,
		"reserve r1 acme tokens[user=4":                                 "the scope is not closed",
		"reserve r1":                                                    "the account is missing",
		"refund r1":                                                     `there is no reservation "r1"`,
		"reserve r1 acme tokens=4\nrefund r1 slow=1":                    "of a limit that was reserved",
		"reserve r1 acme tokens=4\nreserve r1 acme tokens=4":            `reservation "r1" exists`,
		"reserve r1 acme tokens=4\nconfirm r1":                          "r1 is not closed",
		"reserve r1 acme tokens=4\nrefund r1 -> settled late":           "late is false, not true",
		"reserve r1 acme tokens=4 lease=1s\n+1s\nsweep -> pending=none": "pending is r1, not none",
		"seed acme spend used=1 ver=1 ticket=1":                         "is not 0 to 0",
		"seed acme spend used=x ver=1":                                  `used: "x" is not a number`,
		"+5s\nat 3s":                                                    "has passed already",
		"levels acme":                                                   "write levels ACCOUNT and",
	} {
		s, err := parseScenario(limits + text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		engine, clock := begin(t, newFaulty(nil))
		err = playScenario(s, engine, clock)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}

// FuzzParseScenario: no text makes the parser or the player panic.
func FuzzParseScenario(f *testing.F) {
	files, err := scenarios.ReadDir("testdata")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := scenarios.ReadFile(path.Join("testdata", file.Name()))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseScenario(text)
		if err != nil && !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("an error without a line: %v", err)
		}
		for _, st := range s.steps {
			if len(st.ids) > maxRange {
				t.Errorf("line %d: %d ids", st.line, len(st.ids))
			}
		}
	})
}
