package transport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/estimator/answer"
)

// Transport is an http.RoundTripper that reserves before a call to a provider and
// refunds after it. It is safe for concurrent use.
type Transport struct {
	options
	client *budget.Client
	held   heldBack
	room   room

	mu   sync.Mutex
	open int           // calls whose closing the broker does not have yet
	idle chan struct{} // closed when open comes to 0; nil: nobody waits
}

// New makes a Transport that asks with client, which may be nil if every
// [Caller] has one.
func New(client *budget.Client, opts ...Option) *Transport {
	t := &Transport{
		client: client,
		options: options{
			base: http.DefaultTransport, endpoints: Endpoints(), lease: budget.DefaultLease,
			maxBody: DefaultMaxBody, settleWait: DefaultSettleWait, maxUnderWay: DefaultMaxUnderWay,
		},
	}
	for _, option := range opts {
		option(&t.options)
	}
	t.room = newRoom(t.maxUnderWay)
	return t
}

// Wait waits until the broker has the closing of every call that was begun, or
// fails with ctx's error. An answer that is neither read to its end nor closed
// keeps it waiting. A program should wait before it ends.
func (t *Transport) Wait(ctx context.Context) error {
	t.mu.Lock()
	if t.open == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *Transport) closing(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open += n; t.open == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// RoundTrip implements http.RoundTripper. A refusal is an answer and no error.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	endpoint, model := t.recognise(request)
	if endpoint == nil {
		if t.onUnknown != nil {
			if response := t.onUnknown(request, t.unrecognised(request)); response != nil {
				closeBody(request)
				return response, nil
			}
		}
		return t.base.RoundTrip(request)
	}
	layout := endpoint.layout()
	place := &place{room: &t.room}
	defer place.leave()
	asked, err := t.read(request, endpoint, model, place)
	if err != nil {
		if f := t.bodyFault(err); f != nil {
			return refuse(request, layout, f), nil
		}
		return nil, err
	}
	key := heldKeyOf(request, asked.model)
	if wait := t.held.wait(key, time.Now()); t.holdsBack && wait > 0 {
		f := &Fault{Kind: FaultRateLimited, Message: "budget: the provider asked to wait", RetryAfter: wait, Header: http.Header{"X-Budget-Reason": {"provider_limited"}}}
		return refuse(request, layout, f), nil
	}
	if t.allowsLess {
		asked.allowLess(endpoint, t.fewestOutput)
	}
	client, ask, err := t.ask(request, asked)
	if err != nil {
		return nil, err
	}
	running, err := client.Begin(request.Context(), ask)
	if err != nil {
		if ended := request.Context().Err(); ended != nil {
			return nil, ended
		}
		return refuse(request, layout, faultOf(err)), nil
	}
	c := t.begin(request, running, endpoint, asked.model)
	if ask.Parent != "" {
		c.ctx = running.Context() // which ends with the envelope
	}
	sent := c.outbound(asked)
	asked = nil // the decoded form is for the broker alone
	place.decoded()
	return c.send(key, sent, layout)
}

// read reads the body of a request that was recognised.
func (t *Transport) read(request *http.Request, endpoint *Endpoint, model string, place *place) (*asked, error) {
	raw, err := readBody(request, min(t.maxBody, t.room.size), place)
	if err != nil {
		return nil, err
	}
	values, err := checkBounds(raw)
	if err != nil {
		return nil, err
	}
	if err := place.decode(request.Context(), len(raw), values); err != nil {
		return nil, err
	}
	return readRequest(endpoint, model, raw)
}

// bodyFault is what is wrong with a body; nil for an error of reading it.
func (t *Transport) bodyFault(err error) *Fault {
	var bad *bodyError
	switch {
	case err == errTooLarge:
		return &Fault{Kind: FaultTooLarge, Message: fmt.Sprintf("budget: the body is over %d bytes", min(t.maxBody, t.room.size))}
	case err == errNoRoom:
		return &Fault{Kind: FaultUnavailable, Message: fmt.Sprintf("budget: %v (%d at most)", err, t.room.size), RetryAfter: time.Second}
	case errors.As(err, &bad):
		return &Fault{Kind: FaultInvalid, Message: "budget: " + bad.Error()}
	}
	return nil
}

// refuse answers without sending the call on, and closes its body as a
// RoundTripper must.
func refuse(request *http.Request, layout answer.Layout, f *Fault) *http.Response {
	closeBody(request)
	return f.Answer(request, layout)
}

func closeBody(request *http.Request) {
	if request.Body != nil {
		request.Body.Close()
	}
}

// ask is the reservation to make for a request.
func (t *Transport) ask(request *http.Request, asked *asked) (*budget.Client, budget.Request, error) {
	who := Caller{}
	if t.caller != nil {
		var err error
		if who, err = t.caller(request); err != nil {
			return nil, budget.Request{}, err
		}
	}
	ask := budget.Request{Account: t.account, Labels: t.labels, LLM: asked.llm, Lease: t.lease, Priority: t.priority, MaxWait: t.maxWait, Parent: t.parent}
	if parent, stated := request.Context().Value(parentKey{}).(string); stated {
		ask.Parent = parent
	}
	if who.Parent != "" {
		ask.Parent = who.Parent
	}
	if ask.Parent != "" {
		ask.MaxWait = 0 // such a call starts at once; a Caller that states both is told so
	}
	if who.Account != "" {
		ask.Account = who.Account
	}
	if who.Priority != "" {
		ask.Priority = who.Priority
	}
	if who.MaxWait != nil {
		ask.MaxWait = *who.MaxWait
	}
	if len(who.Labels) > 0 {
		ask.Labels = maps.Clone(t.labels)
		if ask.Labels == nil {
			ask.Labels = map[string]string{}
		}
		maps.Copy(ask.Labels, who.Labels)
	}
	client := t.client
	if who.Client != nil {
		client = who.Client
	}
	if client == nil {
		return nil, budget.Request{}, errors.New("transport: neither New nor the Caller has a client")
	}
	return client, ask, nil
}

// send sends the call on and follows its answer.
func (c *call) send(key heldKey, out *outbound, layout answer.Layout) (response *http.Response, err error) {
	t := c.transport
	var sent sending
	answered := false
	defer func() {
		if !answered { // failed or panicked
			c.neverAnswered(err, &sent)
		}
	}()
	request := out.request.WithContext(sent.follow(c.ctx, c.request))
	if response, err = t.base.RoundTrip(request); err != nil {
		if stopped := c.stopped(); stopped != nil {
			return nil, stopped
		}
		return nil, err
	}
	if sent.written.Load() {
		out.payload.letGo()
	}
	if limit, ok := limitOf(response, time.Now()); ok {
		limit.Provider, limit.Host, limit.Model = c.endpoint.Provider, c.request.URL.Host, c.model
		if limit.Refused && limit.RetryAfter > 0 && t.holdsBack {
			now := time.Now()
			t.held.hold(key, now, now.Add(limit.RetryAfter))
		}
		if t.onLimit != nil {
			t.onLimit(limit)
		}
	}
	answered = true
	c.follow(response, layout, out.asksUsage)
	return response, nil
}

// outbound is a request as it is sent on.
type outbound struct {
	request   *http.Request
	payload   *payload
	asksUsage bool // its answer has a chunk that the caller did not ask for
}

func (c *call) outbound(asked *asked) *outbound {
	out := &outbound{request: c.request.Clone(c.ctx)}
	raw := asked.raw
	if !c.endpoint.Signed {
		if granted := c.running.GrantedMaxOutputTokens; asked.llm.MinOutputTokens != nil && granted > 0 {
			if changed := setField(raw, asked.outputField(c.endpoint), strconv.FormatInt(granted, 10)); changed != nil {
				raw = changed
			}
		}
		if c.endpoint.AsksUsage && asked.streams() && !asked.asksUsage() {
			if changed := setField(raw, "stream_options.include_usage", "true"); changed != nil {
				raw, out.asksUsage = changed, true
			}
		}
		if out.request.Header.Get("Accept-Encoding") != "" {
			// Whoever asks for a compressed answer takes a plain one too, and a
			// plain one can be read along.
			out.request.Header.Set("Accept-Encoding", "identity")
		}
	}
	out.payload = newPayload(raw)
	out.request.Body, _ = out.payload.open()
	out.request.GetBody = out.payload.open
	if out.request.ContentLength = int64(len(raw)); len(raw) != len(asked.raw) && out.request.Header.Get("Content-Length") != "" {
		out.request.Header.Set("Content-Length", strconv.Itoa(len(raw)))
	}
	return out
}
