package ops

import (
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Pages says what [Handle] serves beside health.
type Pages struct {
	Gatherer prometheus.Gatherer // of /metrics; nil for none
	Pprof    bool
	// Details tells in /readyz what is wrong, which may name hosts: for
	// addresses that only operators reach.
	Details bool
	// Notes are lines that /readyz says while it is ready, with Details: what
	// operators should not forget. nil: none.
	Notes func() []string
}

// Bounds of one scrape.
const (
	maxScrapes    = 3
	scrapeTimeout = 10 * time.Second
)

// Handle adds the pages to a mux.
func Handle(mux *http.ServeMux, readiness *Readiness, pages Pages) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		err := readiness.Ready(r.Context())
		switch {
		case err == nil && pages.Details && pages.Notes != nil:
			answer(w, http.StatusOK, strings.Join(append([]string{"ready"}, pages.Notes()...), "\n"))
		case err == nil:
			answer(w, http.StatusOK, "ready")
		case pages.Details:
			answer(w, http.StatusServiceUnavailable, "not ready\n"+err.Error())
		default:
			answer(w, http.StatusServiceUnavailable, "not ready")
		}
	})
	if pages.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(pages.Gatherer, promhttp.HandlerOpts{
			MaxRequestsInFlight: maxScrapes,
			Timeout:             scrapeTimeout,
			EnableOpenMetrics:   true,
		}))
	}
	if pages.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write([]byte(text + "\n"))
}
