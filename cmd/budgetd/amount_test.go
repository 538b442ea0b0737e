package main

import (
	"strings"
	"testing"
)

func TestParseSignedAmount(t *testing.T) {
	for text, want := range map[string]int64{"$20": 20_000_000_000, "-$0.5": -500_000_000, "1M": 1_000_000, "-500": -500} {
		got, err := parseSignedAmount(text)
		if err != nil || got.n != want || got.money != strings.Contains(text, "$") {
			t.Errorf("%s: %d, %v, %v; want %d", text, got.n, got.money, err, want)
		}
		for _, meter := range []string{"cost", "tokens"} {
			if err := got.of(meter); (err == nil) != (got.money == (meter == "cost")) {
				t.Errorf("%s of %s: %v", text, meter, err)
			}
		}
	}
	for _, text := range []string{"", "-", "$", "$-5", "--5", "1.5", "+5"} {
		if got, err := parseSignedAmount(text); err == nil {
			t.Errorf("%q was read as %d", text, got.n)
		}
	}
}
