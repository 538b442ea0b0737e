package budget

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
)

// Client asks one broker, or several.
type Client struct {
	brokers    brokers
	admin      budgetv1connect.AdminServiceClient
	key        string
	options    options
	background background
	kept       kept
}

// New makes a Client for a broker's address ("http://127.0.0.1:8080",
// "https://budgetd.internal") and an API key. It does not connect yet.
func New(address, key string, opts ...Option) (*Client, error) {
	if key == "" {
		return nil, errors.New("key is empty: create one with `budgetd key create`")
	}
	o := defaults()
	for _, option := range opts {
		option(&o)
	}
	switch {
	case o.deadline <= 0:
		return nil, fmt.Errorf("deadline %v: want more than 0", o.deadline)
	case o.refundTimeout <= 0:
		return nil, fmt.Errorf("refund timeout %v: want more than 0", o.refundTimeout)
	case o.kept < 0 || o.keptFor < 0:
		return nil, fmt.Errorf("kept refunds: %d for %v: want 0 or more", o.kept, o.keptFor)
	case o.keptBytes < 0:
		return nil, fmt.Errorf("kept refunds: %d bytes: want 0 or more", o.keptBytes)
	case o.onLost == nil:
		return nil, errors.New("WithOnLost has no function")
	}
	c := &Client{key: key, options: o}
	c.kept.deliverOne, c.kept.lost = c.deliverKept, o.onLost
	c.kept.most, c.kept.mostBytes, c.kept.age = o.kept, o.keptBytes, o.keptFor
	c.kept.hurry = make(chan struct{}, 1)
	rpc := append([]connect.ClientOption{connect.WithInterceptors(credential{"Bearer " + key})}, o.rpc...)
	for _, each := range append([]string{address}, o.others...) {
		u, err := url.Parse(each)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, fmt.Errorf("address %q: want http://host:port or https://host:port", each)
		}
		c.brokers.each = append(c.brokers.each, newEndpoint(budgetv1connect.NewBudgetServiceClient(o.httpClient, each, rpc...)))
	}
	c.admin = budgetv1connect.NewAdminServiceClient(o.httpClient, address, rpc...)
	return c, nil
}

// Close waits for what runs in the background and delivers the Refunds that are
// kept, until ctx ends. What is then left is lost, and the error says how many.
// Afterwards nothing is kept any more; calls still work. Close it when nothing
// begins any more, so that a process does not take its last Refunds with it.
func (c *Client) Close(ctx context.Context) error {
	return errors.Join(c.background.close(ctx), c.kept.close(ctx))
}

// credential adds the key to every call.
type credential struct{ header string }

// WrapUnary adds the key to a call.
func (c credential) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		request.Header().Set("Authorization", c.header)
		return next(ctx, request)
	}
}

// WrapStreamingClient adds the key to a stream.
func (c credential) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", c.header)
		return conn
	}
}

// WrapStreamingHandler is for servers.
func (c credential) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// Service is the generated client, with the key set, for calls that this
// package has no convenience for (Charge, Estimate, GetQuota, ListUsage,
// GetReservation). It asks the broker of New's address only.
func (c *Client) Service() budgetv1connect.BudgetServiceClient { return c.brokers.each[0].service }

// Admin is the generated client of what operators do. It needs an admin key, and
// asks the broker of New's address only.
func (c *Client) Admin() budgetv1connect.AdminServiceClient { return c.admin }

// Request says what a call may use: amounts per meter, a model call, or both,
// where the amounts win for the meters that they name. Its maps and its LLM may be
// read after the call has returned: they must not be changed once they are used.
type Request struct {
	Account string            // may be empty when the key has exactly one
	Labels  map[string]string // at most 32
	Amounts map[string]int64  // per meter, in its unit; cost in nano-USD
	LLM     *budgetv1.LlmCall
	Lease   time.Duration // 1 ms to 24 h; 0: [DefaultLease]

	// MaxWait is how long the call may wait for its start, 0 to 1 h: where a limit
	// over time does not cover it now, the broker books it ahead, in the order in which
	// callers ask, and Reserve returns at its start. Where slots refuse it, it waits in
	// turn for one, and what is then left bounds the start. A deadline of the context bounds
	// it too. 0: it waits only where a limit is a leaky queue.
	MaxWait time.Duration

	// Priority is how much of limits that keep a share (keep_for) the call may use:
	// batch, default, interactive or critical. Empty: default.
	Priority string

	// Parent is the ID of the reservation that is the call's envelope: it takes from
	// that one and gives back to it, and its lease ends with that one's at the latest.
	// When the envelope is closed, the context of the call ends with a *[StoppedError] as
	// its cause. A call in an envelope states no MaxWait. Empty: none.
	Parent string

	// OnVerdict is called when what the broker says of the call changes: that it is to
	// wind down, within what remains, that it may go on after all, or that it is to
	// stop, which also ends the call's context. It asks for verdicts from the start, and
	// not only once the call says what it used ([Reservation.SetUsed]). It runs by itself,
	// one call of it at a time, of changes in quick succession the last; it may outlast End.
	OnVerdict func(Renewal)

	// Key makes a repeat of this very call harmless: the same key gets the
	// same reservation. Empty: the Client makes one for each call, so that its own
	// repeats after a lost answer are safe, and what they may hold is given back.
	// Of a call with a Key a Reserve whose answer was lost holds until the call is
	// repeated and refunded, or its lease ends.
	Key string

	// WhenDown is what becomes of this call when no broker answers. Zero: the
	// Client's.
	WhenDown WhenDown
}

func (r Request) message() *budgetv1.ReserveRequest {
	m := &budgetv1.ReserveRequest{
		Account: r.Account, Labels: r.Labels, Amounts: r.Amounts, Llm: r.LLM,
		IdempotencyKey: r.Key, Lease: durationpb.New(r.lease()), Priority: r.Priority, Parent: r.Parent,
	}
	if r.MaxWait != 0 {
		m.MaxWait = durationpb.New(r.MaxWait)
	}
	return m
}

// readable says which text of the request no broker could read.
func (r Request) readable() error {
	faulty := func(field string) error {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s is not UTF-8", field))
	}
	for field, text := range map[string]string{"account": r.Account, "idempotency key": r.Key, "model": r.LLM.GetModel(), "provider": r.LLM.GetProvider(), "parent": r.Parent} {
		if !utf8.ValidString(text) {
			return faulty(field)
		}
	}
	for name, value := range r.Labels {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return faulty(fmt.Sprintf("label %q", name))
		}
	}
	for meter := range r.Amounts {
		if !utf8.ValidString(meter) {
			return faulty(fmt.Sprintf("meter %q", meter))
		}
	}
	return nil
}

func (r Request) lease() time.Duration {
	if r.Lease == 0 {
		return DefaultLease
	}
	return r.Lease
}

// Reservation is what the broker granted.
type Reservation struct {
	ID        string    // empty: no broker answered, and WhenDown let the call through
	StartAt   time.Time // the start that it was given ahead, by the broker's clock; zero: it had none
	ExpiresAt time.Time
	Holds     []*budgetv1.Hold
	Degraded  bool // no broker, or not its store, answered, and a rule for that let the call through
	Estimate  *budgetv1.CallEstimate

	// GrantedMaxOutputTokens, for each choice of an LLM call, is the bound to give
	// to the model. Less than was asked for only where MinOutputTokens was stated.
	GrantedMaxOutputTokens int64

	// ShadowRefusals are the shadow limits that would have refused the call if they
	// were enforced.
	ShadowRefusals []*budgetv1.Refusal

	// LimitHeaders are RateLimit and RateLimit-Policy of the limit of which the
	// least share is left. Empty: none is known.
	LimitHeaders http.Header

	starts time.Time     // by this process's clock; zero: it has started
	left   time.Duration // of its lease, when the answer came
	keeper *keeper       // nil: nobody keeps it alive
}

func (c *Client) whenDown(request Request) WhenDown {
	if request.WhenDown.decide != nil {
		return request.WhenDown
	}
	return c.options.whenDown
}

// Refund reports what the call used and gives back the rest. Repeating it is
// safe. Of a Reservation without ID there is nothing to refund.
func (c *Client) Refund(ctx context.Context, reservation string, usage Usage) (*budgetv1.RefundResponse, error) {
	return c.refund(ctx, reservation, usage, c.options.deadline)
}

// refund is Refund with the patience that [ask] is to know of.
func (c *Client) refund(ctx context.Context, reservation string, usage Usage, patience time.Duration) (*budgetv1.RefundResponse, error) {
	message, err := usage.message(reservation)
	if err != nil {
		return nil, err
	}
	if reservation == "" {
		return &budgetv1.RefundResponse{}, nil
	}
	answer, err := ask(ctx, &c.brokers, attemptTimeout, patience, func(ctx context.Context, broker budgetv1connect.BudgetServiceClient) (*connect.Response[budgetv1.RefundResponse], error) {
		return broker.Refund(ctx, connect.NewRequest(message))
	})
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}
