package backtest

import (
	"sync/atomic"
	"time"
)

// clock shows the run's own time, which only moves when the run moves it.
type clock struct{ micros atomic.Int64 }

// Now is the instant shown, in UTC.
func (c *clock) Now() time.Time { return time.UnixMicro(c.micros.Load()).UTC() }

func (c *clock) set(at time.Time) { c.micros.Store(at.UnixMicro()) }
