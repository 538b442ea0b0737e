package ratelimit_test

import (
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/apptest"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/ratelimit"
)

// noon is when everything in these tests happens: no bucket refills meanwhile.
var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

const policy = `
plans:
  demo:
    limits:
      - {name: default, meter: requests, rate: 2/s, burst: 10}
      - {name: user, meter: requests, rate: 3/min, per: [user], match: {user: ["*"]}}
      - {name: tokens, meter: tokens, rate: 6000/min, burst: 10000}
      - {name: slow, meter: in_flight, max: 1}
    quotas:
      - {name: pages, meter: pages, amount: 100, period: day}
accounts: {demo: {plan: demo}, other: {plan: demo}}
`

// begin starts a broker with the policy, and returns a gRPC client with the demo
// key, which is for the account demo only.
func begin(t testing.TB, naming ratelimit.Naming) *connect.Client[rlsv3.RateLimitRequest, rlsv3.RateLimitResponse] {
	t.Helper()
	return beginAs(t, naming, "Bearer demo")
}

func beginAs(t testing.TB, naming ratelimit.Naming, credential string) *connect.Client[rlsv3.RateLimitRequest, rlsv3.RateLimitResponse] {
	t.Helper()
	a := apptest.Start(t, policy, app.Options{Clock: func() time.Time { return noon }}, func(c *config.Config) {
		c.RateLimitAccount = string(naming)
	})
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return connect.NewClient[rlsv3.RateLimitRequest, rlsv3.RateLimitResponse](
		&http.Client{Transport: keyed{credential, transport}}, a.URL()+ratelimit.Procedure, connect.WithGRPC())
}

type keyed struct {
	credential string
	next       http.RoundTripper
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if k.credential != "" {
		r.Header.Set("Authorization", k.credential)
	}
	return k.next.RoundTrip(r)
}

// described makes a descriptor of pairs of keys and values.
func described(pairs ...string) *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func asked(domain string, hits uint32, descriptors ...*ratelimitv3.RateLimitDescriptor) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: domain, HitsAddend: hits, Descriptors: descriptors}
}
