package replay

import (
	"fmt"
	"time"
)

// Evidence is everything that was seen in a replay, and that [Check] judges.
type Evidence struct {
	Totals Totals

	// What the ledger and the quotas' counters grew by during the replay.
	LedgerTokens   int64
	LedgerRequests int64
	Counters       []Counter

	Slots   []Level  // of limits on calls in flight, one second after the last lease
	Quotas  []Level  // of quotas, once the ledger had time to record everything
	Buckets []Bucket // of buckets of tokens and requests

	// The reservations, as the broker tells them at the end.
	Leaked        int64 // still held one second after the last lease
	NotPosted     int64 // closed, and not posted to the ledger in time
	ExpiredTokens int64 // what expiries charged
	Expired       int64 // in the ledger as expired
	Settled       int64 // in the ledger as refunded, late or not

	PeriodChanged bool     // the account's month ended during the replay
	Problems      []string // calls that failed, answers that were wrong
}

// Counter is what a quota's counter grew by during the replay.
type Counter struct {
	Limit string `json:"limit"`
	Meter string `json:"meter"` // tokens or requests
	Used  int64  `json:"used"`
}

// Level is what a limit still counts as taken.
type Level struct {
	Limit    string
	Held     int64
	Unposted int64
}

// Bucket is the level of a bucket after the replay.
type Bucket struct {
	Limit     string
	Meter     string // tokens or requests
	Capacity  int64
	Before    int64 // what was missing from it before the replay
	Missing   int64 // what was missing from it one second after the last lease
	MayRefill int64 // the most that it can have refilled until then
	// How much refills how often.
	RefillAmount, RefillEveryMs int64
	Plain                       bool // calls took from it what they asked, unweighted
	// Rested says that it was looked at again after as much time as it needs to
	// refill all that can be missing, and RestedMissing what was missing then.
	Rested        bool
	RestedMissing int64
}

// Check lists the gaps of a replay; none means that all is well.
func Check(e Evidence) []string {
	var gaps []string
	gap := func(format string, args ...any) { gaps = append(gaps, fmt.Sprintf(format, args...)) }
	t := e.Totals

	// The trace's own sums.
	sum := Count{
		Requests: t.Admitted.Requests + t.Refused.Requests + t.Unanswered.Requests,
		Tokens:   t.Admitted.Tokens + t.Refused.Tokens + t.Unanswered.Tokens,
	}
	if sum != t.Offered {
		gap("%d requests of %d tokens were sent; %d of %d were admitted, refused or not answered", t.Offered.Requests, t.Offered.Tokens, sum.Requests, sum.Tokens)
	}
	if t.Admitted.Requests != t.Refunded.Requests+t.Crashed.Requests || t.Admitted.Tokens != t.Refunded.Tokens+t.Crashed.Tokens {
		gap("%d requests were admitted; %d were refunded and %d crashed", t.Admitted.Requests, t.Refunded.Requests, t.Crashed.Requests)
	}
	if used := t.HeldTokens + t.OverrunTokens - t.GivenBackTokens - t.ExpiredTokens; used != t.Refunded.Tokens {
		gap("held %d + overrun %d - given back %d - expired %d is %d tokens; the refunded requests used %d", t.HeldTokens, t.OverrunTokens, t.GivenBackTokens, t.ExpiredTokens, used, t.Refunded.Tokens)
	}
	if t.Unanswered.Requests > 0 {
		gap("%d requests were never answered", t.Unanswered.Requests)
	}

	// The three sums.
	charged := t.Refunded.Tokens + e.ExpiredTokens
	if e.PeriodChanged {
		gap("the account's month ended during the replay, so its totals can't be compared; run it again")
	} else {
		if e.LedgerTokens != charged {
			gap("the ledger has %d tokens; the trace's admitted requests used %d (%+d)", e.LedgerTokens, charged, e.LedgerTokens-charged)
		}
		if e.ExpiredTokens == 0 && e.LedgerRequests != t.Refunded.Requests {
			gap("the ledger has %d requests; %d were refunded", e.LedgerRequests, t.Refunded.Requests)
		}
		for _, c := range e.Counters {
			want := charged
			if c.Meter == "requests" {
				if e.ExpiredTokens != 0 {
					continue // an expiry that charges tokens may charge requests too
				}
				want = t.Refunded.Requests
			}
			if c.Used != want {
				gap("the counter of quota %s has %d %s; the trace has %d (%+d)", c.Limit, c.Used, c.Meter, want, c.Used-want)
			}
		}
	}

	// Nothing is held any more.
	if e.Leaked > 0 {
		gap("%d reservations are still held one second after the last lease", e.Leaked)
	}
	for _, l := range e.Slots {
		if l.Held != 0 {
			gap("limit %s still has %d slots taken one second after the last lease", l.Limit, l.Held)
		}
	}
	for _, l := range e.Quotas {
		if l.Held != 0 || l.Unposted != 0 {
			gap("quota %s still has %d held and %d unposted", l.Limit, l.Held, l.Unposted)
		}
	}
	for _, b := range e.Buckets {
		gaps = append(gaps, checkBucket(b, t, charged)...)
	}

	// Every reservation is in the ledger as what it was.
	if e.NotPosted > 0 {
		gap("%d reservations are closed and not posted to the ledger", e.NotPosted)
	}
	if e.Expired != t.Crashed.Requests {
		gap("%d requests crashed; %d are in the ledger as expired", t.Crashed.Requests, e.Expired)
	}
	if e.Settled != t.Refunded.Requests {
		gap("%d requests were refunded; %d are in the ledger as settled", t.Refunded.Requests, e.Settled)
	}
	return append(gaps, e.Problems...)
}

// checkBucket judges a bucket by what must be missing from it, whenever its
// refills fell. Say D is what is missing, of which a hold of h adds h, a return
// of r takes off r or all that is left, and a refill likewise. Then, once nothing
// is held, D is at most what was missing before plus what was charged, and at
// least that less all refills. A hold of a crashed caller that did not come back
// adds to D; one that came back twice takes off.
func checkBucket(b Bucket, t Totals, charged int64) []string {
	if b.Rested && b.RestedMissing != 0 {
		return []string{fmt.Sprintf("bucket %s has had time to fill up and still lacks %d of %d %s", b.Limit, b.RestedMissing, b.Capacity, b.Meter)}
	}
	if b.Meter == "requests" {
		charged = t.Refunded.Requests
	}
	if !b.Plain {
		return nil // it weighs what it takes, so its sums are not the trace's
	}
	// The engine's arithmetic is off by less than one unit.
	if most := b.Before + charged + 1; b.Missing > most {
		return []string{fmt.Sprintf("bucket %s lacks %d %s one second after the last lease; at most %d can be missing when all holds are back", b.Limit, b.Missing, b.Meter, most)}
	}
	if least := b.Before + charged - b.MayRefill - 1; b.Missing < least {
		return []string{fmt.Sprintf("bucket %s lacks %d %s one second after the last lease; at least %d must be missing: more came back than was taken", b.Limit, b.Missing, b.Meter, least)}
	}
	return nil
}

// refillWithin is the most that a bucket refills in a time.
func refillWithin(elapsed time.Duration, amount, everyMillis int64) int64 {
	if everyMillis <= 0 {
		return 0
	}
	millis := elapsed.Milliseconds() + 1
	return scale(millis, amount, everyMillis)
}

// refillTime is how long a bucket takes to refill an amount.
func refillTime(missing, amount, everyMillis int64) time.Duration {
	if amount <= 0 || missing <= 0 {
		return 0
	}
	return time.Duration(min(scale(missing, everyMillis, amount)+1, int64(maxRun/time.Millisecond))) * time.Millisecond
}
