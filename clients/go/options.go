package budget

import (
	"net/http"
	"time"

	"connectrpc.com/connect"
)

// The defaults of a Client.
const (
	DefaultMaxWait       = 30 * time.Second
	DefaultRefundTimeout = 10 * time.Second
	DefaultLease         = 60 * time.Second
)

type options struct {
	httpClient    connect.HTTPClient
	rpc           []connect.ClientOption
	maxWait       time.Duration
	refundTimeout time.Duration
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

// WithMaxWait bounds how long Do waits in all for capacity, and for a broker
// that does not answer, before it gives up: [DefaultMaxWait] unless given. Zero
// asks once. The context's deadline bounds it too.
func WithMaxWait(d time.Duration) Option {
	return func(o *options) { o.maxWait = max(d, 0) }
}

// WithRefundTimeout bounds how long Do tries to deliver a Refund, whatever
// became of the caller's context: [DefaultRefundTimeout] unless given. When it
// passes, the broker takes the hold back by itself at the lease's end.
func WithRefundTimeout(d time.Duration) Option {
	return func(o *options) { o.refundTimeout = d }
}
