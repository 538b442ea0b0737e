package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
)

// The defaults of a Middleware.
const (
	DefaultKeyHeader   = "X-Api-Key"
	DefaultClientLabel = "client"
	DefaultSettleWait  = 50 * time.Millisecond
)

type options struct {
	keyHeader   string
	keyOf       func(*http.Request) string
	clientLabel string
	trusted     []string
	request     func(*http.Request) budget.Request
	refuse      func(http.ResponseWriter, *http.Request, error)
	settleWait  time.Duration
	logger      *slog.Logger
}

func defaults() options {
	return options{
		keyHeader:   DefaultKeyHeader,
		clientLabel: DefaultClientLabel,
		request:     func(*http.Request) budget.Request { return budget.Request{} },
		refuse:      refuseJSON,
		settleWait:  DefaultSettleWait,
		logger:      slog.Default(),
	}
}

// Option changes a default of [New].
type Option func(*options)

// WithKeyHeader names the header with the API key of a client: [DefaultKeyHeader]
// unless given. Of "Authorization" the scheme is left out. Empty: clients are
// told apart by address only.
//
// The Middleware does not check keys: whoever invents a key for each call gets a
// fresh budget each time. Put it behind the check of keys, or give [WithKey].
func WithKeyHeader(name string) Option {
	return func(o *options) { o.keyHeader = name }
}

// WithKey gives the key by which a client is known, such as the user that was
// authenticated before; it replaces the header. Empty: the client is known by its
// address.
func WithKey(key func(*http.Request) string) Option {
	return func(o *options) { o.keyOf = key }
}

// WithTrustedProxies names the proxies whose X-Forwarded-For is believed:
// networks ("10.0.0.0/8"), addresses, and "unix" for one that comes over a Unix
// socket. None unless given. Name all proxies in front, and nothing else: a
// client within these networks can claim any address.
func WithTrustedProxies(networks ...string) Option {
	return func(o *options) { o.trusted = append(o.trusted, networks...) }
}

// WithClientLabel names the label that tells clients apart: [DefaultClientLabel]
// unless given. Limits of the plan that are scoped by it are each client's own.
func WithClientLabel(name string) Option {
	return func(o *options) { o.clientLabel = name }
}

// WithRequest says what a call asks for: account, labels, amounts, the length of
// the lease. One request of the key's only account unless given. The label of the
// client is always the Middleware's; "route" is the pattern of http.ServeMux that
// matched, unless it is stated here or there is none. An idempotency key is
// taken as it is: leave it empty unless clients' own keys are checked. With a MaxWait
// a call waits for its start before the handler is called.
func WithRequest(request func(*http.Request) budget.Request) Option {
	return func(o *options) { o.request = request }
}

// WithRefuse writes the answer to a call that does not go on, in place of a short
// JSON object: err is a *[budget.RefusedError], or why no broker could be asked.
// The headers are set by then; refuse writes status and body.
func WithRefuse(refuse func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return func(o *options) { o.refuse = refuse }
}

// WithSettleWait bounds how long the end of an answer waits for the broker to have
// the Refund, so that a client's next call finds the slot free that this one had:
// [DefaultSettleWait] unless given. After that the Refund goes on in the background;
// with 0 it always does. Call [budget.Client.Close] after the server's Shutdown.
func WithSettleWait(d time.Duration) Option {
	return func(o *options) { o.settleWait = d }
}

// WithLogger sets where faults are logged: slog.Default unless given.
func WithLogger(logger *slog.Logger) Option {
	return func(o *options) { o.logger = logger }
}

func (o *options) check() error {
	switch {
	case o.clientLabel == "":
		return errors.New("client label is empty: give the name of a label, such as " + DefaultClientLabel)
	case o.request == nil:
		return errors.New("WithRequest has no function")
	case o.refuse == nil:
		return errors.New("WithRefuse has no function")
	case o.settleWait < 0:
		return fmt.Errorf("settle wait %v: want 0 or more", o.settleWait)
	case o.logger == nil:
		return errors.New("WithLogger has no logger")
	}
	return nil
}
