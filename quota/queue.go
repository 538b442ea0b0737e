package quota

// MaxQueue bounds how long the queue of a [KindLeakyQueue] takes to drain when it is
// full, and so how long a call that it accepts may wait: an hour, in microseconds.
const MaxQueue int64 = 3_600_000_000

// Queue is a leaky bucket that delays, in exact integers: it accepts calls while at
// most Capacity units wait in it, and lets them go at the rate, each when those
// before it have gone: one cost apart, see [GCRA.Cost].
//
// Its whole state is one instant, at which it is empty if nothing more comes. A call
// starts at that instant, or at once when it has passed. What a queue accepts is
// what [GCRA] of the same parameters accepts; it differs in when the calls start.
type Queue Bucket

// Remaining returns how many units the queue could still accept at now.
func (q Queue) Remaining(empty, now int64) Amount { return GCRA(q).Remaining(empty, now) }

// MicrosUntil is as [GCRA.MicrosUntil]: in how long so many units are accepted.
func (q Queue) MicrosUntil(empty, now int64, want Amount) int64 {
	return GCRA(q).MicrosUntil(empty, now, want)
}

// Take returns when the queue is empty again after a call of so many units that
// starts at an instant, which is not before the queue is empty.
func (q Queue) Take(empty, start int64, amount Amount) int64 {
	return GCRA(q).Move(empty, max(empty, start), 0, amount)
}

// Shift returns when the queue is empty after so many units more were taken by those
// whose hold is in parts. What they give back is given to nobody.
func (q Queue) Shift(empty, now int64, difference Amount) int64 {
	if difference <= 0 {
		return empty
	}
	return GCRA(q).Move(empty, now, 0, difference)
}

// Correct returns when the queue is empty after what a call costs went from one
// amount to another, where it was given the start at. More delays those who come
// next, whoever it was. Less is given back only by the last of the queue, to those
// who come next: the starts after it were given, and do not move.
func (q Queue) Correct(empty, at, now int64, from, to Amount) int64 {
	g := GCRA(q)
	switch {
	case to > from:
		return g.Move(empty, now, from, to)
	case to < from && empty > now && empty == at+g.Cost(from):
		return max(at+g.Cost(to), now)
	}
	return empty
}
