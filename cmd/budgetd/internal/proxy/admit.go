package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/budgetd/budgetd/clients/go/transport"
	"github.com/budgetd/budgetd/estimator/answer"
)

// admit finds out who pays, and refuses a call of which it can't, or whose budget
// key the broker does not know. Nothing of the body is read before.
func (p *Proxy) admit(r *http.Request, to route) (*call, *transport.Fault) {
	c := &call{route: to}
	key, refused := p.budgetKey(r, to)
	if refused != nil {
		return nil, refused
	}
	if r.ContentLength > int64(p.config.MaxRequestBytes) {
		return nil, p.tooLarge()
	}
	if key == "" {
		return c, nil
	}
	for _, name := range []string{headerBudgetLabels, headerBudgetAccount} {
		if len(r.Header.Values(name)) > 1 {
			return nil, invalid("there are several headers " + name + ": send one")
		}
	}
	if mask := usageMask(r, to); mask != "" {
		return nil, invalid(mask + " may leave the usage out of the answer, by which calls are charged: leave it out")
	}
	labels, err := labelsOf(r.Header.Get(headerBudgetLabels))
	if err != nil {
		return nil, invalid(err.Error())
	}
	parent, wait, err := p.parentOf(r.Header)
	if err != nil {
		return nil, invalid(err.Error())
	}
	if to.free && !p.config.ProviderKeys[to.provider].IsSet() {
		return c, nil
	}
	// What is free has no Reserve that tells whether the key is still one.
	client, err := p.clients.vouched(r.Context(), key, to.free)
	switch {
	case errors.Is(err, errUnknownKey):
		return nil, unknownKey()
	case err != nil:
		return nil, unavailable()
	}
	c.caller = transport.Caller{Client: client, Account: r.Header.Get(headerBudgetAccount), Labels: labels, Priority: r.Header.Get(headerBudgetPriority), MaxWait: wait, Parent: parent}
	return c, nil
}

func invalid(problem string) *transport.Fault {
	return &transport.Fault{Kind: transport.FaultInvalid, Message: "budget proxy: " + problem}
}

// usageMask returns what selects the fields of Gemini's answer, "" for nothing.
func usageMask(r *http.Request, to route) string {
	if answer.LayoutOrOpenAI(to.provider) != answer.Gemini {
		return ""
	}
	for _, name := range []string{"fields", "$fields"} {
		if r.URL.Query().Has(name) {
			return "the parameter " + name
		}
	}
	if len(r.Header.Values("X-Goog-Fieldmask")) > 0 {
		return "the header X-Goog-FieldMask"
	}
	return ""
}

func (p *Proxy) tooLarge() *transport.Fault {
	return &transport.Fault{Kind: transport.FaultTooLarge, Message: fmt.Sprintf("budget proxy: the body is over %d bytes (the proxy's max_request_bytes): send less", p.config.MaxRequestBytes)}
}

func unavailable() *transport.Fault {
	return &transport.Fault{Kind: transport.FaultUnavailable, Message: "budget proxy: the broker of budgets does not answer; try again", RetryAfter: time.Second}
}

func unknownKey() *transport.Fault {
	return unauthorized("the budget key that was sent is not valid: the broker knows none like it, or it was revoked or has expired; ask whoever runs the broker for another (budgetd key create)")
}

// callerHeaders are those by which proxies and content networks tell the caller's
// address, place and way. Beside them are all that begin with callerPrefixes.
var callerHeaders = []string{
	"Forwarded", "Forwarded-For", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Original-Forwarded-For",
	"X-Originating-Ip", "X-Remote-Ip", "X-Remote-Addr", "X-Proxyuser-Ip", "X-Envoy-External-Address", "X-Azure-Clientip", "X-Azure-Socketip",
	"X-Appengine-User-Ip", "True-Client-Ip", "Fastly-Client-Ip", "Fly-Client-Ip", "Client-Ip", "Cdn-Loop",
}

var callerPrefixes = []string{"X-Forwarded", "Cf-", "Cloudfront-Viewer-"}

// withoutCaller takes out of a header what tells of the caller's connection to this
// proxy: no provider needs it.
func withoutCaller(header http.Header) {
	for _, name := range callerHeaders {
		header.Del(name)
	}
	for name := range header {
		for _, prefix := range callerPrefixes {
			if strings.HasPrefix(name, prefix) {
				delete(header, name)
			}
		}
	}
	// httputil takes the rest of what is for one hop, and leaves these two.
	for _, name := range []string{"Connection", "Upgrade", "Te"} {
		header.Del(name)
	}
}

// rewrite makes the request for the upstream.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	to := callOf(r.In.Context()).route
	u := *to.url
	withoutCaller(r.Out.Header)
	r.Out.Trailer = nil
	p.showKeys(r.Out.Header, &u, to.provider)
	r.Out.URL, r.Out.Host = &u, u.Host
	// The usage stands in the answer: it must be readable, and a stream not wait
	// for a block of a compressor.
	r.Out.Header.Set("Accept-Encoding", "identity")
}
