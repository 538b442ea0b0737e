package transport

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/estimator/answer"
)

func TestSetField(t *testing.T) {
	for _, example := range []struct{ object, field, value, want string }{
		{`{}`, "a", "1", `{"a":1}`},
		{` { "b" : 2 } `, "a", "1", ` {"a":1, "b" : 2 } `},
		{`{"a": 7 , "b":[1,{"a":3}]}`, "a", "1", `{"a": 1 , "b":[1,{"a":3}]}`},
		{`{"a":5,"b":0.10,"a":6}`, "a", "1", `{"a":5,"b":0.10,"a":1}`},
		{`{"o":{"x":1}}`, "o.a", "true", `{"o":{"a":true,"x":1}}`},
		{`{"o":null,"p":1}`, "o.a", "true", `{"o":{"a":true},"p":1}`},
		{`{"p":1}`, "o.a", "true", `{"o":{"a":true},"p":1}`},
		{`{"o":{"a":false}}`, "o.a", "true", `{"o":{"a":true}}`},
		{`{"o":7}`, "o.a", "true", ``},
		{`[1]`, "a", "1", ``},
		{`{"n":12345678901234567890.5}`, "a", "1", `{"a":1,"n":12345678901234567890.5}`},
	} {
		if got := setField([]byte(example.object), example.field, example.value); string(got) != example.want {
			t.Errorf("%s in %s: %s", example.field, example.object, got)
		}
	}
}

// atMap finds the value under names with dots between them.
func atMap(object map[string]any, field string) any {
	name, rest, nested := strings.Cut(field, ".")
	if !nested {
		return object[name]
	}
	inner, _ := object[name].(map[string]any)
	return atMap(inner, rest)
}

// FuzzSetField: what is set is there, and everything else is as it was.
func FuzzSetField(f *testing.F) {
	f.Add(`{"a":{"b":1},"c":"x"}`, "a.b")
	f.Add(` { "x" : [ ] } `, "stream_options.include_usage")
	f.Fuzz(func(t *testing.T, object, field string) {
		var before map[string]any
		if json.Unmarshal([]byte(object), &before) != nil || before == nil || strings.ContainsRune(field, '\ufffd') || strings.Count(field, ".") > 1 {
			return
		}
		changed := setField([]byte(object), field, "42")
		if changed == nil {
			return
		}
		var after map[string]any
		if err := json.Unmarshal(changed, &after); err != nil {
			t.Fatalf("%s became %s", object, changed)
		}
		if json.Valid([]byte(`"`+field+`"`)) && atMap(after, field) != float64(42) {
			t.Fatalf("%s of %s is not set: %s", field, object, changed)
		}
		name, _, _ := strings.Cut(field, ".")
		delete(before, name)
		delete(after, name)
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%s became %s", object, changed)
		}
	})
}

// split returns the events of a stream that comes in pieces of a size.
func split(stream []byte, size int) (all []string) {
	var e events
	for len(stream) > 0 {
		piece := stream[:min(size, len(stream))]
		stream = stream[len(piece):]
		for len(piece) > 0 {
			n, data, ended := e.next(piece)
			piece = piece[n:]
			if ended && data != nil {
				all = append(all, string(data))
			}
		}
	}
	return all
}

func TestEvents(t *testing.T) {
	for stream, want := range map[string][]string{
		"data: a\n\n":                              {"a"},
		"data:a\ndata: b\n\ndata:  c\n\n":          {"a\nb", " c"},
		"\ufeffdata: a\r\n\r\ndata: b\r\rdata:c\n": {"a", "b"},
		": ping\n\nevent: x\nid: 1\n\n":            nil,
		"data\n\ndata:\n\n":                        nil,
		"datum: x\ndata: y\n\n":                    {"y"},
	} {
		for size := 1; size < 8; size++ {
			got := split([]byte(stream), size)
			kept := got[:0:0]
			for _, data := range got {
				if data != "" {
					kept = append(kept, data)
				}
			}
			if !reflect.DeepEqual(kept, want) {
				t.Errorf("%q by %d: %q", stream, size, got)
			}
		}
	}
	// An event over the bound is given up, and the stream goes on.
	long := "data: " + strings.Repeat("x", answer.MaxEventBytes) + "\ndata: y\n\ndata: z\n\n"
	if got := split([]byte(long), 1<<20); !reflect.DeepEqual(got, []string{"z"}) {
		t.Errorf("%d events after one that is too long", len(got))
	}
}

// FuzzStreamReaders: bytes that come in other pieces are the same events.
func FuzzStreamReaders(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[],\"usage\":{}}\r\n\r\ndata: x\r\r: c\n\n"), 3)
	f.Add([]byte("data: {\"choices\":[],\"usage\":{\"a\":1}}\n\n\ndata: {\"choices\":[],\"usage\":{}}"), 1)
	f.Add([]byte{0, 0, 0, 16, 0, 0, 0, 0, 5, 194, 72, 235, 125, 152, 200, 255}, 5)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		if size < 1 || size > 1<<10 {
			return
		}
		if whole, cut := split(stream, len(stream)+1), split(stream, size); !reflect.DeepEqual(whole, cut) {
			t.Fatalf("%q by %d: %q, whole %q", stream, size, cut, whole)
		}
		aws := followerOf(answer.Bedrock, &http.Response{Header: http.Header{"Content-Type": {"application/vnd.amazon.eventstream"}}})
		for rest := stream; len(rest) > 0; {
			piece := rest[:min(size, len(rest))]
			aws.see(piece)
			rest = rest[len(piece):]
		}
		aws.answer()
	})
}

func TestEndpoints(t *testing.T) {
	tr := New(nil, WithEndpoints(Endpoint{Host: "models.example", Path: "/ask/{model}", Provider: "vllm"}))
	for _, example := range []struct{ method, url, provider, model string }{
		{"POST", "https://api.openai.com/v1/chat/completions", "openai", ""},
		{"POST", "https://api.openai.com:443/v1/chat/completions?x=1", "openai", ""},
		{"POST", "http://gateway/openai/v1/responses", "openai", ""},
		{"GET", "https://api.openai.com/v1/chat/completions", "", ""},
		{"POST", "https://api.openai.com/v1/chat/completions/more", "", ""},
		{"POST", "https://api.openai.com/v1/chat/completions/", "openai", ""},
		{"POST", "https://api.openai.com//v1//chat///completions//", "openai", ""},
		{"POST", "https://api.openai.com/V1/Chat/Completions", "openai", ""},
		{"POST", "https://X.openai.azure.com/OpenAI/Deployments/My-GPT/chat/completions/?api-version=1", "azure", "My-GPT"},
		{"POST", "https://generativelanguage.googleapis.com/v1beta//models/Gemini-X:GenerateContent/", "gemini", "Gemini-X"},
		{"POST", "https://api.anthropic.com/v1/MESSAGES/", "anthropic", ""},
		{"POST", "https://Bedrock-Runtime.eu-west-1.amazonaws.com/model//x/Converse/", "bedrock", "x"},
		{"POST", "https://api.openai.com/", "", ""},
		{"POST", "https://api.openai.com/v1/nochat/completions", "", ""},
		{"POST", "https://api.openai.com/v1/audio/transcriptions", "", ""},
		{"POST", "https://API.groq.com/openai/v1/chat/completions", "groq", ""},
		{"POST", "https://x.openai.azure.com/openai/deployments/my%2Fgpt/chat/completions?api-version=1", "azure", "my/gpt"},
		{"POST", "https://api.anthropic.com/v1/messages", "anthropic", ""},
		{"POST", "https://api.anthropic.com/v1/messages/count_tokens", "", ""},
		{"POST", "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", "gemini", "gemini-2.5-flash"},
		{"POST", "https://generativelanguage.googleapis.com/v1beta/models/:generateContent", "", ""},
		{"POST", "https://bedrock-runtime.us-east-1.amazonaws.com/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream", "bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"},
		{"POST", "https://bedrock-runtime.us-east-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3A%3A1%2Fx/converse", "bedrock", "arn:aws:bedrock::1/x"},
		{"POST", "https://elsewhere/model/x/converse", "", ""},
		{"POST", "https://models.example/ask/seven", "vllm", "seven"},
	} {
		request, err := http.NewRequest(example.method, example.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		endpoint, model := tr.recognise(request)
		provider := ""
		if endpoint != nil {
			provider = endpoint.Provider
		}
		if provider != example.provider || model != example.model {
			t.Errorf("%s %s: %q, %q", example.method, example.url, provider, model)
		}
	}
	for _, example := range []struct{ method, url, want string }{
		{"POST", "https://api.openai.com/v1/audio/speech?key=secret", "POST /v1/audio/speech is not one of the calls that are budgeted"},
		{"GET", "https://api.openai.com/v1/chat/completions/", "GET /v1/chat/completions/ is not budgeted: only POST is"},
		{"", "https://api.openai.com/v1/messages", "GET /v1/messages is not budgeted: only POST is"},
		{"POST", "https://elsewhere:8080/model/x/converse", "POST /model/x/converse is not budgeted at elsewhere: only at bedrock-runtime*"},
		{"POST", "https://x/" + strings.Repeat("é", 500), "POST /" + strings.Repeat("é", 99) + "… is not one of the calls that are budgeted"},
	} {
		request, err := http.NewRequest(example.method, example.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Method = example.method
		if got := tr.unrecognised(request).Error(); got != example.want {
			t.Errorf("%q, want %q", got, example.want)
		}
	}
	for _, endpoint := range Endpoints() {
		if _, ok := answer.LayoutOf(endpoint.Provider); !ok {
			t.Errorf("%s has no layout", endpoint.Provider)
		}
	}
}

func TestProviderLimits(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for ms, want := range map[string]time.Duration{"12.5": 12500 * time.Microsecond, "9999999999999999": time.Hour, "-1": 0} {
		got, ok := limitOf(&http.Response{StatusCode: 200, Header: http.Header{"Retry-After-Ms": {ms}}}, now)
		if got.RetryAfter != want || ok != (want > 0) {
			t.Errorf("%s ms: %+v, %v", ms, got, ok)
		}
	}
	h := http.Header{}
	h.Set("anthropic-ratelimit-input-tokens-limit", "50")
	h.Set("anthropic-ratelimit-input-tokens-remaining", "0")
	h.Set("anthropic-ratelimit-input-tokens-reset", "2026-12-01T12:01:00Z")
	got, ok := limitOf(&http.Response{StatusCode: 200, Header: h}, now)
	if want := (ProviderLimit{Levels: []ProviderLevel{{"input-tokens", 50, 0, time.Minute}}}); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := limitOf(&http.Response{StatusCode: 200, Header: http.Header{}}, now); ok {
		t.Error("an answer without limits has some")
	}
	// What is remembered is bounded, and what is over makes room.
	var h2 heldBack
	for i := range 2 * maxHeldBack {
		h2.hold(heldKey{credential: uint64(i)}, now, now.Add(time.Second))
	}
	if len(h2.until) != maxHeldBack || h2.wait(heldKey{credential: 1}, now) != time.Second {
		t.Errorf("%d are remembered", len(h2.until))
	}
	h2.hold(heldKey{host: "x"}, now.Add(time.Minute), now.Add(2*time.Minute))
	if len(h2.until) != 1 {
		t.Errorf("%d are remembered after they are over", len(h2.until))
	}
}

// TestFaults: every fault is JSON in every layout, with a status that is an error.
func TestFaults(t *testing.T) {
	for kind := range numberOfFaults {
		for _, layout := range []answer.Layout{answer.OpenAI, answer.Anthropic, answer.Gemini, answer.Bedrock} {
			f := Fault{Kind: kind, Message: "no \"more\"", RetryAfter: 1500 * time.Millisecond}
			response := f.Answer(nil, layout)
			var text bytes.Buffer
			if _, err := text.ReadFrom(response.Body); err != nil || !json.Valid(text.Bytes()) || !strings.Contains(text.String(), `no \"more\"`) || int64(text.Len()) != response.ContentLength {
				t.Errorf("%d in %s: %s", kind, layout, text.String())
			}
			retried := response.Header.Get("X-Should-Retry") == "true"
			if response.StatusCode < 400 || retried != (response.Header.Get("Retry-After") == "2") {
				t.Errorf("%d in %s: %s %v", kind, layout, response.Status, response.Header)
			}
		}
	}
}

// BenchmarkEvents is the cost of reading along with a stream, a chunk.
func BenchmarkEvents(b *testing.B) {
	chunk := []byte(`data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o","service_tier":"default","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")
	f := &sseFollower{streamFollower: streamFollower{stream: answer.NewStream(answer.OpenAI)}}
	b.ReportAllocs()
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		f.see(chunk)
	}
}
