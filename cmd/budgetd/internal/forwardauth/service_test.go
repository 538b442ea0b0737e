package forwardauth_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/apptest"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/forwardauth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const policy = `
plans:
  demo:
    limits:
      - {name: default, meter: requests, rate: 2/s, burst: 10}
      - {name: user, meter: requests, rate: 3/min, per: [user], match: {user: "*"}}
      - {name: tokens, meter: tokens, rate: 6000/min, burst: 10000}
      - {name: slow, meter: in_flight, max: 1}
    quotas:
      - {name: pages, meter: pages, amount: 100, period: day}
accounts: {demo: {plan: demo}, other: {plan: demo}}
`

// start starts a broker with the policy, whose clock stands still, and returns
// its URL.
func start(t testing.TB) string {
	t.Helper()
	noon := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	return apptest.Start(t, policy, app.Options{Clock: func() time.Time { return noon }}).URL()
}

// ask sends what a gateway would, with headers as "Name: value".
func ask(t testing.TB, url, method, query string, headers ...string) (status int, header http.Header, text string) {
	t.Helper()
	request, err := http.NewRequest(method, url+forwardauth.Path+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		request.Header.Add(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(body)
}

const key = "X-Budget-Key: demo"

// The worked example of the headers: a bucket of 10 at 2 a second, emptied.
func TestForwardAuth(t *testing.T) {
	url := start(t)
	status, header, _ := ask(t, url, "GET", "?amount.requests=9", key)
	if status != http.StatusOK || header.Get("RateLimit") != `"default";r=1;t=5` || header.Get("RateLimit-Policy") != `"default";q=10;w=5` {
		t.Errorf("%d %v", status, header)
	}
	if status, _, _ := ask(t, url, "POST", "", "Authorization: Bearer demo"); status != http.StatusOK {
		t.Errorf("the last one: %d", status)
	}
	for query, want := range map[string]int{"": 429, "?refused=429": 429, "?refused=403": 403} {
		status, header, text := ask(t, url, "GET", query, key)
		got := map[string]string{}
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "Retry-After", "Budget-Limited-By", "Cache-Control"} {
			got[name] = header.Get(name)
		}
		diff := cmp.Diff(map[string]string{
			"RateLimit": `"default";r=0;t=5`, "RateLimit-Policy": `"default";q=10;w=5`, "Retry-After": "1",
			"Budget-Limited-By": "default", "Cache-Control": "no-store",
		}, got)
		if status != want || diff != "" || !strings.Contains(text, "retry in 0.5 s") {
			t.Errorf("%q: %d %q %s", query, status, text, diff)
		}
	}
}

// Query and headers say the same, the query wins, and headers can be ignored.
func TestForwardAuthReads(t *testing.T) {
	for name, test := range map[string]struct {
		query   string
		headers []string
		limit   string // of which the least is left
		left    string
	}{
		"one request":               {"", nil, "default", "r=9"},
		"amounts of the query":      {"?amount.tokens=9000", nil, "tokens", "r=1000"},
		"amounts of headers":        {"", []string{"X-Budget-Amount-Tokens: 9000"}, "tokens", "r=1000"},
		"the query wins":            {"?amount.tokens=9000", []string{"X-Budget-Amount-Tokens: 1"}, "tokens", "r=1000"},
		"a label of the query":      {"?label.user=7", nil, "user", "r=2"},
		"a label of a header":       {"", []string{"X-Budget-Label-User: 7"}, "user", "r=2"},
		"a label named by query":    {"?label-from.user=X-Forwarded-Uri", []string{"X-Forwarded-Uri: /v1/chat?x=1", "X-Forwarded-Method: POST"}, "user", "r=2"},
		"a label from a long value": {"?label-from.user=X-User", []string{"X-User: " + strings.Repeat("x", 5000)}, "user", "r=2"},
		"headers are ignored":       {"?headers=ignore", []string{"X-Budget-Label-User: 7", "X-Budget-Nonsense: 7"}, "default", "r=9"},
		"account":                   {"?account=demo", []string{"X-Budget-Account: other"}, "default", "r=9"},
		"a quota":                   {"?amount.pages=60&amount.tokens=0", nil, "pages", "r=40"},
	} {
		t.Run(name, func(t *testing.T) {
			status, header, text := ask(t, start(t), "GET", test.query, append(test.headers, key)...)
			if got := header.Get("RateLimit"); status != http.StatusOK || !strings.HasPrefix(got, `"`+test.limit+`";`+test.left) {
				t.Errorf("%d %s %q, want %s %s", status, got, text, test.limit, test.left)
			}
		})
	}
}

// What is wrong is told by field, is no refusal, and counts nothing.
func TestForwardAuthRefusesBadInput(t *testing.T) {
	url := start(t)
	for name, test := range map[string]struct {
		query   string
		headers []string
		status  int
		says    string
	}{
		"no key":               {"", nil, 401, "no API key"},
		"another key":          {"", []string{"X-Budget-Key: bk_x"}, 401, "not valid"},
		"two keys":             {"", []string{key, key}, 401, "not valid"},
		"a key of the client":  {"", []string{"Authorization: Bearer demo", "X-Budget-Key: bk_x"}, 401, "not valid"},
		"another's account":    {"?account=other", []string{key}, 404, "unknown"},
		"unknown in query":     {"?accuont=demo", []string{key}, 400, `\"accuont\" is unknown`},
		"twice in query":       {"?label.a=1&label.a=2", []string{key}, 400, "is stated 2 times"},
		"two ways":             {"?label.a=1&label-from.a=X", []string{key}, 400, "stated in two ways"},
		"broken query":         {"?label.a=%zz", []string{key}, 400, "query: can't be read"},
		"long query":           {"?label.a=" + strings.Repeat("x", 9000), []string{key}, 400, "at most 8192"},
		"unknown header":       {"", []string{key, "X-Budget-Lable-A: 1"}, 400, "X-Budget-Lable-A: is unknown"},
		"twice in headers":     {"", []string{key, "X-Budget-Label-A: 1", "X-Budget-Label-A: 2"}, 400, "X-Budget-Label-A: is stated 2 times"},
		"negative amount":      {"?amount.tokens=-1", []string{key}, 400, "amount.tokens"},
		"too large an amount":  {"?amount.tokens=9007199254740992", []string{key}, 400, "0 to 9007199254740991"},
		"a slot":               {"?amount.in_flight=1", []string{key}, 400, "slots are given back"},
		"a label that is none": {"?label.User=1", []string{key}, 400, "labels[User]"},
		"another status":       {"?refused=500", []string{key}, 400, "403 or 429"},
	} {
		t.Run(name, func(t *testing.T) {
			status, header, text := ask(t, url, "GET", test.query, test.headers...)
			if status != test.status || !strings.Contains(text, test.says) || header.Get("Retry-After")+header.Get("RateLimit") != "" {
				t.Errorf("%d %s %v, want %d %s", status, text, header, test.status, test.says)
			}
		})
	}
	if _, header, _ := ask(t, url, "GET", "", key); !strings.HasPrefix(header.Get("RateLimit"), `"default";r=9`) {
		t.Errorf("something was counted: %v", header)
	}
}

// No credential becomes a label: a header that carries one is refused by its name,
// and of what looks like one, or has one in its query, the label says a hash, or
// nothing.
func TestForwardAuthKeepsCredentialsOut(t *testing.T) {
	url := start(t)
	for _, header := range []string{
		"Authorization", "cookie", "X-Budget-Key", "X-Api-Key", "Proxy-Authorization", "x-goog-api-key", "api-key",
		"X-Forwarded-Access-Token", "X-Auth-Request-Access-Token", "X-Amz-Security-Token", "x_api_key",
	} {
		sent := []string{key}
		if header != "X-Budget-Key" {
			sent = append(sent, header+": s3cr3t-s3cr3t")
		}
		status, _, text := ask(t, url, "GET", "?label-from.user="+header, sent...)
		if status != http.StatusBadRequest || !strings.Contains(text, "label-from.user") || !strings.Contains(text, "carries a credential") || strings.Contains(text, "s3cr3t") {
			t.Errorf("%s: %d %s", header, status, text)
		}
	}
	for _, asked := range [][]string{
		{"?label-from.user=X-Client", "X-Client: Bearer s3cr3t"},
		{"?label-from.path=X-Forwarded-Uri", "X-Forwarded-Uri: /v1beta/models/x:generateContent?key=s3cr3t"},
		{"", "X-Budget-Label-User: sk-s3cr3t"},
		{"", "X-Budget-Label-X-Api-Key: s3cr3t"},
		{"?label.user=bk_s3cr3t"},
	} {
		if status, _, text := ask(t, url, "GET", asked[0], append(asked[1:], key)...); status != http.StatusOK {
			t.Errorf("%v: %d %s", asked, status, text)
		}
	}
	const grouped = `{"account":"demo","from":"2026-03-09T00:00:00Z","to":"2026-03-12T00:00:00Z","grain":"USAGE_GRAIN_TOTAL","meters":["requests"],"groupBy":["user","path","x-api-key"]}`
	request, err := http.NewRequest(http.MethodPost, url+"/budget.v1.BudgetService/ListUsage", strings.NewReader(grouped))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	request.Header.Set("Authorization", "Bearer demo")
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(body); response.StatusCode != http.StatusOK || strings.Contains(text, "s3cr3t") || strings.Count(text, "sha256:") < 4 || !strings.Contains(text, `/v1beta/models/x:generateContent"`) {
		t.Errorf("the ledger has %d %s", response.StatusCode, text)
	}
}
