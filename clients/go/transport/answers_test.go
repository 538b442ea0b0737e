package transport_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/transport"
)

// squeezed compresses a text.
func squeezed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestEncodedAnswers: a stream that is compressed though the Transport asked for a
// plain one passes by as it comes, and identity is no compression.
func TestEncodedAnswers(t *testing.T) {
	r := newRig(t, nil)
	whole := chunk("Hi") + usageChunk + doneChunk
	packed := squeezed(t, whole)
	for _, example := range []struct {
		encoding, sent, want string
		charged              int64 // of output
	}{
		{"gzip", packed, packed, 100}, // as it was held
		{"identity, gzip", packed, packed, 100},
		{"identity", whole, chunk("Hi") + doneChunk, 10},
		{"Identity", whole, chunk("Hi") + doneChunk, 10},
		{"", whole, chunk("Hi") + doneChunk, 10},
	} {
		next := make(chan struct{})
		r.serve(func(w http.ResponseWriter, request *http.Request) {
			_, _ = io.Copy(io.Discard, request.Body)
			w.Header().Set("Content-Type", "Text/Event-Stream")
			if example.encoding != "" {
				w.Header().Set("Content-Encoding", example.encoding)
			}
			_, _ = io.WriteString(w, example.sent[:len(chunk("Hi"))/2])
			w.(http.Flusher).Flush()
			<-next
			_, _ = io.WriteString(w, example.sent[len(chunk("Hi"))/2:])
		})
		request, err := http.NewRequest(http.MethodPost, r.provider.URL+chatPath, strings.NewReader(chatFlow))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept-Encoding", "gzip")
		response, err := r.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		if example.want == packed { // its first half is there before the second is made
			got = make([]byte, len(chunk("Hi"))/2)
			if _, err := io.ReadFull(response.Body, got); err != nil {
				t.Fatal(err)
			}
		}
		close(next)
		rest, err := io.ReadAll(response.Body)
		response.Body.Close()
		if got = append(got, rest...); err != nil || string(got) != example.want {
			t.Errorf("%q: %q, %v", example.encoding, got, err)
		}
		if s := r.take(1)[0]; s.Charged["output_tokens"] != example.charged {
			t.Errorf("%q was charged %v", example.encoding, s.Charged)
		}
	}
	r.serve(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Encoding", "identity")
		pieces("application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`)(w, request)
	})
	r.call(chatPath, chatAsk)
	r.charged(3, 4)
}

// TestErrorsWithStatus200 use nothing, if there is an error and nothing else.
func TestErrorsWithStatus200(t *testing.T) {
	r := newRig(t, nil, bedrockHere)
	asks := asksFor("100")
	const flow = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"
	asks[flow] = asks[geminiPath]
	for _, example := range []struct {
		path, kind, text string
		free             bool
	}{
		{chatPath, "application/json", `{"error":{"message":"overloaded","type":"server_error"}}`, true},
		{chatPath, "application/json", `{"error":"no","choices":[]}`, true},
		{chatPath, "", ` {"id":null,"error":{"code":502},"choices":null}`, true},
		{messagesPath, "application/json", `{"type":"error","error":{"type":"overloaded_error"}}`, true},
		{geminiPath, "application/json; charset=UTF-8", `{"error":{"code":503,"status":"UNAVAILABLE"}}`, true},
		{flow, "application/json", `[{"error":{"code":503}}]`, true},
		{bedrockPath, "application/json", `{"__type":"ThrottlingException","message":"x"}`, true},
		{chatPath, "application/json", `{"error":{},"choices":[{"message":{"content":"Hi"}}]}`, false},
		{chatPath, "application/json", `{"error":null,"choices":[]}`, false},
		{chatPath, "application/json", `{"error":"","choices":[]}`, false},
		{chatPath, "application/json", `{"error":{"message":"cut`, false},
		{chatPath, "application/json", `{"error":{"a":1},"output":[{}]}`, false},
		{messagesPath, "application/json", `{"error":{"a":1},"content":[{"text":"Hi"}]}`, false},
		{geminiPath, "application/json", `{"error":{"a":1},"candidates":[{}]}`, false},
		{flow, "application/json", `[{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]},{"error":{"code":503}}]`, false},
	} {
		r.serve(pieces(example.kind, example.text))
		response, text := r.call(example.path, asks[example.path])
		if response.StatusCode != http.StatusOK || text != example.text {
			t.Errorf("%s became %s %s", example.text, response.Status, text)
		}
		if s := r.take(1)[0]; (s.Charged["tokens"] == 0) != example.free {
			t.Errorf("%s %s was charged %v", example.path, example.text, s.Charged)
		}
	}
}

// TestSettleWaitOnce: an answer whose charge is shown waits once for a broker that
// does not take it, and not once for its end and once for its header.
func TestSettleWaitOnce(t *testing.T) {
	r := newRig(t, pieces("application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`))
	goOn := make(chan struct{})
	slow, err := budget.New(r.broker.URL, r.key, budget.WithHTTPClient(&http.Client{Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/Refund") {
			<-goOn
		}
		return http.DefaultTransport.RoundTrip(request)
	})}))
	if err != nil {
		t.Fatal(err)
	}
	r.client = slow
	const wait = time.Second
	r.use(transport.WithSettleWait(wait), transport.WithChargeHeaders())
	began := time.Now()
	response, err := r.post(context.Background(), chatPath, chatAsk)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	close(goOn)
	if took := time.Since(began); took < wait || took > wait+wait*3/4 {
		t.Errorf("the answer took %v, want %v", took, wait)
	}
	r.charged(3, 4)
}
