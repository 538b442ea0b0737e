// Package clients measures what a client makes of a limit, by how it asks: real
// clients and the engine in memory, under the clock of testing/synctest, so that
// every run gives the same figures.
package clients

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/budgetd/budgetd/clients/go/pacer"
	"github.com/budgetd/budgetd/clients/go/retry"
	"github.com/budgetd/budgetd/clients/go/throttle"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
)

// The experiment: one client has so many requests to make, one after the other,
// to a limit of Rate a second with a bucket of Burst. A request is tried at most
// Tries times, and takes no time by itself.
const (
	Requests = 30
	Burst    = 5
	Rate     = 5
	Tries    = 6
)

// Ways are the clients, in the order of the table.
var Ways = []string{"retries at once", "Retry-After and jitter", "paced", "adaptive throttling, at once"}

// Result is what became of the requests.
type Result struct {
	Sent, Refused int // tries that reached the limit
	Done          int // requests that were let through in the end
	Took          time.Duration
}

const account = "lab"

// service is a limit as an API shows it.
type service struct {
	store *memstore.Store
	hold  reservation.Hold
	Result
}

func newService() (*service, error) {
	store, err := memstore.New(memstore.Config{Clock: time.Now})
	limit := quota.Limit{Kind: quota.KindBucket, Rate: quota.Rate{Amount: Rate, Every: time.Second}, Burst: Burst}
	return &service{store: store, hold: reservation.Hold{
		Counter: reservation.Counter{Limit: "requests"}, Kind: quota.KindBucket, OnExpiry: quota.ExpiryGiveBack,
		Bucket: limit.Bucket(), Amount: 1,
	}}, err
}

// RoundTrip implements http.RoundTripper.
func (s *service) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := s.store.Reserve(request.Context(), reservation.ReserveRequest{
		Account: account, ID: reservation.NewID(time.Now()), Holds: []reservation.Hold{s.hold}, Lease: time.Hour, Retention: time.Hour,
	})
	if err != nil {
		return nil, err
	}
	s.Sent++
	response := &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: request}
	switch answer.Verdict {
	case reservation.Granted:
	case reservation.Refused:
		s.Refused++
		response.StatusCode = http.StatusTooManyRequests
		wait := max(1, (answer.Refusal.RetryAt.Sub(answer.Now)+time.Second-1)/time.Second)
		response.Header.Set("Retry-After", strconv.Itoa(int(wait)))
	default:
		return nil, fmt.Errorf("the engine's verdict is %d", answer.Verdict)
	}
	return response, nil
}

// Run lets one client make its requests. It must run in a bubble of
// testing/synctest.
func Run(ctx context.Context, way string, seed uint64) (Result, error) {
	s, err := newService()
	if err != nil {
		return Result{}, err
	}
	defer s.store.Close()
	random := rand.New(rand.NewPCG(seed, 0))
	client, tries := http.RoundTripper(s), 1
	switch way {
	case Ways[0]:
		tries = Tries
	case Ways[1]:
		client = &retry.Transport{Base: s, Policy: retry.Policy{Tries: Tries, Random: random.Float64}}
	case Ways[2]:
		p, err := pacer.New(Rate, Burst)
		if err != nil {
			return Result{}, err
		}
		client = &pacer.Transport{Base: s, Pacer: p}
	case Ways[3]:
		client, tries = &throttle.Transport{Base: s, Throttle: throttle.New(throttle.Config{Random: random.Float64})}, Tries
	default:
		return Result{}, fmt.Errorf("%q is none of the ways", way)
	}
	began := time.Now()
	for range Requests {
		for range tries {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://lab.invalid/", nil)
			if err != nil {
				return Result{}, err
			}
			response, err := client.RoundTrip(request)
			if err == throttle.ErrDropped {
				continue // and tries at once, as the one that does not throttle
			}
			if err != nil {
				return Result{}, err
			}
			response.Body.Close()
			if response.StatusCode == http.StatusNoContent {
				s.Done++
				break
			}
		}
	}
	s.Took = time.Since(began)
	return s.Result, nil
}

// Row is a line of the table in Markdown.
func (r Result) Row(way string) string {
	return fmt.Sprintf("| %s | %d | %d | %d of %d | %.1f s |", way, r.Sent, r.Refused, r.Done, Requests, r.Took.Seconds())
}

// Head is the table's head.
func Head(out io.Writer) {
	fmt.Fprintln(out, "| client | sent | refused | done | took |")
	fmt.Fprintln(out, "| --- | --- | --- | --- | --- |")
}
