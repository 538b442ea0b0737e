package quota

// FairShare is the arithmetic by which the accounts of a pool share one of its
// limits, a token bucket or GCRA, in exact integers.
//
// An account has one number: the instant until which it has had its share. Taking n
// units moves that instant by the time in which the limit refills n, times the number
// of accounts that use the limit just then, from the present or from where it
// stands, whichever is later. So an account that takes its share of the refill keeps
// pace with the clock. One that takes more gets ahead of it, and must then leave
// [FairShare.Reserve] in the limit for those who are not: what nobody else wants it
// may still have. Whose instant has passed does not count as using the limit, so
// light accounts count for the part of the time in which they use it, and what they
// leave goes to the others.
type FairShare Bucket

// MinFairCapacity is the least capacity of a limit that is shared: of less, a quarter
// is nothing that others could use.
const MinFairCapacity Amount = 8

// Reserve is what an account that is ahead of its share must leave: a quarter of the
// capacity, rounded down.
func (s FairShare) Reserve() Amount { return s.Capacity / 4 }

// Slack is how far ahead of the clock, in microseconds, an account may be and still
// have all of the limit: the time in which half of the reserve refills.
func (s FairShare) Slack() int64 { return GCRA(s).Cost(s.Reserve() / 2) }

// IsAhead says that an account which has had its share until an instant must leave
// the reserve at now.
func (s FairShare) IsAhead(until, now int64) bool { return until > now && until-now > s.Slack() }

// Take is until when an account has had its share after it took an amount at an
// instant, while so many accounts use the limit, itself included: at most 2^52
// microseconds from then. accounts is at least 1.
func (s FairShare) Take(until, at int64, amount Amount, accounts int) int64 {
	return at + min(GCRA(s).wait(until, at)+times(GCRA(s).Cost(amount), accounts), maxGCRAMicros)
}

// Correct is the same at now after what was taken came to cost so many units more, or
// less when the difference is negative: accounts is as it was taken with. What is
// taken is rounded up, what is given back down, and nobody gets below the present.
func (s FairShare) Correct(until, now int64, difference Amount, accounts int) int64 {
	if difference >= 0 {
		return s.Take(until, now, difference, accounts)
	}
	if s.Refill <= 0 {
		return until
	}
	back := maxGCRAMicros
	if exact, ok := mulDivDown(uint64(-difference), uint64(s.PerMicros), uint64(s.Refill)); ok {
		back = int64(min(exact, uint64(maxGCRAMicros)))
	}
	return now + max(GCRA(s).wait(until, now)-times(back, accounts), 0)
}

// times is cost for each of so many, at most 2^52.
func times(cost int64, accounts int) int64 {
	if n := int64(accounts); n <= 0 || cost <= maxGCRAMicros/n {
		return cost * max(n, 0)
	}
	return maxGCRAMicros
}

func (l Limit) validateFair(f *faults) {
	switch {
	case !l.Fair:
	case l.Kind != KindBucket && l.Kind != KindGCRA:
		f.add("fair", "only a rate with algorithm token_bucket or gcra can be shared fairly; leave fair out, or write one of them")
	case l.own() >= 1 && l.own() < MinFairCapacity:
		f.add("fair", "of a burst of %d units a quarter is too little to keep for accounts that are behind; raise the burst to %d or more, or leave fair out", int64(l.own()), int64(MinFairCapacity))
	}
}
