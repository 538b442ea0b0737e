package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// awayAfter is how many questions in a row have no answer when the broker counts
	// as away: one alone may be a caller's bad luck.
	awayAfter = 3
	// awayAgain is how soon its next absence is told: one that comes and goes does
	// not fill the log.
	awayAgain = 10 * time.Second
	// awayPause is how soon after a question to a broker that is away the next makes
	// sense.
	awayPause = time.Second
)

// brokerWatch is an http.RoundTripper to the broker that tells once when it goes
// away, and once when it is back.
type brokerWatch struct {
	next    *http.Transport
	metrics *metrics
	log     *slog.Logger
	now     func() time.Time

	mu     sync.Mutex
	seen   bool      // it has answered
	asked  time.Time // last
	failed int       // in a row
	away   time.Time // since when; zero: it is not
	told   bool      // this absence was
	toldAt time.Time // the last one was
	untold int       // absences since then
}

// RoundTrip asks, and notes whether there was an answer. A question that its
// caller gave up says nothing.
func (w *brokerWatch) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.asked = w.now()
	w.mu.Unlock()
	a, err := w.next.RoundTrip(r)
	switch {
	case err != nil && errors.Is(r.Context().Err(), context.Canceled):
	case err != nil:
		w.silent(err)
	case a.StatusCode == http.StatusBadGateway || a.StatusCode == http.StatusServiceUnavailable || a.StatusCode == http.StatusGatewayTimeout:
		w.silent(fmt.Errorf("it answers %s", a.Status))
	default:
		w.answered()
	}
	return a, err
}

// CloseIdleConnections lets http.Client close those to the broker.
func (w *brokerWatch) CloseIdleConnections() { w.next.CloseIdleConnections() }

// hasAnswered says whether the broker ever did.
func (w *brokerWatch) hasAnswered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// idle says that the broker was not asked for so long.
func (w *brokerWatch) idle(long time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now().Sub(w.asked) >= long
}

// hopeless says that the broker is away, and was asked just now.
func (w *brokerWatch) hopeless() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.away.IsZero() && w.now().Sub(w.asked) < awayPause
}

func (w *brokerWatch) silent(err error) {
	w.metrics.unanswered.Inc()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed++; w.failed != awayAfter {
		return
	}
	now := w.now()
	w.away = now
	w.metrics.brokerUp.Set(0)
	if w.told = w.toldAt.IsZero() || now.Sub(w.toldAt) >= awayAgain; !w.told {
		w.untold++
		return
	}
	w.log.Warn("the broker does not answer; calls follow when_down until it does", "error", err, "absences_not_told", w.untold)
	w.toldAt, w.untold = now, 0
}

func (w *brokerWatch) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed, w.seen = 0, true
	if w.away.IsZero() {
		return
	}
	if w.told {
		w.log.Info("the broker answers again", "away", w.now().Sub(w.away).Round(time.Millisecond).String())
	}
	w.away, w.told = time.Time{}, false
	w.metrics.brokerUp.Set(1)
}
