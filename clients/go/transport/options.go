package transport

import (
	"context"
	"net/http"
	"slices"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
)

// DefaultMaxBody bounds the body of a request that is recognised, in bytes. The
// broker has a bound of its own, max_request_bytes.
const DefaultMaxBody = 32 << 20

// DefaultSettleWait is how long the end of an answer waits for the broker to have
// its closing.
const DefaultSettleWait = 250 * time.Millisecond

type options struct {
	base          http.RoundTripper
	account       string
	labels        map[string]string
	caller        func(*http.Request) (Caller, error)
	endpoints     []Endpoint
	onUnknown     func(*http.Request, *UnrecognisedError) *http.Response
	fewestOutput  int64
	allowsLess    bool
	lease         time.Duration
	priority      string
	maxWait       time.Duration
	parent        string
	maxBody       int64
	maxUnderWay   int64
	settleWait    time.Duration
	chargeHeaders bool
	holdsBack     bool
	onLimit       func(ProviderLimit)
	onSettled     func(Settled)
}

// Option changes a default of [New].
type Option func(*options)

// WithBase sets what sends the calls on: http.DefaultTransport unless given.
func WithBase(base http.RoundTripper) Option {
	return func(o *options) { o.base = base }
}

// WithAccount sets who is billed. It may be left out when the client's key has
// exactly one account.
func WithAccount(account string) Option {
	return func(o *options) { o.account = account }
}

// WithLabels adds labels to every call. The model and the provider are labels
// without it.
func WithLabels(labels map[string]string) Option {
	return func(o *options) { o.labels = labels }
}

// WithPriority sets the priority of every call: batch, default, interactive or
// critical.
func WithPriority(priority string) Option {
	return func(o *options) { o.priority = priority }
}

// WithMaxWait sets how long a call may wait for its start, 0 to 1 h: where a limit over
// time does not cover it now, it is booked ahead and sent at the start that the broker
// gives, and where slots refuse it, it waits in turn for one. The end of its context gives that back. 0 unless given: then a call waits only
// where a limit is a leaky queue.
func WithMaxWait(most time.Duration) Option {
	return func(o *options) { o.maxWait = most }
}

// WithParent makes every call in an envelope, the reservation of that ID: it takes from
// it and gives back to it ([budget.Request.Parent]). Calls in an envelope do not wait by
// [WithMaxWait]. When the envelope is closed, calls under way end as by the end of their
// context, with a *[budget.StoppedError]. For a Transport that serves several envelopes
// there are [ContextWithParent] and [Caller].
func WithParent(reservation string) Option {
	return func(o *options) { o.parent = reservation }
}

// parentKey is where a context has its envelope.
type parentKey struct{}

// ContextWithParent makes the calls of ctx in an envelope, the reservation of that ID. It
// stands before [WithParent], and a [Caller] that names one before both. Empty: in none.
func ContextWithParent(ctx context.Context, reservation string) context.Context {
	return context.WithValue(ctx, parentKey{}, reservation)
}

// Caller says on whose budget a call is.
type Caller struct {
	Client   *budget.Client    // nil: that of [New]
	Account  string            // empty: that of [WithAccount]
	Labels   map[string]string // win over those of [WithLabels]
	Priority string            // empty: that of [WithPriority]
	MaxWait  *time.Duration    // nil: that of [WithMaxWait]; stated with a Parent it is refused
	Parent   string            // empty: that of [ContextWithParent], else of [WithParent]
}

// WithCaller asks on whose budget each call is, by the request or its context.
// The function must not change the request. Its error fails the call.
func WithCaller(caller func(*http.Request) (Caller, error)) Option {
	return func(o *options) { o.caller = caller }
}

// WithEndpoints adds kinds of calls to recognise, before [Endpoints].
func WithEndpoints(endpoints ...Endpoint) Option {
	return func(o *options) { o.endpoints = slices.Concat(endpoints, o.endpoints) }
}

// WithRefuseUnrecognised refuses calls that no endpoint matches with 403, instead
// of passing them through without a budget. The answer says why.
func WithRefuseUnrecognised() Option { return WithUnrecognised(refuseUnrecognised) }

// WithUnrecognised asks what to answer to a call that no endpoint matches, such as
// with [Fault.Answer], and tells why it is not recognised. nil passes the call
// through without a budget. The function must not read the request's body.
func WithUnrecognised(decide func(*http.Request, *UnrecognisedError) *http.Response) Option {
	return func(o *options) { o.onUnknown = decide }
}

// WithGrantedOutput lets a call with less output than it asks for through, down
// to fewest tokens for each choice, where its limits have not more left: the
// bound in the request is then set to what was granted. It has no effect on
// calls that are signed (Bedrock) or have no output.
func WithGrantedOutput(fewest int64) Option {
	return func(o *options) { o.fewestOutput, o.allowsLess = max(fewest, 0), true }
}

// WithLease sets the lease of the reservations, 1 ms to 24 h: [budget.DefaultLease]
// unless given. It is renewed as long as the answer is being read; of an answer
// that nobody reads or closes it ends after one or two lengths.
func WithLease(lease time.Duration) Option {
	return func(o *options) { o.lease = lease }
}

// WithMaxBody bounds the bodies of requests that are recognised: [DefaultMaxBody]
// bytes unless given. A larger one is refused with 413.
func WithMaxBody(bytes int64) Option {
	return func(o *options) { o.maxBody = bytes }
}

// WithMaxUnderWay bounds the bytes of bodies that the Transport has in memory at once,
// from their first byte until they are sent and their answer begins, and with the
// same bound once more the decoded forms of those that are being reserved for:
// [DefaultMaxUnderWay] unless given. A call that finds no room waits within its
// context, ten seconds at most, and is then refused with 503; a body that is larger
// than all of it with 413.
func WithMaxUnderWay(bytes int64) Option {
	return func(o *options) { o.maxUnderWay = max(bytes, 0) }
}

// WithSettleWait sets how long the end of an answer, or its Close, waits for the
// broker to have the closing: [DefaultSettleWait] unless given. What takes longer
// goes on in the background. Bytes of the answer never wait. With 0 nothing does,
// and a program must call [Transport.Wait] before it ends.
func WithSettleWait(most time.Duration) Option {
	return func(o *options) { o.settleWait = max(most, 0) }
}

// WithChargeHeaders says in x-budget-charged what a call was charged, such as
// "cost=1500000, tokens=320": in a header of a plain answer, which is held back
// for it until it is whole and the broker has kept the charge, and in a trailer
// of a stream, which is not held back. It is not there when the closing took
// longer than [WithSettleWait] allows.
func WithChargeHeaders() Option {
	return func(o *options) { o.chargeHeaders = true }
}

// WithHoldBack refuses calls by itself, without a reservation, while the
// provider's last refusal of the same model and credential asks to wait.
func WithHoldBack() Option {
	return func(o *options) { o.holdsBack = true }
}

// WithProviderLimits is told what each answer says of the provider's own limits.
// The function must be quick and safe for concurrent use.
func WithProviderLimits(observe func(ProviderLimit)) Option {
	return func(o *options) { o.onLimit = observe }
}

// WithSettled is told how each reservation ended. The function must be quick and
// safe for concurrent use.
func WithSettled(observe func(Settled)) Option {
	return func(o *options) { o.onSettled = observe }
}
