package app

import (
	"encoding/json"
	"net/http"
)

// astray answers the calls of SDKs whose base URL is the broker, where the proxy
// was meant, in a shape that the SDKs of OpenAI and Anthropic, or of Gemini, show
// to people. Nothing of the call is read.
func astray(mux *http.ServeMux) {
	const message = "this is budgetd's broker, and the calls of SDKs belong to its proxy: start `budgetd proxy`, and give the SDK the proxy's address as its base URL, such as http://127.0.0.1:8081/openai/v1 (see docs/proxy.md)"
	shape := func(fault map[string]any) http.Handler {
		fault["message"] = message
		body, err := json.Marshal(map[string]any{"type": "error", "error": fault})
		if err != nil {
			panic("app: a map of texts and numbers is always JSON: " + err.Error())
		}
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Should-Retry", "false")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(body) // the caller may be gone
		})
	}
	others := shape(map[string]any{"type": "not_found_error", "code": "not_found"})
	gemini := shape(map[string]any{"code": http.StatusNotFound, "status": "NOT_FOUND"})
	for path, handler := range map[string]http.Handler{
		"/openai/": others, "/anthropic/": others, "/v1/": others, "/gemini/": gemini, "/v1beta/": gemini,
		"/chat/completions": others, "/responses": others, "/embeddings": others, // without /v1 in the base URL
	} {
		mux.Handle(path, handler)
	}
}
