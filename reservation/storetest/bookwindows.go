package storetest

import (
	"fmt"
	"slices"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// counted are the calls that a window admitted while its parameters were the same,
// with what each has used so far. From them a sum is formed by the definition of
// the algorithm, whatever the window's own state.
type countedCalls struct {
	window quota.Window
	calls  []flow
}

func (c *countedCalls) begin(w quota.Window) {
	if c.window != w {
		*c = countedCalls{window: w}
	}
}

func (c *countedCalls) change(at int64, by quota.Amount) {
	c.calls = append(c.calls, flow{at, by})
}

// sum adds up what counts from one instant to before another.
func (c *countedCalls) sum(from, to int64) (sum quota.Amount) {
	for _, call := range c.calls {
		if call.at >= from && call.at < to {
			sum += call.amount
		}
	}
	return sum
}

func (c *countedCalls) over(sum quota.Amount) error {
	if sum > c.window.Max {
		return fmt.Errorf("%d in a span, at most %d may be", sum, c.window.Max)
	}
	return nil
}

// spanStart is the multiple of a length at or before an instant.
func spanStart(at, length int64) int64 { return at - at%length }

// fixedColumn are the books of a fixed window: a count that began at an instant.
type fixedColumn struct {
	admitted countedCalls
	last     quota.Window // by which it was counted last
	start    int64
	count    quota.Amount
}

func fixedEnd(w quota.Window, start int64) int64 {
	if w.Calendar {
		start = spanStart(start, w.Length)
	}
	return start + w.Length
}

// at is the column at an instant, as a window sees it.
func (c fixedColumn) at(w quota.Window, now int64) fixedColumn {
	if c.count > 0 && (now >= fixedEnd(c.last, c.start) || now >= fixedEnd(w, c.start)) {
		c.count = 0
	}
	if c.count == 0 {
		c.start = 0
	}
	return c
}

func (c *fixedColumn) String() string { return fmt.Sprintf("%d since %d", c.count, c.start) }

func (c *fixedColumn) remaining(h reservation.Hold, at, then int64) quota.Amount {
	seen := c.at(h.Window, at)
	seen.last = h.Window
	return h.Window.Max - seen.at(h.Window, then).count
}

// first begins a span.
func (c *fixedColumn) first(w quota.Window, n quota.Amount, at int64) {
	c.start, c.count, c.last = at, n, w
	if w.Calendar {
		c.start = spanStart(at, w.Length)
	}
}

func (c *fixedColumn) take(h reservation.Hold, at, start, _ int64) (int64, error) {
	w, n := h.Window, h.Amount
	seen := c.at(w, at)
	if n == 0 {
		return max(start, seen.start), nil
	}
	seen.last = w
	seen = seen.at(w, start)
	seen.admitted.begin(w)
	if *c = seen; c.count == 0 {
		c.first(w, n, start)
	} else {
		c.count, c.last = c.count+n, w
	}
	counted := max(start, c.start)
	c.admitted.change(counted, n)
	if w.Calendar {
		return counted, c.admitted.over(c.admitted.sum(spanStart(start, w.Length), spanStart(start, w.Length)+w.Length))
	}
	return counted, c.admitted.over(c.admitted.sum(c.start, c.start+w.Length))
}

func (c *fixedColumn) correct(h reservation.Hold, counted int64, from, to quota.Amount, at, _ int64) {
	w := h.Window
	if c.count > 0 {
		w = c.last
	}
	*c = c.at(w, at)
	switch {
	case c.count == 0 && to > from && at < fixedEnd(h.Window, counted):
		c.first(h.Window, to-from, counted)
		c.admitted.change(counted, to-from)
	case c.count > 0 && counted >= c.start:
		c.count = max(c.count+to-from, 0)
		c.admitted.change(counted, to-from)
	}
}

// slidingColumn are the books of a sliding window: the counts of the present span and
// of the one before.
type slidingColumn struct {
	admitted    countedCalls
	length      int64
	start       int64
	now, before quota.Amount
}

// estimate is what counts, rounded up.
func (c slidingColumn) estimate(now int64) quota.Amount {
	if c.before == 0 {
		return c.now
	}
	left := c.length - min(max(now-c.start, 0), c.length)
	return c.now + quota.Amount((int64(c.before)*left+c.length-1)/c.length)
}

// slide moves the column to the span of an instant.
func (c slidingColumn) slide(now int64) slidingColumn {
	if c.length == 0 {
		return c
	}
	switch start := spanStart(now, c.length); {
	case start <= c.start:
	case start == c.start+c.length:
		c.start, c.before, c.now = start, c.now, 0
	default:
		c.start, c.before, c.now = start, 0, 0
	}
	return c
}

func (c slidingColumn) at(w quota.Window, now int64) slidingColumn {
	c = c.slide(now)
	if c.length != w.Length && c.length != 0 {
		// What the old length counts is taken over as taken now.
		c.now, c.before = c.estimate(now), 0
		c.length, c.start = w.Length, spanStart(now, w.Length)
	}
	if c.now == 0 && c.before == 0 {
		c.length, c.start = 0, 0
	}
	return c
}

func (c *slidingColumn) String() string {
	return fmt.Sprintf("%d since %d, %d before", c.now, c.start, c.before)
}

func (c *slidingColumn) remaining(h reservation.Hold, at, then int64) quota.Amount {
	return h.Window.Max - c.at(h.Window, at).at(h.Window, then).estimate(then)
}

func (c *slidingColumn) take(h reservation.Hold, at, start, _ int64) (int64, error) {
	w, n := h.Window, h.Amount
	seen := c.at(w, at)
	if n == 0 {
		return max(start, seen.start), nil
	}
	*c = seen.at(w, start)
	c.admitted.begin(w)
	if c.length == 0 {
		c.length, c.start = w.Length, spanStart(start, w.Length)
	}
	c.now += n
	counted := max(start, c.start)
	c.admitted.change(counted, n)
	span := spanStart(start, w.Length)
	present, former := c.admitted.sum(span, span+w.Length), c.admitted.sum(span-w.Length, span)
	if err := c.admitted.over(present); err != nil {
		return counted, err
	}
	// The estimate as a fraction: present + former*left/length.
	if left := span + w.Length - start; int64(w.Max-present)*w.Length < int64(former)*left {
		return counted, fmt.Errorf("%d in the span and %d before it, of which %d us count, are more than %d", present, former, left, w.Max)
	}
	return counted, nil
}

func (c *slidingColumn) correct(h reservation.Hold, counted int64, from, to quota.Amount, at, _ int64) {
	*c = c.slide(at)
	switch {
	case c.now == 0 && c.before == 0:
		c.length, c.start = 0, 0
		if to > from {
			c.length, c.start, c.now = h.Window.Length, spanStart(counted, h.Window.Length), to-from
			c.admitted.change(counted, to-from)
		}
		*c = c.slide(at)
	case counted >= c.start:
		c.now = max(c.now+to-from, 0)
		c.admitted.change(counted, to-from)
	case counted >= c.start-c.length:
		c.before = max(c.before+to-from, 0)
		c.admitted.change(counted, to-from)
	}
	if c.now == 0 && c.before == 0 {
		c.length, c.start = 0, 0
	}
}

// logColumn are the books of a sliding log: every call that is still in the span.
type logColumn struct {
	admitted countedCalls
	length   int64
	entries  []flow // by instant, each once
}

// at is the column at an instant, as a length sees it.
func (c logColumn) at(length, now int64) logColumn {
	left := make([]flow, 0, len(c.entries))
	for _, e := range c.entries {
		if e.at+c.length > now && e.at+length > now {
			left = append(left, e)
		}
	}
	c.entries = left
	return c
}

func (c logColumn) sum() (sum quota.Amount) {
	for _, e := range c.entries {
		sum += e.amount
	}
	return sum
}

func (c *logColumn) String() string { return fmt.Sprint(c.entries) }

func (c *logColumn) remaining(h reservation.Hold, at, then int64) quota.Amount {
	seen := c.at(h.Window.Length, at)
	seen.length = h.Window.Length
	return h.Window.Max - seen.at(h.Window.Length, then).sum()
}

// add changes the entry of an instant.
func (c *logColumn) add(at int64, by quota.Amount) {
	for i := range c.entries {
		if c.entries[i].at == at {
			if c.entries[i].amount += by; c.entries[i].amount <= 0 {
				c.entries = slices.Delete(c.entries, i, i+1)
			}
			return
		}
	}
	if by > 0 {
		c.entries = append(c.entries, flow{at, by})
	}
}

func (c *logColumn) take(h reservation.Hold, at, start, _ int64) (int64, error) {
	if h.Amount == 0 {
		return start, nil
	}
	c.admitted.begin(h.Window)
	*c = c.at(h.Window.Length, at)
	c.length = h.Window.Length
	*c = c.at(c.length, start)
	c.add(start, h.Amount)
	c.admitted.change(start, h.Amount)
	return start, c.admitted.over(c.admitted.sum(start-c.length+1, start+1))
}

func (c *logColumn) correct(h reservation.Hold, counted int64, from, to quota.Amount, at, _ int64) {
	*c = c.at(c.length, at)
	if len(c.entries) == 0 {
		c.length = h.Window.Length
	}
	if counted+c.length > at {
		c.add(counted, to-from)
		c.admitted.change(counted, to-from)
	}
}
