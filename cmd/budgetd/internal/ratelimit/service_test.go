package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/ratelimit"
)

// told writes an answer in a few words: the overall code, each status, and each
// header.
func told(t testing.TB, client *connect.Client[rlsv3.RateLimitRequest, rlsv3.RateLimitResponse], request *rlsv3.RateLimitRequest) string {
	t.Helper()
	response, err := client.CallUnary(t.Context(), connect.NewRequest(request))
	if err != nil {
		return err.Error()
	}
	text := response.Msg.OverallCode.String()
	for _, s := range response.Msg.Statuses {
		text += "; " + s.Code.String()
		if limit := s.CurrentLimit; limit != nil {
			text += fmt.Sprintf(" %s %d/%d %s", limit.Name, limit.RequestsPerUnit, limit.UnitMultiplier.GetValue(), limit.Unit)
			text += fmt.Sprintf(" r=%d t=%s", s.LimitRemaining, s.DurationUntilReset.AsDuration())
		}
	}
	for _, header := range response.Msg.ResponseHeadersToAdd {
		text += "\n" + header.Key + ": " + header.Value
	}
	return text
}

type exchange struct {
	request *rlsv3.RateLimitRequest
	want    string
}

func check(t *testing.T, client *connect.Client[rlsv3.RateLimitRequest, rlsv3.RateLimitResponse], exchanges []exchange) {
	t.Helper()
	for i, e := range exchanges {
		if got := told(t, client, e.request); got != e.want {
			t.Errorf("request %d:\n%s\nwant\n%s", i, got, e.want)
		}
	}
}

// Hits are charged until a limit refuses; a refusal takes nothing, and says
// which limit, how much is left and when to come back.
func TestCharges(t *testing.T) {
	client := begin(t, ratelimit.NameByDomain)
	check(t, client, []exchange{
		{asked("demo", 0, described("path", "/v1")), "OK; OK default 10/5 SECOND r=9 t=500ms\n" +
			"Ratelimit: \"default\";r=9;t=1\nRatelimit-Policy: \"default\";q=10;w=5"},
		// One step with both labels: each limit counts once, the tighter is told.
		{asked("demo", 2, described("path", "/v1"), described("user", "7")), "OK; OK user 3/1 MINUTE r=1 t=40s; OK user 3/1 MINUTE r=1 t=40s\n" +
			"Ratelimit: \"user\";r=1;t=40\nRatelimit-Policy: \"user\";q=3;w=60"},
		{asked("demo", 2, described("user", "7")), "OVER_LIMIT; OVER_LIMIT user 3/1 MINUTE r=1 t=40s\n" +
			"Budget-Limited-By: user\nRatelimit: \"user\";r=1;t=40\nRatelimit-Policy: \"user\";q=3;w=60\nRetry-After: 20"},
		// Another meter counts a request beside it.
		{asked("demo", 9_999, described("meter", "tokens")), "OK; OK tokens 10000/100 SECOND r=1 t=1m39.99s\n" +
			"Ratelimit: \"tokens\";r=1;t=100\nRatelimit-Policy: \"tokens\";q=10000;w=100"},
		// A refusal by one descriptor's meter leaves the other's untouched.
		{asked("demo", 2, described("path", "/v1"), described("meter", "tokens")), "OVER_LIMIT; UNKNOWN; OVER_LIMIT tokens 10000/100 SECOND r=1 t=1m39.99s\n" +
			"Budget-Limited-By: tokens\nRatelimit: \"tokens\";r=1;t=100\nRatelimit-Policy: \"tokens\";q=10000;w=100\nRetry-After: 1"},
		{asked("demo", 6, described("path", "/v1")), "OK; OK default 10/5 SECOND r=0 t=5s\n" +
			"Ratelimit: \"default\";r=0;t=5\nRatelimit-Policy: \"default\";q=10;w=5"},
		{asked("demo", 1, described("path", "/v1")), "OVER_LIMIT; OVER_LIMIT default 10/5 SECOND r=0 t=5s\n" +
			"Budget-Limited-By: default\nRatelimit: \"default\";r=0;t=5\nRatelimit-Policy: \"default\";q=10;w=5\nRetry-After: 1"},
		// A meter of its own is refused by the limit on requests, which it counts in too.
		{asked("demo", 1, described("meter", "pages")), "OVER_LIMIT; OVER_LIMIT default 10/5 SECOND r=0 t=5s\n" +
			"Budget-Limited-By: default\nRatelimit: \"default\";r=0;t=5\nRatelimit-Policy: \"default\";q=10;w=5\nRetry-After: 1"},
	})
}

// first is the first line of what was told.
func first(t testing.TB, client *connect.Client[rlsv3.RateLimitRequest, rlsv3.RateLimitResponse], request *rlsv3.RateLimitRequest) string {
	t.Helper()
	text, _, _ := strings.Cut(told(t, client, request), "\n")
	return text
}

// Descriptors that contradict each other are one step: each limit sees its own,
// one that several meet counts once, and a refusal takes nothing.
func TestContradictions(t *testing.T) {
	client := begin(t, ratelimit.NameByDomain)
	own := func(hits uint64, pairs ...string) *ratelimitv3.RateLimitDescriptor {
		d := described(pairs...)
		d.HitsAddend = wrapperspb.UInt64(hits)
		return d
	}
	for i, e := range []exchange{
		{asked("demo", 3, described("user", "7"), described("user", "8")), "OK; OK user 3/1 MINUTE r=0 t=1m0s; OK user 3/1 MINUTE r=0 t=1m0s"},
		{asked("demo", 1, described("user", "9"), described("user", "8"), described("user", "10")), "OVER_LIMIT; UNKNOWN; OVER_LIMIT user 3/1 MINUTE r=0 t=1m0s; UNKNOWN"},
		// Nothing of the others is charged.
		{asked("demo", 1, described("user", "9")), "OK; OK default 10/5 SECOND r=6 t=2s"},
		// Other hits: the limit of all has the most of them.
		{asked("demo", 1, own(2, "user", "10"), own(5, "path", "/")), "OK; OK default 10/5 SECOND r=1 t=4.5s; OK default 10/5 SECOND r=1 t=4.5s"},
		{asked("demo", 2, described("user", "10")), "OVER_LIMIT; OVER_LIMIT user 3/1 MINUTE r=1 t=40s"},
	} {
		if got := first(t, client, e.request); got != e.want {
			t.Errorf("request %d: %s, want %s", i, got, e.want)
		}
	}
}

// What was used already, such as hits that Envoy reports when a stream is done,
// is charged whatever is left, and later calls wait it out.
func TestAlreadyUsed(t *testing.T) {
	client := begin(t, ratelimit.NameByDomain)
	for i, e := range []exchange{
		{asked("demo", 15_000, described("meter", "tokens", "already_used", "true")), "OK; OK tokens 10000/100 SECOND r=0 t=2m30s"},
		{asked("demo", 1, described("meter", "tokens", "already_used", "false")), "OVER_LIMIT; OVER_LIMIT tokens 10000/100 SECOND r=0 t=2m30s"},
		{asked("demo", 1, described("meter", "tokens", "already_used", "true"), described("meter", "tokens")), "OVER_LIMIT; OK tokens 10000/100 SECOND r=0 t=2m30.01s; OVER_LIMIT tokens 10000/100 SECOND r=0 t=2m30.01s"},
	} {
		if got := first(t, client, e.request); got != e.want {
			t.Errorf("request %d: %s, want %s", i, got, e.want)
		}
	}
}

// Negative hits give back what was charged, once for an id, to buckets and
// quotas, and never more.
func TestNegativeHits(t *testing.T) {
	client := begin(t, ratelimit.NameByDomain)
	back := func(hits uint64, pairs ...string) *rlsv3.RateLimitRequest {
		d := described(pairs...)
		d.IsNegativeHits, d.HitsAddend = true, wrapperspb.UInt64(hits)
		return asked("demo", 1, d)
	}
	for i, e := range []exchange{
		{asked("demo", 9000, described("meter", "tokens")), "OK; OK tokens 10000/100 SECOND r=1000 t=1m30s"},
		{back(4000, "meter", "tokens", "idempotency_key", "a"), "OK; OK tokens 10000/100 SECOND r=5000 t=50s"},
		{back(4000, "meter", "tokens", "idempotency_key", "a"), "OK; OK"},
		{asked("demo", 5001, described("meter", "tokens")), "OVER_LIMIT; OVER_LIMIT tokens 10000/100 SECOND r=5000 t=50s"},
		{back(99_999, "meter", "tokens"), "OK; OK tokens 10000/100 SECOND r=10000 t=0s"},
		{back(1, "meter", "tokens"), "OK; OK"}, // nothing is left to be given back
		{asked("demo", 100, described("meter", "pages")), "OK; OK pages 100/1 DAY r=0 t=12h0m0s"},
		{asked("demo", 1, described("meter", "pages")), "OVER_LIMIT; OVER_LIMIT pages 100/1 DAY r=0 t=12h0m0s"},
		{back(30, "meter", "pages"), "OK; OK"},
		{asked("demo", 30, described("meter", "pages")), "OK; OK pages 100/1 DAY r=0 t=12h0m0s"},
		// The requests that these were are still counted: two grants of tokens and pages.
		{asked("demo", 1, described("path", "/")), "OK; OK default 10/5 SECOND r=6 t=2s"},
	} {
		if got := first(t, client, e.request); got != e.want {
			t.Errorf("request %d: %s, want %s", i, got, e.want)
		}
	}
	if got := told(t, client, back(7, "path", "/")); !strings.Contains(got, "\nBudget-Given-Back: requests=4") {
		t.Errorf("%s", got)
	}
}

// A request that is sent twice is charged once where it has an id, in the
// metadata or in a descriptor. Another request of the same id is another one.
func TestOnce(t *testing.T) {
	client := begin(t, ratelimit.NameByDomain)
	left := func(id string, request *rlsv3.RateLimitRequest) {
		t.Helper()
		sent := connect.NewRequest(request)
		if id != "" {
			sent.Header().Set("X-Request-Id", id)
		}
		if answer, err := client.CallUnary(t.Context(), sent); err != nil || answer.Msg.OverallCode != rlsv3.RateLimitResponse_OK {
			t.Fatalf("%v, %v", answer, err)
		}
	}
	look := described("path", "/")
	look.HitsAddend = wrapperspb.UInt64(0)
	for i, e := range []struct {
		id      string
		request *rlsv3.RateLimitRequest
		want    string // left of ten, less the one that is looked for
	}{
		{"a", asked("demo", 1, described("path", "/")), "r=8"},
		{"a", asked("demo", 1, described("path", "/")), "r=8"},
		{"a", asked("demo", 2, described("path", "/")), "r=6"},
		{"b", asked("demo", 1, described("path", "/")), "r=5"},
		{"", asked("demo", 1, described("path", "/")), "r=4"},
		{"", asked("demo", 1, described("path", "/")), "r=3"},
		{"c", asked("demo", 1, described("path", "/", "idempotency_key", "k")), "r=2"},
		{"d", asked("demo", 1, described("path", "/", "idempotency_key", "k")), "r=2"},
		{"e", asked("demo", 1, described("path", "/", "idempotency_key", "l")), "r=1"},
		{"e", asked("demo", 1, described("path", "/", "idempotency_key", "l", "already_used", "true")), "r=0"},
		{"e", asked("demo", 1, described("path", "/", "idempotency_key", "l", "already_used", "true")), "r=0"},
	} {
		left(e.id, e.request)
		if got := first(t, client, asked("demo", 1, look)); !strings.Contains(got, e.want+" ") {
			t.Errorf("request %d: %s, want %s", i, got, e.want)
		}
	}
}

// A descriptor with hits 0 of its own is looked at and takes nothing.
func TestLook(t *testing.T) {
	client := begin(t, ratelimit.NameByDomain)
	look := func(pairs ...string) *ratelimitv3.RateLimitDescriptor {
		d := described(pairs...)
		d.HitsAddend = wrapperspb.UInt64(0)
		return d
	}
	for range 3 {
		if got, want := first(t, client, asked("demo", 5, look("meter", "tokens"))), "OK; OK tokens 10000/100 SECOND r=9999 t=10ms"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	// A quota that nobody has used yet is looked at too, and stays as it was.
	for range 2 {
		if got, want := first(t, client, asked("demo", 1, look("meter", "pages"))), "OK; OK pages 100/1 DAY r=99 t=12h0m0s"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	// What is looked at comes before what is charged.
	if got, want := first(t, client, asked("demo", 10_000, described("meter", "tokens"))), "OK; OK tokens 10000/100 SECOND r=0 t=1m40s"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	for range 3 {
		if got, want := first(t, client, asked("demo", 1, described("path", "/v1"), look("meter", "tokens"))), "OVER_LIMIT; UNKNOWN; OVER_LIMIT tokens 10000/100 SECOND r=0 t=1m40s"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	if got, want := first(t, client, asked("demo", 1, described("path", "/v1"))), "OK; OK default 10/5 SECOND r=8 t=1s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A descriptor's own limit makes less pass, for each value of its entries, and
// never more than the policy does.
func TestOverride(t *testing.T) {
	client := begin(t, ratelimit.NameByDomain)
	limited := func(per uint32, unit typev3.RateLimitUnit, pairs ...string) *ratelimitv3.RateLimitDescriptor {
		d := described(pairs...)
		d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: per, Unit: unit}
		return d
	}
	check(t, client, []exchange{
		{asked("demo", 2, limited(2, typev3.RateLimitUnit_MINUTE, "path", "/v1")), "OK; OK _override 2/1 MINUTE r=0 t=1m0s\n" +
			"Ratelimit: \"_override\";r=0;t=60\nRatelimit-Policy: \"_override\";q=2;w=60"},
		{asked("demo", 1, limited(2, typev3.RateLimitUnit_MINUTE, "path", "/v1")), "OVER_LIMIT; OVER_LIMIT _override 2/1 MINUTE r=0 t=1m0s\n" +
			"Budget-Limited-By: _override\nRatelimit: \"_override\";r=0;t=60\nRatelimit-Policy: \"_override\";q=2;w=60\nRetry-After: 30"},
		{asked("demo", 8, limited(1_000_000, typev3.RateLimitUnit_MONTH, "path", "/v2")), "OK; OK default 10/5 SECOND r=0 t=5s\n" +
			"Ratelimit: \"default\";r=0;t=5\nRatelimit-Policy: \"default\";q=10;w=5"},
		{asked("demo", 1, limited(1_000_000, typev3.RateLimitUnit_MONTH, "path", "/v2")), "OVER_LIMIT; OVER_LIMIT default 10/5 SECOND r=0 t=5s\n" +
			"Budget-Limited-By: default\nRatelimit: \"default\";r=0;t=5\nRatelimit-Policy: \"default\";q=10;w=5\nRetry-After: 1"},
	})
	broken := limited(0, typev3.RateLimitUnit_DAY, "path", "/v1")
	for request, want := range map[*rlsv3.RateLimitRequest]string{
		asked("demo", 1, broken): "invalid_argument: descriptors[0].limit.requests_per_unit: 0 would let nothing pass",
		asked("demo", 1, limited(1, typev3.RateLimitUnit_UNKNOWN, "path", "/v1")): "invalid_argument: descriptors[0].limit.unit: 0 is no unit",
		asked("demo", 1, limited(1, typev3.RateLimitUnit_YEAR, "path", "/v1")):    "invalid_argument: descriptors[0].limit: refills less often than once a day",
	} {
		if got := told(t, client, request); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
