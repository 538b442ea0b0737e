package quota

import (
	"cmp"
	"slices"
)

// MaxLogUnits bounds the rate of a [KindSlidingLog], and so the calls that it
// remembers one by one.
const MaxLogUnits = 1000

// Window is the arithmetic of the limits that count over a span of time, in exact
// integers. All spans are half open: what was taken at t counts before t+Length.
type Window struct {
	Kind   Kind   // KindFixedWindow, KindSlidingCounter or KindSlidingLog
	Max    Amount // units a span; 1 to MaxAmount, MaxLogUnits for a log
	Length int64  // microseconds; 1 to 86,400,000,000

	// Calendar says of a fixed window that it begins at the multiples of Length
	// since 1970 in UTC; else it begins with the first call after the last one
	// ended. Of the other kinds it is false.
	Calendar bool
}

// Counted is the state of a [Window]'s counter. The zero value has seen nothing.
type Counted struct {
	Length   int64 // of the window by which it was counted last; 0: nothing was counted
	Calendar bool  // likewise

	// Start is when the span began that Now counts, in microseconds; 0 for a log.
	Start  int64
	Now    Amount // fixed window, sliding counter: taken in the span
	Before Amount // sliding counter: taken in the span before

	Log []LogEntry // sliding log: what was taken, in the order of its instants
}

// LogEntry is what all calls of one microsecond have taken.
type LogEntry struct {
	At     int64  // microseconds
	Amount Amount // 1 to MaxAmount
}

// Window returns the arithmetic of a limit that counts over a span of time.
func (l Limit) Window() Window {
	return Window{
		Kind: l.Kind, Max: l.Rate.Amount, Length: l.Rate.Every.Microseconds(),
		Calendar: l.Kind == KindFixedWindow && !l.FirstUse,
	}
}

// Advance returns the state at now, as the window sees it. What has left the span
// is gone. A clock that stepped back changes nothing.
//
// Where the length changed, what has left the span by the old one is gone all the
// same. Then a fixed window keeps what its span has counted while the new length has
// not passed since it began, a log what is within the new length, and a sliding
// counter takes its estimate over as taken in the present span.
//
// The log of the result may share the argument's memory.
func (w Window) Advance(u Counted, now int64) Counted {
	old := w.countedBy(u)
	if old != w && w.Kind != KindSlidingCounter {
		u = old.Advance(u, now)
	}
	switch w.Kind {
	case KindFixedWindow:
		if u.Now == 0 || now >= w.end(u.Start) {
			return Counted{}
		}
	case KindSlidingCounter:
		if u.Length != w.Length {
			if u.Empty() {
				return Counted{}
			}
			return w.first(old.taken(old.slide(u, now), now), now)
		}
		u = w.slide(u, now)
		if u.Now == 0 && u.Before == 0 {
			return Counted{}
		}
	case KindSlidingLog:
		for len(u.Log) > 0 && u.Log[0].At+w.Length <= now {
			u.Log = u.Log[1:]
		}
		if len(u.Log) == 0 {
			return Counted{}
		}
	}
	u.Length, u.Calendar = w.Length, w.Calendar
	return u
}

// countedBy is the window by which a state was counted last; the window itself
// where nothing is counted.
func (w Window) countedBy(u Counted) Window {
	if !u.Empty() {
		w.Length, w.Calendar = u.Length, u.Calendar
	}
	return w
}

// slide moves a sliding counter to the span of now.
func (w Window) slide(u Counted, now int64) Counted {
	switch start := floorTo(now, w.Length); {
	case start <= u.Start:
	case start == u.Start+w.Length:
		u.Start, u.Before, u.Now = start, u.Now, 0
	default:
		u.Start, u.Before, u.Now = start, 0, 0
	}
	return u
}

// end is when a fixed window ends that began at start.
func (w Window) end(start int64) int64 {
	if w.Calendar {
		return floorTo(start, w.Length) + w.Length
	}
	return start + w.Length
}

// taken is what counts of an advanced state: of a sliding counter the estimate,
// rounded up, so that it fits exactly where the fraction would.
func (w Window) taken(u Counted, now int64) Amount {
	switch w.Kind {
	case KindSlidingCounter:
		left := w.Length - min(max(now-u.Start, 0), w.Length)
		weighted, _ := MulDivUp(uint64(u.Before), uint64(left), uint64(w.Length)) // at most Before
		return Amount(weighted) + u.Now
	case KindSlidingLog:
		var sum Amount
		for _, e := range u.Log {
			sum = min(sum+e.Amount, MaxAmount)
		}
		return sum
	}
	return u.Now
}

// Remaining returns what a call could still take of an advanced state: negative
// when it was overrun.
func (w Window) Remaining(u Counted, now int64) Amount { return w.Max - w.taken(u, now) }

// Take returns the state after amount was taken at now, and the instant under
// which the window counted it, which [Window.Correct] asks for: now, or the start
// of the span where the clock stepped back before it.
func (w Window) Take(u Counted, amount Amount, now int64) (after Counted, at int64) {
	u = w.Advance(u, now)
	at = max(now, u.Start)
	return w.Correct(u, amount, at, now), at
}

// Correct returns the state after what was counted at an instant changed by a
// difference, by the length that the state was counted with last, or by the window's
// own where it counts nothing any more. What has left the span by now has no effect, so
// a refund to a span that has rolled gives the new one nothing back. An entry of a log
// changes in place. Nothing gets negative.
func (w Window) Correct(u Counted, difference Amount, at, now int64) Counted {
	last := w.countedBy(u)
	if u = last.Advance(u, now); u.Empty() {
		return w.Advance(w.first(difference, at), now)
	}
	w = last
	switch {
	case w.Kind == KindSlidingLog:
		if at+w.Length > now {
			u.Log = corrected(u.Log, difference, at)
		}
	case at >= u.Start:
		u.Now = within(u.Now + difference)
	case w.Kind == KindSlidingCounter && at >= u.Start-w.Length:
		u.Before = within(u.Before + difference)
	}
	return w.Advance(u, now) // what has come to nothing is nothing
}

// first is the state that has counted one amount at an instant and nothing else.
func (w Window) first(amount Amount, at int64) Counted {
	if amount <= 0 {
		return Counted{}
	}
	u := Counted{Length: w.Length, Calendar: w.Calendar, Start: at, Now: amount}
	switch {
	case w.Kind == KindSlidingLog:
		u.Start, u.Now, u.Log = 0, 0, []LogEntry{{At: at, Amount: amount}}
	case w.Kind == KindSlidingCounter || w.Calendar:
		u.Start = floorTo(at, w.Length)
	}
	return u
}

// MicrosUntil returns the smallest whole number of microseconds after which
// [Window.Remaining] of an advanced state is at least want, if nothing is taken
// meanwhile; [MicrosNever] for more than Max.
func (w Window) MicrosUntil(u Counted, now int64, want Amount) int64 {
	switch {
	case want > w.Max:
		return MicrosNever
	case want <= w.Remaining(u, now):
		return 0
	case w.Kind == KindFixedWindow:
		return w.end(u.Start) - now
	case w.Kind == KindSlidingLog:
		missing := want - w.Remaining(u, now)
		for _, e := range u.Log {
			if missing -= e.Amount; missing <= 0 {
				return e.At + w.Length - now
			}
		}
		return MicrosNever // not reached: without entries all of Max remains
	}
	// Of a count, share may still weigh: share*Length/count of the span before the
	// end of its weight at ends.
	count, share, ends := u.Before, w.Max-want-u.Now, u.Start+w.Length
	if share < 0 {
		count, share, ends = u.Now, w.Max-want, ends+w.Length
	}
	left, _ := mulDivDown(uint64(share), uint64(w.Length), uint64(count)) // share < count, as want does not fit
	return ends - int64(left) - now
}

// EmptyAt returns when an advanced state says nothing any more, in microseconds;
// 0 where it says nothing now.
func (w Window) EmptyAt(u Counted) int64 {
	switch {
	case u.Empty():
		return 0
	case w.Kind == KindFixedWindow:
		return w.end(u.Start)
	case w.Kind == KindSlidingLog:
		return u.Log[len(u.Log)-1].At + w.Length
	case u.Now > 0:
		return u.Start + 2*w.Length
	}
	return u.Start + w.Length
}

// Empty says that nothing is counted.
func (u Counted) Empty() bool { return u.Length == 0 }

// corrected returns a log in which the entry at an instant has changed by a
// difference; the argument's memory is not written to. A log of more than
// MaxLogUnits entries has its two oldest in one, which counts for as long as the
// younger; what was counted under a merged instant is the first entry's. Of any other
// instant that has no entry nothing comes back: a shorter span has let it go.
func corrected(log []LogEntry, difference Amount, at int64) []LogEntry {
	i, exact := slices.BinarySearchFunc(log, at, func(e LogEntry, at int64) int { return cmp.Compare(e.At, at) })
	switch {
	case difference == 0, difference < 0 && !exact && (i > 0 || len(log) < MaxLogUnits):
		return log
	case exact || difference < 0:
		amount := within(log[i].Amount + difference)
		if amount == 0 {
			return slices.Concat(log[:i], log[i+1:])
		}
		log = slices.Clone(log)
		log[i].Amount = amount
		return log
	}
	log = slices.Insert(slices.Clone(log), i, LogEntry{At: at, Amount: difference})
	if len(log) > MaxLogUnits {
		log[1].Amount = within(log[0].Amount + log[1].Amount)
		log = log[1:]
	}
	return log
}

// within bounds a count.
func within(n Amount) Amount { return min(max(n, 0), MaxAmount) }

// floorTo is the largest multiple of length that is not above an instant.
func floorTo(at, length int64) int64 { return max(at, 0) / length * length }
