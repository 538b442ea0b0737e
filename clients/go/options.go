package budget

import (
	"net/http"
	"time"

	"connectrpc.com/connect"
)

// The defaults of a Client.
const (
	DefaultDeadline      = 2 * time.Second
	DefaultMaxWait       = 30 * time.Second
	DefaultRefundTimeout = 2 * time.Second
	DefaultLease         = 60 * time.Second
	DefaultKeptRefunds   = 10_000
	DefaultKeptBytes     = 64 << 20
	DefaultKeptFor       = time.Hour
)

type options struct {
	httpClient    connect.HTTPClient
	rpc           []connect.ClientOption
	others        []string
	deadline      time.Duration
	whenDown      WhenDown
	maxWait       time.Duration
	refundTimeout time.Duration
	kept          int
	keptBytes     int
	keptFor       time.Duration
	onLost        func(LostRefund)
}

func defaults() options {
	return options{
		httpClient: &http.Client{}, deadline: DefaultDeadline, whenDown: Closed(),
		maxWait: DefaultMaxWait, refundTimeout: DefaultRefundTimeout,
		kept: DefaultKeptRefunds, keptBytes: DefaultKeptBytes, keptFor: DefaultKeptFor, onLost: logLost,
	}
}

// Option changes a default of [New].
type Option func(*options)

// WithHTTPClient sets the HTTP client; http.DefaultTransport without a timeout
// unless given. Calls carry their own deadlines.
func WithHTTPClient(client *http.Client) Option {
	return func(o *options) { o.httpClient = client }
}

// WithGRPC speaks gRPC instead of the Connect protocol. The HTTP client must
// then speak HTTP/2, which net/http does over TLS by itself.
func WithGRPC() Option {
	return func(o *options) { o.rpc = append(o.rpc, connect.WithGRPC()) }
}

// WithAddresses names further brokers, which must share engine and ledger with
// the first: when one does not answer the next is asked, with the same
// idempotency key, and stays the one that is asked first.
func WithAddresses(addresses ...string) Option {
	return func(o *options) { o.others = append(o.others, addresses...) }
}

// WithDeadline bounds how long one Reserve may take over all brokers, before its
// [WhenDown] decides: [DefaultDeadline] unless given; it must be more than 0. A
// broker that failed five times in a row costs no time for a second; then one
// call tries it.
func WithDeadline(d time.Duration) Option {
	return func(o *options) { o.deadline = d }
}

// WithWhenDown says what becomes of calls when no broker answers, unless their
// request says it: [Closed] unless given.
func WithWhenDown(rule WhenDown) Option {
	return func(o *options) {
		if rule.decide != nil {
			o.whenDown = rule
		}
	}
}

// WithMaxWait bounds how long Do waits in all for capacity, and for a broker
// that does not answer, before it gives up: [DefaultMaxWait] unless given. Zero
// asks once. The context's deadline bounds it too.
func WithMaxWait(d time.Duration) Option {
	return func(o *options) { o.maxWait = max(d, 0) }
}

// WithRefundTimeout bounds how long Do and End try to deliver a Refund, whatever
// became of the caller's context, before they leave it to the background:
// [DefaultRefundTimeout] unless given; it must be more than 0. When every broker
// failed lately they do not wait for it.
func WithRefundTimeout(d time.Duration) Option {
	return func(o *options) { o.refundTimeout = d }
}

// WithKeptRefunds bounds how many Refunds are kept for the background, and for
// how long each is tried: [DefaultKeptRefunds] and [DefaultKeptFor] unless given.
// 0 keeps none.
func WithKeptRefunds(most int, within time.Duration) Option {
	return func(o *options) { o.kept, o.keptFor = most, within }
}

// WithKeptBytes bounds how much memory they may take together, about:
// [DefaultKeptBytes] unless given. What is too much loses the largest first, such
// as those with the text of cut answers. Calls that are kept for their Reserve have
// their request's size, with its prompt.
func WithKeptBytes(most int) Option {
	return func(o *options) { o.keptBytes = most }
}

// WithOnLost is called with each Refund that failed for want of a broker and is
// not tried any more: too many wait, or too large ones, it was tried for too long, a broker refused
// it in the end, or the Client is closed. It must not block. Without it a lost
// Refund is logged, without what it used.
func WithOnLost(lost func(LostRefund)) Option {
	return func(o *options) { o.onLost = lost }
}
