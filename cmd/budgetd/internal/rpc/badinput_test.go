package rpc_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Every fault is answered with the field, the fault and the bound, and changes
// nothing.
func TestBadInput(t *testing.T) {
	s := start(t, setup{})
	held := s.ok(t, "demo", "Reserve", `{"amounts":{"tokens":1000},"labels":{"route":"slow"},"lease":"3600s"}`).text("reservationId")
	usage := func(usage string) string { return fmt.Sprintf(`{"reservationId":%q,"usage":%s}`, held, usage) }
	llm := func(llm string) string { return `{"llm":` + llm + `}` }
	long := strings.Repeat("x", 257)

	for _, test := range []struct {
		name, method, body string
		field              string
		says               string // in problem or bound
	}{
		{"negative", "Reserve", `{"amounts":{"tokens":-5}}`, "amounts[tokens]", "-5 is not between"},
		{"zero", "Reserve", `{"amounts":{"tokens":0}}`, "amounts[tokens]", "zero asks for nothing"},
		{"NaN", "Reserve", `{"amounts":{"tokens":NaN}}`, "amounts[tokens]", "NaN is not a JSON value"},
		{"NaN as text", "Reserve", `{"amounts":{"tokens":"NaN"}}`, "amounts[tokens]", "NaN is not a whole number"},
		{"infinity", "Reserve", `{"labels":{"route":"chat"},"amounts":{"requests":1,"tokens":-Infinity}}`, "amounts[tokens]", "-Infinity is not a JSON value"},
		{"2^63", "Reserve", `{"amounts":{"tokens":9223372036854775808}}`, "amounts[tokens]", "9223372036854775808 is not a whole number in range"},
		{"2^63 as text", "Reserve", `{"amounts":{"tokens":"9223372036854775808"}}`, "amounts[tokens]", "0 to 9007199254740991"},
		{"2^63-1", "Reserve", `{"amounts":{"tokens":"9223372036854775807"}}`, "amounts[tokens]", "9223372036854775807 is not between 0 and 9007199254740991"},
		{"2^53", "Reserve", `{"amounts":{"tokens":9007199254740992}}`, "amounts[tokens]", "9007199254740992 is not between 0 and 9007199254740991"},
		{"a fraction", "Reserve", `{"amounts":{"tokens":1.5}}`, "amounts[tokens]", "1.5 is not a whole number"},
		{"an object for a number", "Reserve", `{"amounts":{"tokens":{"n":1}}}`, "amounts[tokens]", "not a whole number"},
		{"a number for amounts", "Reserve", `{"amounts":4000}`, "amounts", "not a JSON object"},
		{"a meter that is none", "Reserve", `{"amounts":{"Tokens":1}}`, "amounts[Tokens]", "not a meter"},
		{"two slots", "Reserve", `{"amounts":{"in_flight":2}}`, "amounts[in_flight]", "1 slot"},
		{"too many meters", "Reserve", `{"amounts":{` + many(33, `"m%d":1`) + `}}`, "amounts", "at most 32"},
		{"unknown field", "Reserve", `{"ammounts":{"tokens":1}}`, "ammounts", "is not a field"},
		{"unknown field, other spelling", "Reserve", `{"Idempotency_Key":"k"}`, "Idempotency_Key", "did you mean idempotencyKey?"},
		{"unknown field inside", "Reserve", llm(`{"model":"gpt-4o","promt":"Hello"}`), "llm.promt", "is not a field"},
		{"unknown field in a list", "Reserve", llm(`{"model":"gpt-4o","messages":[{"role":"user"},{"role":"user","text":"x"}]}`), "llm.messages[1].text", "is not a field"},
		{"a field twice", "Reserve", `{"account":"demo","account":"other"}`, "account", "twice"},
		{"a label twice", "Reserve", `{"labels":{"user":"a","user":"b"}}`, "labels[user]", "twice"},
		{"not JSON", "Reserve", `{"amounts":{"tokens":4000}`, "", "not JSON"},
		{"text after it", "Reserve", `{"amounts":{"tokens":1}} x`, "", "not JSON"},
		{"nothing", "Reserve", ``, "", "empty"},
		{"a list", "Reserve", `[]`, "", "not a JSON object"},
		{"nested too deep", "Reserve", llm(`{"model":"m","providerRequest":{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`), "llm.providerRequest.a[0][0][0]", "nested too deep"},
		{"label with a capital", "Reserve", `{"labels":{"User":"a"}}`, "labels[User]", "[a-z]"},
		{"label named account", "Reserve", `{"labels":{"account":"a"}}`, "labels[account]", "own field"},
		{"long label", "Reserve", `{"labels":{"user":"` + long + `"}}`, "labels[user]", "at most 256"},
		{"7 MB label", "Reserve", `{"labels":{"user":"` + strings.Repeat("x", 7<<20) + `"}}`, "labels[user]", "7340032 bytes, at most 256"},
		{"too many labels", "Reserve", `{"labels":{` + many(33, `"l%d":"x"`) + `}}`, "labels", "at most 32"},
		{"lease of 0", "Reserve", `{"amounts":{"tokens":1},"lease":"0s"}`, "lease", "not between 1ms and 24h"},
		{"lease of 10 years", "Reserve", `{"amounts":{"tokens":1},"lease":"315360000s"}`, "lease", "not between 1ms and 24h"},
		{"negative lease", "Reserve", `{"amounts":{"tokens":1},"lease":"-1s"}`, "lease", "not between 1ms and 24h"},
		{"lease in minutes", "Reserve", `{"amounts":{"tokens":1},"lease":"1m"}`, "lease", `such as "60s"`},
		{"lease as a number", "Reserve", `{"amounts":{"tokens":1},"lease":60}`, "lease", `such as "60s"`},
		{"long key", "Reserve", `{"amounts":{"tokens":1},"idempotencyKey":"` + long + `"}`, "idempotencyKey", "at most 256"},
		{"key with a line break", "Reserve", `{"amounts":{"tokens":1},"idempotencyKey":"a\nb"}`, "idempotencyKey", "printable ASCII"},
		{"account that is none", "Reserve", `{"account":"../etc"}`, "account", "1 to 128"},
		{"a call without input", "Reserve", llm(`{"model":"gpt-4o"}`), "llm", "does not state the input"},
		{"a call with two inputs", "Reserve", llm(`{"model":"gpt-4o","prompt":"a","inputTokens":3}`), "llm", "more than one way"},
		{"no model", "Reserve", llm(`{"prompt":"a"}`), "llm.model", "required"},
		{"unknown model", "Reserve", llm(`{"model":"no-such-model-9","prompt":"a","maxOutputTokens":1}`), "llm.model", "no price is known"},
		{"negative output", "Reserve", llm(`{"model":"gpt-4o","prompt":"a","maxOutputTokens":-1}`), "llm.maxOutputTokens", "not between 0"},
		{"too many choices", "Reserve", llm(`{"model":"gpt-4o","prompt":"a","maxOutputTokens":1,"n":129}`), "llm.n", "1 to 128"},
		{"no choices", "Reserve", llm(`{"model":"gpt-4o","prompt":"a","maxOutputTokens":1,"n":0}`), "llm.n", "1 to 128"},
		{"message without role", "Reserve", llm(`{"model":"gpt-4o","messages":[{"content":"a"}],"maxOutputTokens":1}`), "llm.messages[0].role", "1 to 64"},
		{"provider request without provider", "Reserve", llm(`{"providerRequest":{"model":"gpt-4o","messages":[]}}`), "llm.provider", "missing"},
		{"provider request with a fault", "Reserve", llm(`{"provider":"openai","providerRequest":{"model":"gpt-4o","max_tokens":-4,"messages":[{"role":"user","content":"a"}]}}`), "llm.providerRequest.max_tokens", "between 0 and 9007199254740991"},
		{"models that disagree", "Reserve", llm(`{"provider":"openai","model":"gpt-4o-mini","providerRequest":{"model":"gpt-4o","max_tokens":4,"messages":[]}}`), "llm.model", "is not the provider request's model"},

		{"empty id", "Refund", `{"usage":{"amounts":{"tokens":1}}}`, "reservationId", "is empty"},
		{"no usage", "Refund", fmt.Sprintf(`{"reservationId":%q}`, held), "usage", "is missing"},
		{"usage and unused", "Refund", fmt.Sprintf(`{"reservationId":%q,"unused":true,"usage":{"amounts":{"tokens":1}}}`, held), "unused", "beside a usage"},
		{"empty usage", "Refund", usage(`{}`), "usage", "states nothing"},
		{"negative usage", "Refund", usage(`{"amounts":{"tokens":-1}}`), "usage.amounts[tokens]", "-1 is not between"},
		{"usage of a slot", "Refund", usage(`{"amounts":{"in_flight":1}}`), "usage.amounts[in_flight]", "freed by the Refund"},
		{"negative class", "Refund", usage(`{"tokens":{"cacheRead":-3}}`), "usage.tokens.cacheRead", "-3 is not between"},
		{"the class with another name", "Refund", usage(`{"tokens":{"cacheWriteHour":-3}}`), "usage.tokens.cacheWriteHour", "-3 is not between"},
		{"classes that sum too high", "Refund", usage(`{"tokens":{"input":9007199254740991,"output":9007199254740991}}`), "usage.tokens", "more than 9007199254740991"},
		{"usage object without provider", "Refund", usage(`{"providerUsage":{"prompt_tokens":3}}`), "usage.provider", "missing"},
		{"provider without usage object", "Refund", usage(`{"amounts":{"tokens":1},"provider":"openai"}`), "usage.provider", "without providerUsage"},
		{"usage object with a fault", "Refund", usage(`{"provider":"openai","providerUsage":{"prompt_tokens":-3,"completion_tokens":1}}`), "usage.providerUsage.prompt_tokens", "between 0 and 9007199254740991"},
		{"usage object of nothing", "Refund", usage(`{"provider":"openai","providerUsage":{"x":1}}`), "usage.providerUsage", "none of the token counts"},
		{"two usages", "Refund", usage(`{"tokens":{"input":1},"provider":"openai","providerUsage":{"prompt_tokens":3,"completion_tokens":1}}`), "usage", "one of them"},

		{"seen text alone", "Refund", usage(`{"seenText":"Once upon"}`), "usage.seenText", "names no model"},

		{"renew to 0", "Renew", fmt.Sprintf(`{"reservationId":%q,"lease":"0s"}`, held), "lease", "not between 1ms and 24h"},
		{"renew nothing", "Renew", `{"lease":"10s"}`, "reservationId", "is empty"},
		{"renew having used less than nothing", "Renew", fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"tokens":-1}}}`, held), "usage.amounts[tokens]", "-1 is not between 0 and"},
		{"renew having used a slot", "Renew", fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"in_flight":1}}}`, held), "usage.amounts[in_flight]", "slots are freed by the Refund itself"},
		{"renew with a provider alone", "Renew", fmt.Sprintf(`{"reservationId":%q,"usage":{"provider":"openai"}}`, held), "usage.provider", "without providerUsage"},
		{"charge nothing", "Charge", `{}`, "amounts", "nothing is charged"},
		{"charge a negative", "Charge", `{"amounts":{"tokens":-1}}`, "amounts[tokens]", "-1 is not between"},
		{"charge tokens of no model", "Charge", llm(`{"tokens":{"input":1}}`), "llm.model", "missing"},
		{"charge a call without tokens", "Charge", llm(`{"model":"gpt-4o"}`), "llm", "twice or not at all"},
		{"charge a negative class", "Charge", llm(`{"model":"gpt-4o","tokens":{"reasoning":-1}}`), "llm.tokens.reasoning", "-1 is not between"},
		{"charge an unknown model", "Charge", llm(`{"model":"no-such-model-9","tokens":{"input":1}}`), "llm.model", "no price is known"},
		{"charge a bad usage object", "Charge", llm(`{"model":"gpt-4o","provider":"openai","providerUsage":{"prompt_tokens":1.5,"completion_tokens":1}}`), "llm.providerUsage.prompt_tokens", "whole number"},
		{"estimate nothing", "Estimate", `{}`, "llm", "missing"},
		{"estimate with a bad label", "Estimate", `{"labels":{"X":""},"llm":{"model":"gpt-4o","prompt":"a"}}`, "labels[X]", "[a-z]"},
		{"quota with a bad label", "GetQuota", `{"labels":{"X":""}}`, "labels[X]", "[a-z]"},
		{"a reservation without an id", "GetReservation", `{}`, "reservationId", "is empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := s.ok(t, "demo", "GetQuota", `{"labels":{"route":"slow"}}`).body
			a := s.post(t, "demo", test.method, test.body)
			if a.status != http.StatusBadRequest || a.text("code") != "invalid_argument" {
				t.Fatalf("%d %.400s", a.status, a.body)
			}
			fields := a.fields(t)
			if len(fields) != 1 {
				t.Fatalf("%d fields are named: %.400s", len(fields), a.body)
			}
			said := fields[0].Problem + "; " + fields[0].Bound
			if fields[0].Field != test.field || !strings.Contains(said, test.says) {
				t.Errorf("names %q: %s\n want %q: ...%s...", fields[0].Field, said, test.field, test.says)
			}
			if !strings.Contains(a.text("message"), fields[0].Problem) || !strings.HasPrefix(a.text("message"), test.field) {
				t.Errorf("the message does not say the same: %s", a.text("message"))
			}
			if len(a.body) > 4000 {
				t.Errorf("the answer has %d bytes", len(a.body))
			}
			for header := range a.header {
				if strings.HasPrefix(header, "Ratelimit") || header == "Retry-After" || header == "Budget-Limited-By" {
					t.Errorf("has the header %s", header)
				}
			}
			if after := s.ok(t, "demo", "GetQuota", `{"labels":{"route":"slow"}}`).body; after != before {
				t.Errorf("something changed:\n%s\n%s", before, after)
			}
		})
	}
	// The held reservation can still be closed: nothing closed it.
	s.ok(t, "demo", "Refund", usage(`{"amounts":{"tokens":10}}`))
}

func many(n int, format string) string {
	var parts []string
	for i := range n {
		parts = append(parts, fmt.Sprintf(format, i))
	}
	return strings.Join(parts, ",")
}

// A request over the bound is refused as what it is, however it comes.
func TestRequestTooLarge(t *testing.T) {
	s := start(t, setup{})
	body := `{"labels":{"user":"` + strings.Repeat("x", 10<<20) + `"}}`
	for name, send := range map[string]func(*http.Request){
		"length stated": func(*http.Request) {},
		"chunked":       func(r *http.Request) { r.ContentLength = -1 },
		"compressed": func(r *http.Request) {
			setBody(r, gzipped(t, body))
			r.Header.Set("Content-Encoding", "gzip")
		},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequest(http.MethodPost, s.url+"/budget.v1.BudgetService/Reserve", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Authorization", "Bearer "+s.keys["demo"])
			send(request)
			response, err := s.http.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var answer struct{ Code, Message string }
			if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != http.StatusBadRequest || answer.Code != "invalid_argument" || !strings.Contains(answer.Message, "at most 8388608 bytes") {
				t.Errorf("%d %+v", response.StatusCode, answer)
			}
		})
	}
}
