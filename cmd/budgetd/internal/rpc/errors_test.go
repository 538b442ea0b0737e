package rpc_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/ledger"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// want checks the code of an error and a part of its message.
func (a answer) want(t testing.TB, status int, code, says string) {
	t.Helper()
	if a.status != status || a.text("code") != code || !strings.Contains(a.text("message"), says) {
		t.Errorf("%d %s\nwant %d %s ...%s...", a.status, a.body, status, code, says)
	}
}

func (a answer) wantNoLimitHeaders(t testing.TB) {
	t.Helper()
	for _, header := range []string{"RateLimit", "RateLimit-Policy", "Retry-After", "Budget-Limited-By"} {
		if value := a.header.Get(header); value != "" {
			t.Errorf("has the header %s: %s", header, value)
		}
	}
}

// One code for each kind of error.
func TestCodes(t *testing.T) {
	s := start(t, setup{})
	refund := func(id, tokens string) string {
		return fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"tokens":%s}}}`, id, tokens)
	}

	s.post(t, "", "Reserve", `{}`).want(t, http.StatusUnauthorized, "unauthenticated", "no API key")

	const first = `{"amounts":{"tokens":100},"idempotencyKey":"k","lease":"60s"}`
	grant := s.ok(t, "demo", "Reserve", first)
	id := grant.text("reservationId")
	if again := s.ok(t, "demo", "Reserve", first); again.json["replayed"] != true || again.text("reservationId") != id {
		t.Errorf("a repeat was not replayed: %s", again.body)
	}
	s.post(t, "demo", "Reserve", `{"amounts":{"tokens":101},"idempotencyKey":"k","lease":"60s"}`).
		want(t, http.StatusConflict, "already_exists", "idempotencyKey")

	closed := s.ok(t, "demo", "Refund", refund(id, "30"))
	if repeat := s.ok(t, "demo", "Refund", refund(id, "30")); repeat.json["replayed"] != true || fmt.Sprint(repeat.json["charged"]) != fmt.Sprint(closed.json["charged"]) {
		t.Errorf("a repeated Refund differs: %s, first %s", repeat.body, closed.body)
	}
	s.post(t, "demo", "Refund", refund(id, "31")).want(t, http.StatusBadRequest, "failed_precondition", "another usage")
	s.post(t, "demo", "Renew", fmt.Sprintf(`{"reservationId":%q}`, id)).want(t, http.StatusBadRequest, "failed_precondition", "not held any more")

	expiring := s.ok(t, "demo", "Reserve", `{"amounts":{"tokens":100},"lease":"10s"}`).text("reservationId")
	if renewed := s.ok(t, "demo", "Renew", fmt.Sprintf(`{"reservationId":%q,"lease":"20s"}`, expiring)); renewed.text("expiresAt") != "2026-03-10T12:00:20Z" {
		t.Errorf("renewed: %s", renewed.body)
	}
	s.advance(20 * time.Second)
	s.post(t, "demo", "Renew", fmt.Sprintf(`{"reservationId":%q}`, expiring)).want(t, http.StatusBadRequest, "failed_precondition", "lease has ended")
	if late := s.ok(t, "demo", "Refund", refund(expiring, "120")); late.json["late"] != true || late.text("state") != "RESERVATION_STATE_SETTLED_LATE" || fmt.Sprint(late.json["overrun"]) != "map[tokens:20]" {
		t.Errorf("a late Refund: %s", late.body)
	}

	unused := s.ok(t, "demo", "Reserve", `{"amounts":{"tokens":100}}`).text("reservationId")
	if released := s.ok(t, "demo", "Refund", fmt.Sprintf(`{"reservationId":%q,"unused":true}`, unused)); released.text("state") != "RESERVATION_STATE_RELEASED" || fmt.Sprint(released.json["givenBack"]) != "map[requests:1 tokens:100]" {
		t.Errorf("an unused reservation: %s", released.body)
	}

	for _, id := range []string{"x", strings.Repeat("A", 300), id[:len(id)-1] + "!", flipped(id)} {
		s.post(t, "demo", "Refund", refund(id, "1")).want(t, http.StatusNotFound, "not_found", "the reservation is unknown")
	}
	s.post(t, "both", "Reserve", `{}`).want(t, http.StatusBadRequest, "invalid_argument", "account")
	s.post(t, "admin", "Reserve", `{"account":"nobody"}`).want(t, http.StatusNotFound, "not_found", `account: "nobody" is unknown`)
}

// failing is a ledger whose Appends fail.
type failing struct {
	ledger.Ledger
	err *error
}

func (f failing) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	if *f.err != nil {
		return nil, *f.err
	}
	return f.Ledger.Append(ctx, closings)
}

// What the ledger refuses or can't take at the moment has a code and words of
// its own, and a Refund that is repeated afterwards is kept.
func TestLedgerCodes(t *testing.T) {
	var failure error
	s := start(t, setup{books: func(l ledger.Ledger) ledger.Ledger { return failing{l, &failure} }})
	id := s.ok(t, "demo", "Reserve", `{"amounts":{"tokens":100}}`).text("reservationId")
	refund := fmt.Sprintf(`{"reservationId":%q,"unused":true}`, id)
	for _, c := range []struct {
		err        error
		status     int
		code, says string
	}{
		{ledger.ErrBusy, http.StatusServiceUnavailable, "unavailable", "too many Refunds and Charges wait"},
		{fmt.Errorf("dial secret.internal: %w", ledger.ErrUnavailable), http.StatusServiceUnavailable, "unavailable", "the ledger does not answer"},
		{fmt.Errorf("%w: append 1 closings", ledger.ErrTooOld), http.StatusBadRequest, "failed_precondition", "older than what the ledger keeps"},
	} {
		failure = c.err
		a := s.post(t, "demo", "Refund", refund)
		a.want(t, c.status, c.code, c.says)
		if strings.Contains(string(a.body), "secret") {
			t.Errorf("it tells too much: %s", a.body)
		}
	}
	failure = nil
	s.ok(t, "demo", "Refund", refund)
}

// flipped changes one character in the middle of an id.
func flipped(id string) string {
	middle := len(id) / 2
	other := byte('A')
	if id[middle] == other {
		other = 'B'
	}
	return id[:middle] + string(other) + id[middle+1:]
}

// Other people's accounts and reservations answer exactly like ones that do not
// exist, in every method.
func TestOnlyYourOwn(t *testing.T) {
	s := start(t, setup{})
	theirs := s.ok(t, "other", "Reserve", `{"amounts":{"tokens":100},"lease":"60s"}`).text("reservationId")
	before := s.ok(t, "other", "GetQuota", `{}`).body

	for _, method := range []string{"Reserve", "Charge", "Estimate", "GetQuota"} {
		body := func(account string) string {
			switch method {
			case "Estimate":
				return fmt.Sprintf(`{"account":%q,"llm":{"model":"gpt-4o","prompt":"a","maxOutputTokens":1}}`, account)
			case "GetQuota":
				return fmt.Sprintf(`{"account":%q}`, account)
			}
			return fmt.Sprintf(`{"account":%q,"amounts":{"tokens":1}}`, account)
		}
		foreign, unknown := s.post(t, "demo", method, body("other")), s.post(t, "demo", method, body("nobody"))
		s.sameButName(t, method, foreign, unknown)
		everything := s.post(t, "admin", method, body("nobody"))
		s.sameButName(t, method+" with a key for everything", foreign, everything)
	}
	for method, rest := range map[string]string{"Refund": `,"unused":true`, "Renew": `,"lease":"60s"`, "GetReservation": ``} {
		foreign := s.post(t, "demo", method, fmt.Sprintf(`{"reservationId":%q%s}`, theirs, rest))
		unknown := s.post(t, "demo", method, fmt.Sprintf(`{"reservationId":%q%s}`, flipped(theirs), rest))
		if foreign.status != http.StatusNotFound || foreign.body != unknown.body {
			t.Errorf("%s: %d %s\nunknown: %d %s", method, foreign.status, foreign.body, unknown.status, unknown.body)
		}
	}
	if after := s.ok(t, "other", "GetQuota", `{}`).body; after != before {
		t.Errorf("something of theirs changed:\n%s\n%s", before, after)
	}
	// An idempotency key of one account says nothing about another's.
	s.ok(t, "demo", "Reserve", `{"amounts":{"tokens":1},"idempotencyKey":"same"}`)
	s.ok(t, "other", "Reserve", `{"amounts":{"tokens":2},"idempotencyKey":"same"}`)
}

func (s *server) sameButName(t testing.TB, what string, foreign, unknown answer) {
	t.Helper()
	if foreign.status != http.StatusNotFound || strings.ReplaceAll(foreign.body, "other", "nobody") != unknown.body || len(foreign.header) != len(unknown.header) {
		t.Errorf("%s: %d %s\nunknown: %d %s", what, foreign.status, foreign.body, unknown.status, unknown.body)
	}
}

// The headers of every kind of refusal.
func TestRefusalHeaders(t *testing.T) {
	s := start(t, setup{config: rpc.Config{MaxRetryAfter: 24 * time.Hour}})
	for range 10 {
		s.ok(t, "admin", "Reserve", `{"account":"small"}`)
	}
	bucket := s.post(t, "admin", "Reserve", `{"account":"small"}`)
	s.wantHeaders(t, bucket, map[string]string{
		// A bucket of 10 at 2/s that is empty: full in 5 s, and the next call
		// may pass in half a second, which rounds up to one.
		"RateLimit": `"default";r=0;t=5`, "RateLimit-Policy": `"default";q=10;w=5`, "Retry-After": "1", "Budget-Limited-By": "default",
	})
	bucket.want(t, http.StatusTooManyRequests, "resource_exhausted", "limit default (account small): asked 1, 0 left of 10; retry in 0.5 s")

	s.advance(time.Minute)
	s.ok(t, "admin", "Charge", `{"account":"small","amounts":{"pages":90}}`)
	quotaUsed := s.post(t, "admin", "Reserve", `{"account":"small","amounts":{"pages":20}}`)
	s.wantHeaders(t, quotaUsed, map[string]string{
		"RateLimit": `"pages";r=10;t=43140`, "RateLimit-Policy": `"pages";q=100;w=86400`, "Retry-After": "43140", "Budget-Limited-By": "pages",
	})
	quotaUsed.want(t, http.StatusTooManyRequests, "resource_exhausted", "limit pages (account small): asked 20, 10 left of 100; retry in 11h59m0s")

	tooMuch := s.post(t, "demo", "Reserve", `{"amounts":{"tokens":10001}}`)
	s.wantHeaders(t, tooMuch, map[string]string{
		"RateLimit": `"tokens";r=10000`, "RateLimit-Policy": `"tokens";q=10000;w=60`, "Retry-After": "", "Budget-Limited-By": "tokens",
	})
	tooMuch.want(t, http.StatusTooManyRequests, "resource_exhausted", "asked 10001, and it never holds more than 10000; waiting does not help, ask for less")

	// What holds so much is the model's maximum, where a call states no bound.
	for body, field := range map[string]string{
		`"model":"gpt-4o-mini","prompt":"Hi"`: "max_output_tokens",
		`"provider":"openai","providerRequest":{"model":"gpt-4o-mini","messages":[{"role":"user","content":"Hi"}]}`:                                             "max_completion_tokens",
		`"provider":"openai","providerRequest":{"model":"gpt-4o-mini","input":"Hi"}`:                                                                            "max_output_tokens",
		`"provider":"gemini","providerRequest":{"model":"gemini-2.5-flash","contents":[{"parts":[{"text":"Hi"}]}]}`:                                             "generationConfig.maxOutputTokens",
		`"provider":"bedrock","providerRequest":{"modelId":"anthropic.claude-sonnet-4-5-20250929-v1:0","messages":[{"role":"user","content":[{"text":"Hi"}]}]}`: "inferenceConfig.maxTokens",
	} {
		a := s.post(t, "demo", "Reserve", `{"llm":{`+body+`}}`)
		a.want(t, http.StatusTooManyRequests, "resource_exhausted", "the call states no bound of its output, so that all ")
		a.want(t, http.StatusTooManyRequests, "resource_exhausted", "tokens that the model can write are asked for: set "+field)
	}
	bounded := s.post(t, "demo", "Reserve", `{"llm":{"model":"gpt-4o-mini","prompt":"Hi","maxOutputTokens":16384}}`)
	if bounded.want(t, http.StatusTooManyRequests, "resource_exhausted", "waiting does not help"); strings.Contains(bounded.body, "no bound") {
		t.Errorf("a call with a bound: %s", bounded.body)
	}
	stated := s.post(t, "demo", "Reserve", `{"llm":{"model":"gpt-4o-mini","prompt":"Hi"},"amounts":{"tokens":10001}}`)
	if strings.Contains(stated.body, "no bound") {
		t.Errorf("a call with an amount of its own: %s", stated.body)
	}

	for range 3 {
		s.ok(t, "demo", "Reserve", `{"labels":{"route":"slow"},"lease":"30s"}`)
	}
	slots := s.post(t, "demo", "Reserve", `{"labels":{"route":"slow"},"lease":"30s"}`)
	s.wantHeaders(t, slots, map[string]string{
		"RateLimit": `"slow";r=0;t=30`, "RateLimit-Policy": `"slow";q=3`, "Retry-After": "30", "Budget-Limited-By": "slow",
	})
	slots.want(t, http.StatusTooManyRequests, "resource_exhausted", "limit slow (account demo): all 3 slots are taken; retry in 30.0 s")

	money := s.post(t, "demo", "Reserve", `{"amounts":{"cost":100000000001}}`)
	money.want(t, http.StatusTooManyRequests, "resource_exhausted", "asked $100.000000001, and it never holds more than $100.00")
}

func (s *server) wantHeaders(t testing.TB, a answer, want map[string]string) {
	t.Helper()
	for header, value := range want {
		if got := a.header.Get(header); got != value {
			t.Errorf("%s: %q, want %q (%s)", header, got, value, a.body)
		}
	}
	if got := a.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control: %q", got)
	}
}

// An engine that does not answer is unavailable, never a refusal, and says
// nothing about limits.
func TestEngineAway(t *testing.T) {
	var away away
	policy := func(rule quota.DownRule) *quota.Policy {
		plan := quota.Plan{Name: "p", Limits: []quota.Limit{
			{Name: "requests", Meter: quota.MeterRequests, Kind: quota.KindBucket, Rate: quota.Rate{Amount: 10, Every: time.Second}, WhenDown: rule},
		}}
		p, err := quota.NewPolicy([]quota.Plan{plan}, nil, []quota.Account{{Name: "demo", Plan: "p"}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, rule := range []quota.DownRule{quota.DownClosed, quota.DownOpen} {
		t.Run(string(rule), func(t *testing.T) {
			s := start(t, setup{policy: policy(rule), decorate: away.decorate})
			id := s.ok(t, "demo", "Reserve", `{"lease":"60s"}`).text("reservationId")
			away.set(true)
			defer away.set(false)
			a := s.post(t, "demo", "Reserve", `{"lease":"60s"}`)
			a.wantNoLimitHeaders(t)
			if rule == quota.DownOpen {
				if a.status != http.StatusOK || a.json["degraded"] != true {
					t.Errorf("%d %s", a.status, a.body)
				}
			} else {
				a.want(t, http.StatusServiceUnavailable, "unavailable", "limit requests can't be checked")
			}
			if strings.Contains(a.body, "secret.internal") {
				t.Errorf("the answer tells what is inside: %s", a.body)
			}
			renewed := s.post(t, "demo", "Renew", fmt.Sprintf(`{"reservationId":%q}`, id))
			renewed.want(t, http.StatusServiceUnavailable, "unavailable", "does not answer")
			// A Refund is kept in the ledger all the same.
			s.ok(t, "demo", "Refund", fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"requests":1}}}`, id))
			view := s.ok(t, "demo", "GetQuota", `{}`)
			if view.json["degraded"] != true || view.json["limits"] != nil || fmt.Sprint(view.json["totals"]) != "map[requests:1]" {
				t.Errorf("GetQuota: %s", view.body)
			}
		})
	}
}

// Calls beyond the bound are turned away at once, and Refunds still come in.
func TestOverload(t *testing.T) {
	gate := make(chan struct{})
	entered := make(chan struct{}, 16)
	hold := func(next reservation.Store) reservation.Store {
		return slow{Store: next, reserve: func() {
			entered <- struct{}{}
			<-gate
		}}
	}
	s := start(t, setup{
		config:   rpc.Config{MaxInFlight: 16},
		decorate: hold,
		broker:   reservation.Config{Deadline: 10 * time.Second},
	})
	done := make(chan answer, 14)
	for range 14 { // 16 less the eighth for Refunds
		go func() { done <- s.post(t, "demo", "Reserve", `{"lease":"60s"}`) }()
	}
	for range 14 {
		<-entered
	}
	a := s.post(t, "demo", "Reserve", `{"lease":"60s"}`)
	a.want(t, http.StatusServiceUnavailable, "unavailable", "overloaded")
	a.wantNoLimitHeaders(t)
	s.post(t, "demo", "Refund", `{"reservationId":"x","unused":true}`).want(t, http.StatusNotFound, "not_found", "unknown")
	close(gate)
	for range 14 {
		if a := <-done; a.status != http.StatusOK {
			t.Errorf("a call within the bound: %d %s", a.status, a.body)
		}
	}
	go func() { <-entered }()
	s.ok(t, "demo", "Reserve", `{"lease":"60s"}`)
	if n := metric(t, s.registry, "budgetd_rpc_shed_calls_total"); n != 1 {
		t.Errorf("%v calls were counted as shed, want 1", n)
	}
	if n := metric(t, s.registry, "budgetd_rpc_in_flight_calls"); n != 0 {
		t.Errorf("%v calls are counted as under way, want 0", n)
	}
}

// A panic is an internal error that tells the caller nothing and the log
// everything.
func TestPanic(t *testing.T) {
	s := start(t, setup{decorate: func(next reservation.Store) reservation.Store {
		return slow{Store: next, reserve: func() { panic("the secret of secret.internal") }}
	}})
	a := s.post(t, "demo", "Reserve", `{}`)
	a.want(t, http.StatusInternalServerError, "internal", "its log says more")
	if strings.Contains(a.body, "secret") {
		t.Errorf("the answer tells what is inside: %s", a.body)
	}
	if logged := s.logs.String(); !strings.Contains(logged, "secret.internal") || !strings.Contains(logged, "errors_test.go") {
		t.Errorf("the log does not tell what happened: %s", logged)
	}
	if n := metric(t, s.registry, "budgetd_rpc_panics_total"); n != 1 {
		t.Errorf("%v panics were counted, want 1", n)
	}
	s.ok(t, "demo", "GetQuota", `{}`)
}

// A caller that hangs up, or whose own deadline passes, is told so and not that
// something is down.
func TestCallerGoes(t *testing.T) {
	gate := make(chan struct{})
	s := start(t, setup{
		decorate: func(next reservation.Store) reservation.Store {
			return slow{Store: next, reserve: func() { <-gate }}
		},
		broker: reservation.Config{Deadline: 10 * time.Second},
	})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := s.client("demo").Reserve(ctx, connect.NewRequest(&budgetv1.ReserveRequest{}))
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("%v", err)
	}
	close(gate)
}

var errAway = fmt.Errorf("dial secret.internal:6379: %w", reservation.ErrUnavailable)
