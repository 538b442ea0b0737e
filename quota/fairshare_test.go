package quota_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
)

// What an account takes in its share of the refill keeps it where it is, and what is
// given back is never more than was taken.
func TestFairShare(t *testing.T) {
	s := quota.FairShare{Capacity: 1000, Refill: 1, PerMicros: 1000} // 1,000 a second
	if s.Reserve() != 250 || s.Slack() != 125_000 {
		t.Fatalf("of 1000 a second %d are left, with a slack of %d us", s.Reserve(), s.Slack())
	}
	until, now := int64(0), int64(1_000_000)
	for range 100 {
		until = s.Take(until, now, 10, 5) // 10 every 50 ms: a fifth
		if s.IsAhead(until, now) {
			t.Fatalf("an account that takes its share is %d us ahead", until-now)
		}
		now += 50_000
	}
	for range 10 {
		until = s.Take(until, now, 10, 5)
	}
	if !s.IsAhead(until, now) {
		t.Errorf("an account that took ten times its share is %d us ahead", until-now)
	}
	if s.IsAhead(until, until) || s.IsAhead(now+125_000, now) || !s.IsAhead(now+125_001, now) {
		t.Errorf("who has had its share for longer than the slack is ahead, and nobody else")
	}
	rapid.Check(t, func(t *rapid.T) {
		s := quota.FairShare{
			Capacity:  quota.Amount(rapid.Int64Range(8, int64(quota.MaxAmount)).Draw(t, "capacity")),
			Refill:    quota.Amount(rapid.Int64Range(1, 1<<40).Draw(t, "refill")),
			PerMicros: rapid.Int64Range(1, 86_400_000_000).Draw(t, "per"),
		}
		now := rapid.Int64Range(0, 1<<51).Draw(t, "now")
		until := now + rapid.Int64Range(0, 1<<40).Draw(t, "ahead")
		amount := quota.Amount(rapid.Int64Range(1, int64(quota.MaxAmount)).Draw(t, "amount"))
		accounts := rapid.IntRange(1, 1_000_000).Draw(t, "accounts")
		taken := s.Take(until, now, amount, accounts)
		if taken <= until && taken < now+1<<52 || taken > now+1<<52 {
			t.Fatalf("%d taken by one of %d moved %d to %d", amount, accounts, until, taken)
		}
		if taken == now+1<<52 {
			return
		}
		back := s.Correct(taken, now, -amount, accounts)
		if back < until || back-until > int64(accounts) {
			t.Fatalf("%d taken and given back by one of %d moved %d to %d", amount, accounts, until, back)
		}
	})
}
