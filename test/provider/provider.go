package provider

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxBodyBytes bounds a request.
const maxBodyBytes = 32 << 20

// Provider answers as the providers do. It is an http.Handler.
type Provider struct {
	key    string
	prices map[string]Price
	mux    *http.ServeMux

	mu    sync.Mutex
	calls []Call
	tries map[string]int           // of each script's ID
	steps map[string]chan struct{} // likewise
}

// New returns a provider that lets the key in and sells the models in the list.
func New(key string, prices map[string]Price) *Provider {
	p := &Provider{key: key, prices: prices, mux: http.NewServeMux(), tries: map[string]int{}, steps: map[string]chan struct{}{}}
	p.handle("POST /v1/chat/completions", openAI, p.chat)
	p.handle("POST /v1/responses", openAI, p.responses)
	p.handle("POST /v1/embeddings", openAI, p.embeddings)
	p.handle("POST /v1/messages", anthropic, p.messages)
	p.handle("POST /v1beta/models/{call}", gemini, p.generate)
	p.mux.HandleFunc("GET /v1/models", p.models)
	return p
}

// ServeHTTP answers a call.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// models is https://platform.openai.com/docs/api-reference/models/list, which is
// not billed and not in the books.
func (p *Provider) models(w http.ResponseWriter, r *http.Request) {
	if openAI.key(r) != p.key {
		writeJSON(w, http.StatusUnauthorized, openAI.fault(nil, http.StatusUnauthorized, "the key is not valid"))
		return
	}
	var list []any
	for _, name := range slices.Sorted(maps.Keys(p.prices)) {
		list = append(list, object{"id": name, "object": "model", "created": created(), "owned_by": "system"})
	}
	writeJSON(w, http.StatusOK, object{"object": "list", "data": list})
}

// Step lets the stream of the script with this ID, which has Steps set, go on
// by one.
func (p *Provider) Step(id string) { p.stepsOf(id) <- struct{}{} }

func (p *Provider) stepsOf(id string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps[id] == nil {
		p.steps[id] = make(chan struct{})
	}
	return p.steps[id]
}

// try returns how many tries of the call came before.
func (p *Provider) try(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.tries[id]
	p.tries[id]++
	return n
}

// object is a JSON object.
type object map[string]any

// exchange is a request under way.
type exchange struct {
	w      http.ResponseWriter
	r      *http.Request
	host   string
	id     string // what the provider calls the request
	model  string
	body   []byte
	asked  object // the body
	script Script
}

// dialect is what the endpoints of one provider have in common.
type dialect struct {
	host string
	// key is the credential that came.
	key func(*http.Request) string
	// headers are on every answer.
	headers func(x *exchange, h http.Header)
	// fault is the body of an error.
	fault func(x *exchange, status int, message string) object
	// model is the model that the request names.
	model func(x *exchange) string
}

// handle adds an endpoint: what all have in common comes before it.
func (p *Provider) handle(pattern string, d dialect, endpoint func(*exchange)) {
	p.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{w: w, r: r, host: d.host, id: p.newID()}
		refuse := func(status int, message string) {
			d.headers(x, w.Header())
			writeJSON(w, status, d.fault(x, status, message))
			p.bill(x, status, Tokens{}, false)
		}
		var err error
		if x.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes)); err != nil {
			return // the caller went away, or sends without end
		}
		if x.script, err = scriptOf(r); err != nil {
			refuse(http.StatusBadRequest, err.Error())
			return
		}
		if d.key(r) != p.key {
			refuse(http.StatusUnauthorized, "the key is not valid")
			return
		}
		if err := json.Unmarshal(x.body, &x.asked); err != nil {
			refuse(http.StatusBadRequest, "the body is not a JSON object")
			return
		}
		x.model = d.model(x)
		if _, sold := p.prices[x.model]; !sold {
			refuse(http.StatusNotFound, fmt.Sprintf("the model %q does not exist", x.model))
			return
		}
		if n := p.try(x.script.ID); n < len(x.script.Faults) {
			fault := x.script.Faults[n]
			for name, value := range map[string]string{"Retry-After": fault.RetryAfter, "Retry-After-Ms": fault.RetryAfterMS} {
				if value != "" {
					w.Header().Set(name, value)
				}
			}
			refuse(fault.Status, "scripted")
			return
		}
		d.headers(x, w.Header())
		endpoint(x)
	})
}

// newID returns a name that no other request has.
func (p *Provider) newID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries[""]++ // scripts without an ID have no faults to count
	return fmt.Sprintf("%024d", p.tries[""])
}

// answer sends a whole answer and bills it.
func (p *Provider) answer(x *exchange, body object) {
	p.bill(x, http.StatusOK, x.script.Tokens, false)
	writeJSON(x.w, http.StatusOK, body)
}

func writeJSON(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(body) // the caller may be gone
}

func (x *exchange) streamed() bool { streamed, _ := x.asked["stream"].(bool); return streamed }

func (x *exchange) text() string { return strings.Join(x.script.Pieces, "") }

// created is the time that answers name.
func created() int64 { return time.Now().Unix() }
