package estimator

import (
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// anyDay is an instant of calls for which it does not matter.
var anyDay = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

func newEstimator(t testing.TB, cfg Config) *Estimator {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func tokens(n int64) *quota.Tokens {
	out := quota.Tokens(n)
	return &out
}

func parse(t testing.TB, body string) map[string]any {
	t.Helper()
	object, err := ParseJSON("body", []byte(body))
	if err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return object
}

func mustCount(t testing.TB, e Encoding, text string) int {
	t.Helper()
	n, err := Count(e, text)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}
