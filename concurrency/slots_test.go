package concurrency_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/concurrency"
	"github.com/budgetd/budgetd/quota"
)

func TestSlotsAt(t *testing.T) {
	for _, c := range []struct {
		name     string
		max      quota.Amount
		now      int64
		expiries []int64
		want     concurrency.State
		retryAt  int64
	}{
		{"none held", 3, 100, nil, concurrency.State{Free: 3}, 0},
		{"one held", 3, 100, []int64{150}, concurrency.State{Held: 1, Free: 2, NextExpiry: 150}, 0},
		{"full", 2, 100, []int64{170, 150}, concurrency.State{Held: 2, NextExpiry: 150}, 150},
		{"a lease ends at its instant", 2, 150, []int64{170, 150}, concurrency.State{Held: 1, Free: 1, NextExpiry: 170}, 0},
		{"a lease holds to its last microsecond", 1, 149, []int64{150}, concurrency.State{Held: 1, NextExpiry: 150}, 150},
		{"ended leases do not count", 1, 200, []int64{150, 199}, concurrency.State{Free: 1}, 0},
		{"max lowered below what runs", 1, 100, []int64{150, 160, 170}, concurrency.State{Held: 3, NextExpiry: 150}, 150},
		{"two leases that end together", 2, 100, []int64{150, 150}, concurrency.State{Held: 2, NextExpiry: 150}, 150},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := concurrency.Slots{Max: c.max}.At(c.now, c.expiries)
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if got.RetryAt() != c.retryAt {
				t.Errorf("retry at %d, want %d", got.RetryAt(), c.retryAt)
			}
		})
	}
}

// Callers that come, go, renew and crash never hold more than the cap, and
// with nobody renewing every slot is free when the last lease has ended.
func TestSlotsNeverAboveTheCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := concurrency.Slots{Max: quota.Amount(rapid.Int64Range(1, 5).Draw(t, "max"))}
		var held []int64
		now, last := int64(1_000_000), int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, 30).Draw(t, "elapsed")
			state := slots.At(now, held)
			if state.Held > slots.Max || state.Held+state.Free != slots.Max {
				t.Fatalf("%+v of %d slots", state, slots.Max)
			}
			expiry := now + rapid.Int64Range(1, 50).Draw(t, "lease")
			switch rapid.SampledFrom([]string{"start", "end", "renew"}).Draw(t, "step") {
			case "start":
				if state.Free == 0 {
					if state.RetryAt() <= now {
						t.Fatalf("retry at %d, now is %d", state.RetryAt(), now)
					}
					if later := slots.At(state.RetryAt(), held); later.Free == 0 {
						t.Fatalf("no slot at the retry: %+v", later)
					}
					continue
				}
				held = append(held, expiry)
				last = max(last, expiry)
			case "end":
				if len(held) > 0 {
					i := rapid.IntRange(0, len(held)-1).Draw(t, "who")
					held = slices.Delete(held, i, i+1)
				}
			case "renew": // never revives
				if len(held) > 0 {
					i := rapid.IntRange(0, len(held)-1).Draw(t, "who")
					if concurrency.Live(held[i], now) {
						held[i] = max(held[i], expiry)
						last = max(last, held[i])
					}
				}
			}
		}
		if state := slots.At(last, held); state.Free != slots.Max {
			t.Fatalf("leaked: %+v", state)
		}
	})
}
