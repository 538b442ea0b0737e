package replay

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is the distribution of a duration, in microseconds, each figure to
// three significant digits.
type Latency struct {
	Count int64 `json:"count"`
	P50   int64 `json:"p50Micros"`
	P90   int64 `json:"p90Micros"`
	P99   int64 `json:"p99Micros"`
	P999  int64 `json:"p999Micros"`
	Max   int64 `json:"maxMicros"`
}

const maxLatency = time.Hour

// recorder records durations. It is safe for concurrent use.
type recorder struct {
	mu        sync.Mutex
	histogram *hdrhistogram.Histogram
}

func newRecorder() *recorder {
	return &recorder{histogram: hdrhistogram.New(1, maxLatency.Microseconds(), 3)}
}

// record keeps a duration; one beyond the histogram's range counts as its end.
func (r *recorder) record(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// It fails only for a value out of range, which it is not.
	_ = r.histogram.RecordValue(min(max(d, time.Microsecond), maxLatency).Microseconds())
}

func (r *recorder) result() Latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.histogram
	return Latency{
		Count: h.TotalCount(),
		P50:   h.ValueAtQuantile(50), P90: h.ValueAtQuantile(90), P99: h.ValueAtQuantile(99),
		P999: h.ValueAtQuantile(99.9), Max: h.Max(),
	}
}
