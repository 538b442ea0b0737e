package reservation_test

import (
	"errors"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// A caller that can wait is told its start, a repeat of its call is told the same,
// and one that can't wait so long is told when it would have started.
func TestWaiting(t *testing.T) {
	r := newRig(t, `
plans:
  pro:
    limits:
      - {name: calls, meter: requests, rate: 1/10s, burst: 1}
accounts: {acme: {plan: pro}}
`)
	ask := func(key string, wait time.Duration) reservation.Ask {
		return reservation.Ask{Account: "acme", Key: key, Amounts: quota.Amounts{quota.MeterRequests: 1}, MaxWait: &wait}
	}
	if first := r.reserve(ask("", time.Minute)); !first.StartAt.IsZero() {
		t.Fatalf("the first call starts at %s, want at once", first.StartAt)
	}
	second := r.reserve(ask("k", time.Minute))
	wait := second.StartAt.Sub(second.Now)
	if wait <= 0 || wait > 10*time.Second || second.ExpiresAt.Sub(second.StartAt) != time.Minute {
		t.Fatalf("the second call starts in %s, its lease ends at %s, want 10 s and a minute later", wait, second.ExpiresAt)
	}
	if second.StartsIn != wait {
		t.Errorf("it is told to wait %s, want %s", second.StartsIn, wait)
	}
	for _, patience := range []time.Duration{time.Minute, 5 * time.Second, 0} { // a repeat has less of it left
		again := r.reserve(ask("k", patience))
		if !again.Replayed || !again.StartAt.Equal(second.StartAt) || again.StartsIn <= 0 || again.StartsIn > wait {
			t.Errorf("the repeat that waits %s starts at %s, in %s; want %s", patience, again.StartAt, again.StartsIn, second.StartAt)
		}
	}
	third, err := r.Reserve(t.Context(), ask("", time.Second))
	if err != nil || third.Refusal == nil || third.Refusal.RetryAt.Before(second.StartAt) {
		t.Errorf("a caller that waits a second: %+v, %v, want a refusal until after %s", third, err, second.StartAt)
	}
	var invalid *reservation.InvalidError
	for _, bad := range []time.Duration{-time.Second, time.Hour + time.Second} {
		if _, err := r.Reserve(t.Context(), ask("", bad)); !errors.As(err, &invalid) || invalid.Field != "max_wait" {
			t.Errorf("a wait of %s: %v, want max_wait to be refused", bad, err)
		}
	}
}

// A queue that a call asks nothing of does not keep it from the choice of its output.
func TestChoosingBesideAQueueThatIsNotAsked(t *testing.T) {
	r := newRig(t, `
plans:
  p:
    limits:
      - {name: tokens, meter: tokens, rate: 1/day, burst: 3000}
      - {name: pages, meter: pages, rate: 1/s, queue: 5, algorithm: leaky_queue}
accounts:
  acme: {plan: p}
`)
	if grant := r.reserve(llmCall(4000, 100)); grant.MaxOutput != 2000 || !grant.StartAt.IsZero() {
		t.Errorf("granted %d output tokens from %s on, want 2000 at once", grant.MaxOutput, grant.StartAt)
	}
}
