package concurrency

import "github.com/budgetd/budgetd/quota"

// Slots is a limit on calls in flight.
type Slots struct {
	Max quota.Amount // slots, 1 to quota.MaxAmount
}

// State is how a limit's slots stand at one instant.
type State struct {
	// Held counts the leases that have not ended. It is above the limit's Max
	// after Max was lowered while calls were running.
	Held quota.Amount
	// Free is how many more leases can start, never negative.
	Free quota.Amount
	// NextExpiry is the earliest end of a lease that is still held, in
	// microseconds; 0 when none is.
	NextExpiry int64
}

// Live says whether a lease that ends at expiryMicros still holds its slot: a
// lease is half open, at its end the slot is free.
func Live(expiryMicros, nowMicros int64) bool { return expiryMicros > nowMicros }

// At counts the slots at an instant, from the ends of all leases that were
// given a slot and have not given it back. Leases that have ended do not count,
// whether they were reclaimed yet or not.
func (s Slots) At(nowMicros int64, expiriesMicros []int64) State {
	var state State
	for _, expiry := range expiriesMicros {
		if !Live(expiry, nowMicros) {
			continue
		}
		state.Held++
		if state.NextExpiry == 0 || expiry < state.NextExpiry {
			state.NextExpiry = expiry
		}
	}
	state.Free = s.Free(state.Held)
	return state
}

// Free is how many more leases can start while held are running, never
// negative.
func (s Slots) Free(held quota.Amount) quota.Amount {
	return max(s.Max-max(held, 0), 0)
}

// RetryAt is when a call that found no slot may try again, in microseconds: the
// earliest end of a lease that holds one. A Refund or a Renew can change that,
// so it is a promise of nothing. It is 0 when a slot is free now.
func (s State) RetryAt() int64 {
	if s.Free > 0 {
		return 0
	}
	return s.NextExpiry
}
