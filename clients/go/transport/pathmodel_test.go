package transport

import (
	"net/http"
	"strings"
	"testing"
)

// TestPathModel: of every kind of call whose path names the model, the path's is the
// one that is priced, whatever the body says.
func TestPathModel(t *testing.T) {
	tr, tried := New(nil), 0
	for _, e := range Endpoints() {
		if !strings.Contains(e.Path, modelSegment) {
			continue
		}
		tried++
		host := e.Host
		if host == "" {
			host = "example.com"
		}
		host = strings.ReplaceAll(host, "*", ".us-east-1.amazonaws.com")
		request, err := http.NewRequest(http.MethodPost, "https://"+host+strings.Replace(e.Path, modelSegment, "dear", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		endpoint, model := tr.recognise(request)
		if endpoint == nil {
			t.Errorf("%s is not recognised", request.URL)
			continue
		}
		for _, body := range []string{`{"model":"cheap","x":1}`, `{"model":"","x":1}`, `{"x":1}`, `{"model":7,"x":1}`} {
			asked, err := readRequest(endpoint, model, []byte(body))
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			fields := asked.llm.ProviderRequest.Fields
			if asked.model != "dear" || asked.llm.Model != "dear" || fields["model"] != nil || fields["x"] == nil {
				t.Errorf("%s with %s is of %q and %q: %v", e.Path, body, asked.model, asked.llm.Model, fields)
			}
			if string(asked.raw) != body {
				t.Errorf("%s is sent as %s", body, asked.raw)
			}
		}
	}
	if tried < 6 {
		t.Errorf("%d kinds of calls name the model in the path", tried)
	}
	chat, err := readRequest(&Endpoint{Provider: "openai"}, "", []byte(`{"model":"gpt-4o"}`))
	if err != nil || chat.model != "gpt-4o" || chat.llm.Model != "" || chat.llm.ProviderRequest.Fields["model"] == nil {
		t.Errorf("%+v, %v", chat, err)
	}
}
