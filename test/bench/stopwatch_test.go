package pgledger_test

import (
	"testing"
	"time"
)

// stopwatch adds up the time of what it runs.
type stopwatch struct {
	total time.Duration
	runs  int
}

func (s *stopwatch) run(what func()) {
	begun := time.Now()
	what()
	s.total += time.Since(begun)
	s.runs++
}

// each returns the mean time of one run.
func (s *stopwatch) each() time.Duration { return s.total / time.Duration(s.runs) }

// report shows closings a second of both, and their ratio. The time of an
// operation of the benchmark itself is that of both together and of making the
// input, and says nothing.
func report(b *testing.B, closings int, appends, inserts *stopwatch) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(closings)/appends.each().Seconds(), "append/s")
	b.ReportMetric(float64(closings)/inserts.each().Seconds(), "bare/s")
	b.ReportMetric(inserts.each().Seconds()/appends.each().Seconds(), "ratio")
}
