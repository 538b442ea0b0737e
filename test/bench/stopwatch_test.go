package bench

import "time"

// stopwatch adds up the time of what it runs.
type stopwatch struct {
	total time.Duration
	work  int // closings
}

func (s *stopwatch) run(work int, what func()) {
	begun := time.Now()
	what()
	s.total += time.Since(begun)
	s.work += work
}

// rate returns closings a second.
func (s *stopwatch) rate() float64 { return float64(s.work) / s.total.Seconds() }
