package storetest

import (
	"sync/atomic"
	"time"
)

// Epoch is where a [Clock] starts: early on the first day of a month, so that
// a scenario reaches the end of a day as well as of a month.
var Epoch = time.Date(2026, time.November, 1, 6, 0, 0, 0, time.UTC)

// Clock is a clock that moves only when it is told to, in whole microseconds.
// It is safe for concurrent use.
type Clock struct{ micros atomic.Int64 }

// NewClock returns a clock that shows [Epoch].
func NewClock() *Clock {
	c := &Clock{}
	c.Set(Epoch)
	return c
}

// Now returns the instant shown, in UTC.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()).UTC() }

// Add moves the clock; a negative d steps it back. What d has below a
// microsecond is cut off.
func (c *Clock) Add(d time.Duration) { c.micros.Add(d.Microseconds()) }

// Set moves the clock to an instant, to the microsecond.
func (c *Clock) Set(at time.Time) { c.micros.Store(at.UnixMicro()) }
