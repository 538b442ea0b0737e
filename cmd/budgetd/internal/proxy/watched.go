package proxy

import (
	"net/http"
	"strconv"
	"time"
)

// watched is an answer whose status and first byte are counted, and of which each
// write has a bound: a caller that does not read must not hold a stream for ever.
// Between writes there is none, since a model may think for long.
type watched struct {
	http.ResponseWriter
	control  *http.ResponseController
	bound    time.Duration
	metrics  *metrics
	began    time.Time
	upstream string
	status   int
}

// Unwrap lets net/http set deadlines.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader counts the first byte.
func (w *watched) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
		w.metrics.firstByte.WithLabelValues(w.upstream).Observe(time.Since(w.began).Seconds())
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes the header first, if it was not.
func (w *watched) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.begin()
	defer w.rest()
	return w.ResponseWriter.Write(data)
}

// FlushError sends what was written.
func (w *watched) FlushError() error {
	w.begin()
	defer w.rest()
	return w.control.Flush()
}

// begin and rest set the bound of a write and take it away. Errors are those of
// a connection that has ended, which writing tells too.
func (w *watched) begin() { _ = w.control.SetWriteDeadline(time.Now().Add(w.bound)) }
func (w *watched) rest()  { _ = w.control.SetWriteDeadline(time.Time{}) }

// end counts the call; one that was cut off before it had a status is none. What
// net/http still has to write gets a bound, which it takes away itself.
func (w *watched) end() {
	status := "none"
	if w.status != 0 {
		status = strconv.Itoa(w.status)
	}
	w.metrics.calls.WithLabelValues(w.upstream, status).Inc()
	w.begin()
}
