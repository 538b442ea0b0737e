package main

import (
	"testing"
	"time"
)

func TestParseInstant(t *testing.T) {
	now := time.Date(2026, 3, 31, 12, 30, 0, 0, time.FixedZone("", 3600))
	for text, want := range map[string]string{
		"now": "2026-03-31T11:30:00Z", "today": "2026-03-31T00:00:00Z", "this-month": "2026-03-01T00:00:00Z", "last-month": "2026-02-01T00:00:00Z",
		"-36h": "2026-03-29T23:30:00Z", "-7d": "2026-03-24T11:30:00Z", "2026-12-01": "2026-12-01T00:00:00Z",
		"2026-12-01T09:00:00+09:00": "2026-12-01T00:00:00Z",
	} {
		got, err := parseInstant(text, now)
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v; want %s", text, got.Format(time.RFC3339), err, want)
		}
	}
	for _, text := range []string{"yesterday", "-", "-d", "-7x", "--7d", "-99999d", "2026-13-01", "7d"} {
		if got, err := parseInstant(text, now); err == nil {
			t.Errorf("%s was read as %s", text, got)
		}
	}
}
