package simulate

import (
	"container/heap"
	"time"
)

// began is when every simulation begins: a full day, hour and second of UTC, so
// that windows on the calendar begin with it.
var began = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// clock is a clock that goes from event to event. It is not safe for concurrent
// use: a simulation has one goroutine.
type clock struct {
	now    time.Time
	events events
	added  int
}

func newClock() *clock { return &clock{now: began} }

// Now is what engines read.
func (c *clock) Now() time.Time { return c.now }

// at has something done after so much time from the beginning, or at once where
// that is over. What is due at the same instant is done in the order in which it
// was added.
func (c *clock) at(after time.Duration, do func() error) {
	at := began.Add(after)
	if at.Before(c.now) {
		at = c.now
	}
	c.added++
	heap.Push(&c.events, event{at, c.added, do})
}

// after has something done so long from now.
func (c *clock) after(wait time.Duration, do func() error) {
	c.at(c.now.Add(wait).Sub(began), do)
}

// each has the same done at every instant of a traffic, which is in order of time.
func (c *clock) each(traffic []time.Duration, do func() error) {
	if len(traffic) == 0 {
		return
	}
	c.at(traffic[0], func() error {
		if err := do(); err != nil {
			return err
		}
		c.each(traffic[1:], do)
		return nil
	})
}

// elapsed is the time since the beginning.
func (c *clock) elapsed() time.Duration { return c.now.Sub(began) }

// run does what is due until nothing is left, or something fails.
func (c *clock) run() error {
	for len(c.events) > 0 {
		next := heap.Pop(&c.events).(event)
		c.now = next.at
		if err := next.do(); err != nil {
			return err
		}
	}
	return nil
}

// event is something to be done.
type event struct {
	at    time.Time
	order int
	do    func() error
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	popped := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return popped
}
