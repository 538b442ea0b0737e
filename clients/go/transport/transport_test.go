package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/budgetd/budgetd/clients/go/transport"
)

const (
	chatPath = "/v1/chat/completions"
	chatAsk  = `{"messages":[{"role":"user","content":"Hello there"}],  "model":"gpt-4o-mini","max_tokens":100}`
	chatFlow = `{"messages":[{"role":"user","content":"Hello there"}],  "model":"gpt-4o-mini","max_tokens":100,"stream":true}`
)

// TestPlainAnswers: each layout is charged by its usage, and neither the request nor
// the answer is changed by a byte.
func TestPlainAnswers(t *testing.T) {
	r := newRig(t, nil, bedrockHere)
	for _, example := range []struct {
		name, path, ask, answer string
		input, output           int64
	}{
		{"chat", chatPath, chatAsk, `{"id":"x","choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":4}}}`, 19, 10},
		{"azure", "/openai/deployments/gpt-4o-mini/chat/completions?api-version=2024-10-21", `{"messages":[{"role":"user","content":"Hello"}],"max_tokens":100}`, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`, 9, 2},
		{"converse", "/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse", `{"messages":[{"role":"user","content":[{"text":"Hello"}]}],"inferenceConfig":{"maxTokens":100}}`, `{"output":{},"usage":{"inputTokens":12,"outputTokens":13,"totalTokens":25}}`, 12, 13},
		{"responses", "/v1/responses", `{"model":"gpt-4o-mini","input":"Hello","max_output_tokens":50}`, `{"id":"resp","usage":{"input_tokens":36,"output_tokens":87,"total_tokens":123,"output_tokens_details":{"reasoning_tokens":20}}}`, 36, 87},
		{"embeddings", "/v1/embeddings", `{"model":"text-embedding-3-small","input":"Hello"}`, `{"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}`, 8, 0},
		{"completions", "/v1/completions", `{"model":"gpt-3.5-turbo-instruct","prompt":"Hello","max_tokens":50}`, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}`, 5, 7},
		{"messages", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{"role":"user","content":"Hello"}]}`, `{"type":"message","content":[],"usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":2,"output_tokens":30,"service_tier":"standard"}}`, 17, 30},
		{"gemini", "/v1beta/models/gemini-2.5-flash:generateContent", `{"contents":[{"role":"user","parts":[{"text":"Hello"}]}],"generationConfig":{"maxOutputTokens":200}}`, `{"candidates":[],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":9,"thoughtsTokenCount":20,"totalTokenCount":33}}`, 4, 29},
	} {
		t.Run(example.name, func(t *testing.T) {
			r.t = t
			var sent string
			r.serve(func(w http.ResponseWriter, request *http.Request) {
				body, _ := io.ReadAll(request.Body)
				sent = string(body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, example.answer)
			})
			response, text := r.call(example.path, example.ask)
			if text != example.answer || sent != example.ask {
				t.Errorf("sent %s, answered %s", sent, text)
			}
			if response.Header.Get("X-Budget-Reservation") == "" {
				t.Error("the reservation is not named")
			}
			r.charged(example.input, example.output)
		})
	}
}

// awsStream is a converse-stream of Bedrock.
func awsStream(t testing.TB, events ...[2]string) (frames []string) {
	t.Helper()
	for _, event := range events {
		var message eventstream.Message
		message.Headers.Set(":message-type", eventstream.StringValue("event"))
		message.Headers.Set(":event-type", eventstream.StringValue(event[0]))
		message.Headers.Set(":content-type", eventstream.StringValue("application/json"))
		message.Payload = []byte(event[1])
		var frame bytes.Buffer
		if err := eventstream.NewEncoder().Encode(&frame, message); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame.String())
	}
	return frames
}

// flow is one streamed answer.
type flow struct {
	name, path, ask, kind string
	sent                  []string
	hidden                int // index of the piece that is taken out; 0: none
	input, output         int64
}

func flows(t testing.TB) []flow {
	return []flow{
		{"chat", chatPath, chatFlow, sse, []string{chunk("Hel"), chunk("lo"), finishChunk, usageChunk, doneChunk}, 3, 19, 10},
		{"chat with CR LF", chatPath, chatFlow, sse, []string{": hello\r\n\r\n", strings.ReplaceAll(chunk("Hi"), "\n", "\r\n"), strings.ReplaceAll(usageChunk, "\n", "\r\n"), strings.ReplaceAll(doneChunk, "\n", "\r\n")}, 2, 19, 10},
		{"chat that asks itself", chatPath, strings.Replace(chatFlow, `"stream"`, `"stream_options":{"include_usage":true},"stream"`, 1), sse, []string{chunk("Hi"), finishChunk, usageChunk, doneChunk}, 0, 19, 10},
		{"chat that says no", chatPath, strings.Replace(chatFlow, `"stream"`, `"stream_options":{"include_usage":false},"stream"`, 1), sse, []string{chunk("Hi"), finishChunk, usageChunk, doneChunk}, 2, 19, 10},
		{"messages", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"Hello"}]}`, sse, []string{
			"event: message_start\n" + data(`{"type":"message_start","message":{"usage":{"input_tokens":25,"cache_read_input_tokens":5,"output_tokens":1}}}`),
			"event: ping\n" + data(`{"type":"ping"}`),
			"event: content_block_delta\n" + data(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`),
			"event: message_delta\n" + data(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`),
			"event: message_stop\n" + data(`{"type":"message_stop"}`),
		}, 0, 30, 15},
		{"gemini", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"Hello"}]}],"generationConfig":{"maxOutputTokens":200}}`, sse, []string{
			data(`{"candidates":[{"content":{"parts":[{"text":"Why"}]}}],"usageMetadata":{"promptTokenCount":8,"thoughtsTokenCount":3,"totalTokenCount":11}}`),
			data(`{"candidates":[{"content":{"parts":[{"text":"?"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":12,"thoughtsTokenCount":3,"totalTokenCount":23}}`),
		}, 0, 8, 15},
		{"gemini as a list", "/v1beta/models/gemini-2.5-flash:streamGenerateContent", `{"contents":[{"parts":[{"text":"Hello"}]}],"generationConfig":{"maxOutputTokens":200}}`, "application/json", []string{
			`[{"candidates":[{"content":{"parts":[{"text":"Why"}]}}],"usageMetadata":{"promptTokenCount":8,"totalTokenCount":11}}`, ",\r\n",
			`{"candidates":[{"content":{"parts":[{"text":"?"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":12,"totalTokenCount":20}}`, "]",
		}, 0, 8, 12},
		{"bedrock", "/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream", `{"messages":[{"role":"user","content":[{"text":"Hello"}]}],"inferenceConfig":{"maxTokens":100}}`, "application/vnd.amazon.eventstream", awsStream(t,
			[2]string{"messageStart", `{"role":"assistant"}`},
			[2]string{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"Hello"}}`},
			[2]string{"messageStop", `{"stopReason":"end_turn"}`},
			[2]string{"metadata", `{"usage":{"inputTokens":47,"outputTokens":20,"totalTokens":67}}`},
		), 0, 47, 20},
	}
}

// bedrockHere lets tests call Bedrock at any host.
var bedrockHere = transport.WithEndpoints(
	transport.Endpoint{Path: "/model/{model}/converse", Provider: "bedrock", Signed: true},
	transport.Endpoint{Path: "/model/{model}/converse-stream", Provider: "bedrock", Signed: true},
)

// TestStreams: what the caller gets is what the provider sent, but for the chunk
// that was not asked for, however the bytes are cut into reads and writes.
func TestStreams(t *testing.T) {
	r := newRig(t, nil, bedrockHere)
	for _, example := range flows(t) {
		for name, write := range map[string][]string{
			"event by event": example.sent,
			"byte by byte":   strings.Split(strings.Join(example.sent, ""), ""),
			"at once":        {strings.Join(example.sent, "")},
		} {
			t.Run(example.name+" "+name, func(t *testing.T) {
				r.t = t
				var asked string
				send := pieces(example.kind, write...)
				r.serve(func(w http.ResponseWriter, request *http.Request) {
					body, _ := io.ReadAll(request.Body)
					asked = string(body)
					send(w, request)
				})
				response, err := r.post(context.Background(), example.path, example.ask)
				if err != nil {
					t.Fatal(err)
				}
				var reader io.Reader = response.Body
				if name == "at once" {
					reader = iotest.OneByteReader(reader)
				}
				got, err := io.ReadAll(reader)
				response.Body.Close()
				want := slices.Clone(example.sent)
				if example.hidden > 0 {
					want = slices.Delete(want, example.hidden, example.hidden+1)
				}
				if err != nil || string(got) != strings.Join(want, "") {
					t.Errorf("got %q, %v", got, err)
				}
				if example.hidden == 0 && asked != example.ask {
					t.Errorf("the request became %s", asked)
				}
				if example.hidden > 0 && !strings.Contains(asked, `"include_usage":true`) {
					t.Errorf("the request does not ask for the usage: %s", asked)
				}
				r.charged(example.input, example.output)
			})
		}
	}
}

// TestStreamsAreNotDelayed: the caller has each event before the provider makes the
// next one.
func TestStreamsAreNotDelayed(t *testing.T) {
	r := newRig(t, nil)
	for _, path := range []string{chatPath, "/v1/responses"} {
		next := make(chan struct{})
		r.serve(func(w http.ResponseWriter, request *http.Request) {
			w.Header().Set("Content-Type", sse)
			for range 5 {
				_, _ = io.WriteString(w, chunk("x"))
				w.(http.Flusher).Flush()
				select {
				case <-next:
				case <-time.After(10 * time.Second):
					return
				}
			}
			_, _ = io.WriteString(w, usageChunk)
		})
		ask := chatFlow
		if path != chatPath {
			ask = `{"model":"gpt-4o-mini","input":"Hello","max_output_tokens":50,"stream":true}`
		}
		response, err := r.post(context.Background(), path, ask)
		if err != nil {
			t.Fatal(err)
		}
		event := make([]byte, len(chunk("x")))
		begun := time.Now()
		for i := range 5 {
			if _, err := io.ReadFull(response.Body, event); err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
			next <- struct{}{}
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%v for five events", took)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		r.take(1)
	}
}

// TestCutStreams: a stream that the provider cuts, the caller closes, or whose context
// ends, after each event: charged are the input, as far as it is known, and the
// text that was seen.
func TestCutStreams(t *testing.T) {
	r := newRig(t, nil)
	words := []string{"The quick", " brown fox", " jumps over", " the lazy dog"}
	r.serve(pieces("application/json", `{"choices":[]}`))
	_, _ = r.call(chatPath, chatAsk) // no usage: everything that was held
	held := r.take(1)[0].Charged
	expected := held["input_tokens"]
	if held["output_tokens"] != 100 {
		t.Errorf("an answer without a usage was charged %v", held)
	}
	for seen := range len(words) + 1 {
		var events []string
		for _, word := range words[:seen] {
			events = append(events, chunk(word))
		}
		output := count(t, strings.Join(words[:seen], ""))
		for _, way := range []string{"cut", "closed", "cancelled"} {
			release := make(chan struct{})
			r.serve(func(w http.ResponseWriter, request *http.Request) {
				pieces(sse, events...)(w, request)
				w.(http.Flusher).Flush()
				if way != "cut" {
					<-release
				}
				panic(http.ErrAbortHandler)
			})
			ctx, cancel := context.WithCancel(context.Background())
			response, err := r.post(ctx, chatPath, chatFlow)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(response.Body, make([]byte, len(strings.Join(events, "")))); err != nil {
				t.Fatal(err)
			}
			switch way {
			case "cut":
				if _, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("the cut reached the caller as %v", err)
				}
			case "closed":
				response.Body.Close()
			case "cancelled": // and nobody closes
				cancel()
			}
			r.charged(expected, output)
			close(release)
			response.Body.Close()
			cancel()
		}
	}
	// A cut within an event gives the caller its bytes.
	r.serve(cut(sse, chunk("Hi"), `data: {"choi`))
	response, err := r.post(context.Background(), chatPath, chatFlow)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(response.Body)
	if string(got) != chunk("Hi")+`data: {"choi` || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", got, err)
	}
	r.charged(expected, count(t, "Hi"))
	// Anthropic tells the input first.
	r.serve(cut(sse, data(`{"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}`),
		data(`{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hello, how are you today?"}}`)))
	response, err = r.post(context.Background(), "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"Hello"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(response.Body)
	if s := r.take(1)[0]; s.Charged["input_tokens"] != 25 || s.Charged["output_tokens"] < 5 || s.Charged["output_tokens"] > 12 {
		t.Errorf("charged %v", s.Charged)
	}
}

// TestEveryCut: a stream of any layout that is cut after any piece gives the caller
// every byte, ends its reservation, and is charged no more than the whole, or the
// text that was seen, and never less than the cut before it.
func TestEveryCut(t *testing.T) {
	r := newRig(t, nil, bedrockHere)
	for _, example := range flows(t) {
		var before int64
		for n := range len(example.sent) {
			r.serve(cut(example.kind, example.sent[:n]...))
			response, err := r.post(context.Background(), example.path, example.ask)
			if err != nil && n == 0 { // the connection may break before the header
				r.take(1)
				continue
			}
			if err != nil {
				t.Fatalf("%s cut after %d: %v", example.name, n, err)
			}
			got, err := io.ReadAll(response.Body)
			response.Body.Close()
			want := slices.Clone(example.sent[:n])
			if example.hidden > 0 && n > example.hidden {
				want = slices.Delete(want, example.hidden, example.hidden+1)
			}
			if string(got) != strings.Join(want, "") || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s cut after %d: %q, %v", example.name, n, got, err)
			}
			charged := r.take(1)[0].Charged
			if output := charged["output_tokens"]; output < before || output > max(example.output, 10) || charged["input_tokens"] == 0 {
				t.Errorf("%s cut after %d was charged %v, before %d", example.name, n, charged, before)
			}
			before = charged["output_tokens"]
		}
	}
}

// TestPanicInTheReader: the SDK panics while it reads, and its deferred Close or
// cancel is all that happens then.
func TestPanicInTheReader(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		pieces(sse, chunk("Hello there"))(w, request)
		<-request.Context().Done()
	})
	for _, way := range []string{"close", "cancel"} {
		func() {
			defer func() { _ = recover() }()
			ctx, cancel := context.WithCancel(context.Background())
			response, err := r.post(ctx, chatPath, chatFlow)
			if err != nil {
				t.Fatal(err)
			}
			defer cancel()
			if way == "close" { // before the context ends
				defer response.Body.Close()
			}
			if _, err := io.ReadFull(response.Body, make([]byte, len(chunk("Hello there")))); err != nil {
				t.Fatal(err)
			}
			panic("boom")
		}()
		if s := r.take(1)[0]; s.Charged["output_tokens"] != count(t, "Hello there") {
			t.Errorf("%s: charged %v", way, s.Charged)
		}
	}
}

// TestPathModelIsPriced: a cheap model in the body changes nothing of the price of a
// dear one in the path.
func TestPathModelIsPriced(t *testing.T) {
	r := newRig(t, nil, bedrockHere)
	for path, example := range map[string]struct{ ask, answer string }{
		"/v1beta/models/gemini-2.5-pro:generateContent": {
			`{"contents":[{"parts":[{"text":"Hello"}]}],"generationConfig":{"maxOutputTokens":200}MODEL}`,
			`{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":9,"totalTokenCount":13}}`,
		},
		"/model/anthropic.claude-sonnet-4-5-20250929-v1:0/converse": {
			`{"messages":[{"role":"user","content":[{"text":"Hello"}]}],"inferenceConfig":{"maxTokens":100}MODEL}`,
			`{"usage":{"inputTokens":12,"outputTokens":13,"totalTokens":25}}`,
		},
		"/openai/deployments/gpt-4o/chat/completions": {
			`{"messages":[{"role":"user","content":"Hello"}],"max_tokens":100MODEL}`,
			`{"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`,
		},
	} {
		var costs []int64
		for _, model := range []string{"", `,"model":"gpt-4o-mini"`, `,"model":"gemini-2.5-flash-lite"`} {
			r.serve(pieces("application/json", example.answer))
			if response, text := r.call(path, strings.Replace(example.ask, "MODEL", model, 1)); response.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s %s", path, response.Status, text)
			}
			s := r.take(1)[0]
			costs = append(costs, s.Charged["cost"])
			if !strings.Contains(path, s.Model) {
				t.Errorf("%s counts as a call of %s", path, s.Model)
			}
		}
		if costs[0] == 0 || costs[1] != costs[0] || costs[2] != costs[0] {
			t.Errorf("%s cost %v", path, costs)
		}
	}
}
