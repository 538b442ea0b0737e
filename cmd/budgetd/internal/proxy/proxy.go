package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/transport"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/estimator/answer"
)

const (
	// writeTimeout bounds one write to a caller that does not read.
	writeTimeout = time.Minute
	// uploadStall bounds the wait for the next bytes of a body.
	uploadStall = 30 * time.Second
	// lingering is how long a refused call may go on sending its body.
	lingering = time.Second
	// idleConnections to one upstream, and to the broker, are kept open.
	idleConnections = 256
	// probeEvery is how long the broker goes unasked while nobody calls.
	probeEvery = 10 * time.Second
	// maxHeaderBytes bounds the header of an upstream's answer.
	maxHeaderBytes = 1 << 20
)

// Proxy is an http.Handler.
type Proxy struct {
	config   config.Proxy
	log      *slog.Logger
	metrics  *metrics
	clients  *clients
	watch    *brokerWatch
	base     *http.Transport
	budgeted *transport.Transport
	reverse  *httputil.ReverseProxy

	heldRefused heldRefused

	bounds   bounds
	inFlight atomic.Int64
	running  sync.WaitGroup
}

// bounds are on callers that stall, and on the end. Tests have shorter ones.
type bounds struct {
	write   time.Duration // of one write
	stall   time.Duration // of one read of a body
	linger  time.Duration // of what a refused call still sends of its body
	refunds time.Duration // of all Refunds after the last call has ended
	probe   time.Duration // between questions to the broker while nobody calls
}

// New returns a proxy with its metrics registered. It connects to nothing yet.
func New(c config.Proxy, registerer prometheus.Registerer, log *slog.Logger) (*Proxy, error) {
	m, err := newMetrics(registerer)
	if err != nil {
		return nil, err
	}
	connections := func() *http.Transport {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, idleConnections
		t.MaxResponseHeaderBytes = maxHeaderBytes
		return t
	}
	p := &Proxy{config: c, log: log, metrics: m, base: connections(), bounds: bounds{write: writeTimeout, stall: uploadStall, linger: lingering, refunds: refundGrace, probe: probeEvery}}
	p.base.ResponseHeaderTimeout = c.FirstByteTimeout
	rule, err := ruleOf(c)
	if err != nil {
		return nil, err
	}
	p.watch = &brokerWatch{next: connections(), metrics: m, log: log, now: time.Now}
	p.clients = &clients{
		broker: c.Broker, deadline: c.BrokerDeadline, whenDown: rule, own: c.BudgetKey.Reveal(),
		http: &http.Client{Transport: p.watch}, lost: p.lost, hopeless: p.watch.hopeless, now: time.Now,
	}
	p.clients.open()
	p.budgeted = p.newTransport()
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      roundTripper(p.roundTrip),
		FlushInterval:  -1, // at once
		ModifyResponse: p.modify,
		ErrorHandler:   p.failed,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// newTransport puts the budget on the way to the upstreams.
func (p *Proxy) newTransport() *transport.Transport {
	return transport.New(nil, // every call names a client of its own
		transport.WithBase(roundTripper(p.forward)),
		transport.WithCaller(func(r *http.Request) (transport.Caller, error) { return callOf(r.Context()).caller, nil }),
		transport.WithRefuseUnrecognised(),
		transport.WithMaxBody(int64(p.config.MaxRequestBytes)),
		transport.WithChargeHeaders(),
		transport.WithSettled(p.settled),
	)
}

// settled says when the broker refused to be told what a call used. Refunds that
// are kept are no loss yet, and of those that no broker took [Proxy.lost] hears.
func (p *Proxy) settled(s transport.Settled) {
	var failed *budget.RefundError
	switch {
	case s.Err == nil && s.Reservation == "":
		p.metrics.unbudgeted.Inc() // by when_down
	case s.Err == nil:
	case errors.As(s.Err, &failed) && failed.Kept:
		p.metrics.kept.Inc()
	case !budget.Unanswered(s.Err):
		p.metrics.lost.Inc()
		p.log.Warn("the broker refused a refund: what was held is charged or given back when its lease ends", "provider", s.Provider, "model", s.Model, "error", s.Err)
	}
}

// lost is told of each Refund that is not tried any more.
func (p *Proxy) lost(l budget.LostRefund) {
	p.metrics.lost.Inc()
	p.log.Warn("a refund is lost: what was held is charged or given back when its lease ends", "error", l.Err)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (p *Proxy) roundTrip(r *http.Request) (*http.Response, error) {
	c := callOf(r.Context())
	if c.route.free {
		return p.forward(r)
	}
	a, err := p.budgeted.RoundTrip(r.WithContext(transport.ForProvider(r.Context(), c.route.provider)))
	if err == nil {
		p.learn(c, a)
	}
	return a, err
}

// forward sends a call to its upstream, and notes whether there was a connection.
// What the upstream says in the broker's headers is not passed on.
func (p *Proxy) forward(r *http.Request) (*http.Response, error) {
	c := callOf(r.Context())
	a, err := p.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
	})))
	if err == nil {
		withoutBudget(a.Header)
		a.Body = &trailed{ReadCloser: a.Body, answer: a}
	}
	return a, err
}

// withoutBudget takes out what only this proxy may say.
func withoutBudget(header http.Header) {
	for name := range header {
		if strings.HasPrefix(name, "X-Budget-") {
			delete(header, name)
		}
	}
}

// trailed is the body of an upstream's answer, whose trailer comes with its end.
type trailed struct {
	io.ReadCloser
	answer *http.Response
}

func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err != nil {
		withoutBudget(t.answer.Trailer)
	}
	return n, err
}

// learn reads in an answer what the broker said of the call's key.
func (p *Proxy) learn(c *call, a *http.Response) {
	switch {
	case !c.connected.Load() && a.Header.Get(headerBudgetError) == "unauthenticated":
		p.clients.learn(c.caller.Client, false)
	case a.Header.Get("X-Budget-Reservation") != "" || a.Header.Get("X-Budget-Reason") != "":
		p.clients.learn(c.caller.Client, true)
	}
}

// ServeHTTP forwards a call within its budget.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.running.Add(1)
	defer p.running.Done()
	p.metrics.inFlight.Inc()
	defer p.metrics.inFlight.Dec()
	to, lost := p.routeOf(r)
	seen := &watched{
		ResponseWriter: w, control: http.NewResponseController(w), bound: p.bounds.write,
		metrics: p.metrics, began: time.Now(), upstream: to.provider,
	}
	if lost != nil && lost.Kind == transport.FaultNotFound {
		seen.upstream = "none"
	}
	defer seen.end()
	body := p.receive(w, r)
	defer body.leave()
	if p.inFlight.Add(1) > int64(p.config.MaxInFlight) {
		p.inFlight.Add(-1)
		p.refuse(seen, r, to, &transport.Fault{
			Kind: transport.FaultUnavailable, RetryAfter: time.Second, Message: "budget proxy: too many calls are under way",
		})
		return
	}
	defer p.inFlight.Add(-1)
	if lost != nil {
		p.refuse(seen, r, to, lost)
		return
	}
	c, refused := p.admit(r, to)
	if refused != nil {
		p.refuse(seen, r, to, refused)
		return
	}
	c.upload = body
	p.reverse.ServeHTTP(seen, r.WithContext(withCall(r.Context(), c)))
}

// modify turns what the broker says of a budget key into what an SDK knows of keys,
// and what a provider says of a key that the proxy holds into what it is not: a word
// about the caller's.
func (p *Proxy) modify(a *http.Response) error {
	c := callOf(a.Request.Context())
	if c.connected.Load() {
		return p.modifyHeld(a, c.route)
	}
	if a.StatusCode != http.StatusForbidden || a.Header.Get(headerBudgetError) != "unauthenticated" {
		return nil
	}
	a.Body.Close()
	*a = *unknownKey().Answer(a.Request, answer.LayoutOrOpenAI(c.route.provider))
	return nil
}

// failed answers a call whose upstream did not.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r.Context())
	to := c.route
	if c.upload.late.Load() { // before the context: net/http ends it with a read that fails
		p.refuse(w, r, to, &transport.Fault{Kind: transport.FaultRequestTimeout, Message: "budget proxy: the request did not arrive in time"})
		return
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the caller is gone
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		p.refuse(w, r, to, p.tooLarge())
		return
	}
	if f := stoppedFault(err); f != nil {
		p.refuse(w, r, to, f)
		return
	}
	var timeout net.Error
	f := &transport.Fault{Kind: transport.FaultUpstream, Message: fmt.Sprintf("budget proxy: %s can't be reached", to.provider)}
	if errors.As(err, &timeout) && timeout.Timeout() && c.connected.Load() {
		f = &transport.Fault{Kind: transport.FaultUpstreamTimeout, Message: fmt.Sprintf("budget proxy: %s did not answer in time", to.provider)}
	}
	p.log.Warn("an upstream failed", "upstream", to.provider, "error", err)
	p.refuse(w, r, to, f)
}

// refuse answers with a fault, in the form of the provider that the call is for.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, to route, f *transport.Fault) {
	a := f.Answer(r, answer.LayoutOrOpenAI(to.provider))
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.StatusCode)
	_, _ = io.Copy(w, a.Body) // the caller may be gone
}

// ready says whether calls can be served: while the broker does not answer only
// if when_down lets those of keys go on that it has known.
func (p *Proxy) ready(ctx context.Context) error {
	err := p.brokerReady(ctx)
	if err != nil && p.clients.whenDown != nil && p.watch.hasAnswered() {
		return nil
	}
	return err
}

func (p *Proxy) brokerReady(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.config.Broker+"/readyz", nil)
	if err != nil {
		return err
	}
	a, err := p.clients.http.Do(request)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("the broker's /readyz answers %d", a.StatusCode)
	}
	return nil
}
