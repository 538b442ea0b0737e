package concurrency_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/concurrency"
)

func TestValidateLease(t *testing.T) {
	for lease, valid := range map[time.Duration]bool{
		0:                            false,
		-time.Second:                 false,
		time.Millisecond - 1:         false,
		time.Millisecond:             true,
		concurrency.DefaultLease:     true,
		24 * time.Hour:               true,
		24*time.Hour + 1:             false,
		10 * 365 * 24 * time.Hour:    false,
		time.Duration(1<<63 - 1):     false,
		time.Duration(-1 << 63):      false,
		90 * time.Second:             true,
		1500 * time.Microsecond:      true,
		24*time.Hour - 1:             true,
		concurrency.DefaultRetention: true,
	} {
		err := concurrency.ValidateLease(lease)
		if (err == nil) != valid {
			t.Errorf("%v: %v", lease, err)
		}
		if err != nil && (!errors.Is(err, concurrency.ErrLease) || !strings.Contains(err.Error(), "between 1ms and 24h0m0s")) {
			t.Errorf("%v: the error does not name the bound: %v", lease, err)
		}
	}
}

func TestValidateRetention(t *testing.T) {
	for retention, valid := range map[time.Duration]bool{
		0:                            false,
		time.Second - 1:              false,
		time.Second:                  true,
		concurrency.DefaultRetention: true,
		24 * time.Hour:               true,
		24*time.Hour + 1:             false,
	} {
		err := concurrency.ValidateRetention(retention)
		if (err == nil) != valid || (err != nil && !errors.Is(err, concurrency.ErrRetention)) {
			t.Errorf("%v: %v", retention, err)
		}
	}
}

func TestExpiresAtRoundsUp(t *testing.T) {
	for lease, want := range map[time.Duration]int64{
		time.Millisecond:     1_000_001_000,
		time.Millisecond + 1: 1_000_001_001,
		60 * time.Second:     1_060_000_000,
		24 * time.Hour:       87_400_000_000,
	} {
		if got := concurrency.ExpiresAt(1_000_000_000, lease); got != want {
			t.Errorf("%v: %d, want %d", lease, got, want)
		}
	}
}

func TestRetentionFor(t *testing.T) {
	for _, c := range []struct{ configured, refill, want time.Duration }{
		{10 * time.Minute, time.Minute, 10 * time.Minute},
		{10 * time.Minute, time.Hour, time.Hour},
		{10 * time.Minute, 400 * 24 * time.Hour, 24 * time.Hour},
		{24 * time.Hour, 0, 24 * time.Hour},
	} {
		if got := concurrency.RetentionFor(c.configured, c.refill); got != c.want {
			t.Errorf("%v, %v: %v, want %v", c.configured, c.refill, got, c.want)
		}
	}
}
