package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/estimator/answer"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// Settled is how a reservation ended.
type Settled struct {
	Reservation string
	Provider    string
	Model       string
	Status      int // of the provider's answer; 0: there was none
	Charged     map[string]int64
	GivenBack   map[string]int64
	Err         error // the closing could not be delivered
}

// call is one reservation and the answer that it is for.
type call struct {
	transport *Transport
	request   *http.Request   // as the caller gave it
	ctx       context.Context // the request's, or in an envelope one that ends with it too
	running   *budget.Running
	endpoint  *Endpoint
	model     string
	status    int
	response  *http.Response

	mu       sync.Mutex
	follower follower
	ended    bool
	settled  chan struct{} // closed when the closing was delivered, or given up
	charged  map[string]int64
	unwatch  func() bool // of the context
	settleBy time.Time   // until when the end of the answer waits for the closing

	read  time.Time // when the last Read ended
	reads int       // that are going on
	lazy  *time.Timer
}

func (t *Transport) begin(request *http.Request, running *budget.Running, endpoint *Endpoint, model string) *call {
	t.closing(1)
	return &call{transport: t, request: request, ctx: request.Context(), running: running, endpoint: endpoint, model: model, settled: make(chan struct{})}
}

// neverAnswered ends a call without an answer. When its request went out whole the
// provider may have worked, and nobody knows what was used; when it did not, the call
// was not made. A base that does not tell how far it came is believed that an error
// means so too, as by [budget.Client.Do], unless the caller's context had ended.
func (c *call) neverAnswered(err error, sent *sending) {
	made := err == nil || c.ctx.Err() != nil // err is nil when the base panicked
	if sent.begun.Load() {
		made = sent.whole(err)
	}
	usage := budget.Usage{}
	if !made {
		usage = budget.Unused()
	}
	c.end(usage)
}

// stopped is why the broker ended the call before its caller did; nil: it did not.
func (c *call) stopped() error {
	var stopped *budget.StoppedError
	if errors.As(context.Cause(c.ctx), &stopped) {
		return stopped
	}
	return nil
}

// follow reads along with an answer until it ends.
func (c *call) follow(response *http.Response, layout answer.Layout, asksUsage bool) {
	c.response, c.status = response, response.StatusCode
	c.follower = followerOf(layout, response)
	if id := c.running.ID; id != "" && len(id) <= maxHeaderID {
		response.Header.Set("X-Budget-Reservation", id)
	}
	stream := isStream(c.request, response)
	through := &body{ReadCloser: response.Body, call: c}
	response.Body = through
	if asksUsage && kindOf(response) == kindSSE && !encoded(response) && response.StatusCode == http.StatusOK {
		response.Body = &hidingBody{ReadCloser: through, buffer: make([]byte, 16<<10)}
		response.ContentLength = -1
		response.Header.Del("Content-Length")
	}
	c.mu.Lock()
	c.read = time.Now()
	c.lazy = time.AfterFunc(c.lease(), c.watch)
	c.unwatch = context.AfterFunc(c.ctx, func() { c.finish(c.ctx.Err()) })
	c.mu.Unlock()
	if !c.transport.chargeHeaders {
		return
	}
	if stream {
		if response.Trailer == nil {
			response.Trailer = http.Header{}
		}
		response.Trailer[chargedHeader] = nil
		return
	}
	c.holdAnswer(through)
}

const (
	chargedHeader = "X-Budget-Charged"
	// maxHeaderID is the longest reservation id that is shown in a header: some
	// clients take 16 KiB of headers in all.
	maxHeaderID = 4 << 10
)

// holdAnswer reads a plain answer to its end, so that its headers can say what
// it was charged. One that is too large to hold passes without.
func (c *call) holdAnswer(through *body) {
	whole, err := io.ReadAll(io.LimitReader(through, answer.MaxBodyBytes+1))
	reader := io.Reader(bytes.NewReader(whole))
	switch {
	case err != nil:
		reader = io.MultiReader(reader, failing{err})
	case len(whole) > answer.MaxBodyBytes:
		reader = io.MultiReader(reader, through)
	default:
		if charged := c.charges(); charged != "" {
			c.response.Header.Set(chargedHeader, charged)
		}
	}
	c.response.Body = struct {
		io.Reader
		io.Closer
	}{reader, through}
}

// failing is a reader that fails.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

func (c *call) lease() time.Duration {
	if c.transport.lease == 0 {
		return budget.DefaultLease
	}
	return c.transport.lease
}

// reading notes that somebody waits for the answer.
func (c *call) reading(read func() (int, error)) (int, error) {
	c.mu.Lock()
	c.reads++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.reads--
		c.read = time.Now()
		c.mu.Unlock()
	}()
	return read()
}

// watch stops renewing when nobody has read the answer for a lease, so that an
// answer which is never closed does not hold for good. A late end still counts.
func (c *call) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
	case c.reads == 0 && time.Since(c.read) >= c.lease():
		go c.running.StopRenewing()
	default:
		c.lazy.Reset(c.lease())
	}
}

// see hands bytes of the answer to the follower, unless the call has ended.
func (c *call) see(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.follower.see(p)
	}
}

// finish ends the call with what was seen of its answer, once. The cause is
// io.EOF, what broke the answer off, or nil when the caller closed it.
func (c *call) finish(cause error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	usage := c.usage()
	c.ended, c.follower, c.settleBy = true, nil, time.Now().Add(c.transport.settleWait)
	c.lazy.Stop()
	unwatch := c.unwatch
	c.mu.Unlock()
	unwatch()
	go c.end(usage)
	charged := c.charges()
	if c.transport.chargeHeaders && errors.Is(cause, io.EOF) && charged != "" && c.response.Trailer != nil {
		c.response.Trailer.Set(chargedHeader, charged)
	}
}

// usage is what the call used, by what was seen of its answer.
func (c *call) usage() budget.Usage {
	seen, known := c.follower.answer()
	told := budget.Usage{Provider: c.endpoint.usageFormat(), ProviderUsage: seen.Usage, SeenText: seen.Text}
	if c.status < 200 || c.status > 299 {
		if known && seen.Usage != nil {
			return told
		}
		return budget.Unused()
	}
	switch {
	case seen.Refused:
		return budget.Unused()
	case !known:
		return budget.Usage{}
	case seen.Usage != nil:
		return told
	}
	// Cut before the provider told anything: it has read the input.
	input := c.running.Estimate.GetInput()
	if input == nil {
		return budget.Usage{}
	}
	return budget.Usage{Tokens: &budgetv1.TokenClasses{Input: &input.Expected}, SeenText: seen.Text}
}

// end closes the reservation.
func (c *call) end(usage budget.Usage) {
	t := c.transport
	defer t.closing(-1)
	defer close(c.settled)
	ctx := context.WithoutCancel(c.request.Context())
	receipt, err := c.running.End(ctx, usage)
	if connect.CodeOf(err) == connect.CodeInvalidArgument {
		// The provider's usage is not what its documents say. Nobody knows then.
		receipt, err = c.running.End(ctx, budget.Usage{})
	}
	c.mu.Lock()
	c.charged = receipt.GetCharged()
	c.mu.Unlock()
	if t.onSettled != nil {
		t.onSettled(Settled{
			Reservation: c.running.ID, Provider: c.endpoint.Provider, Model: c.model, Status: c.status,
			Charged: receipt.GetCharged(), GivenBack: receipt.GetGivenBack(), Err: err,
		})
	}
}

// charges waits for the closing of a call that has ended, and says what it charged;
// "" when it takes too long, or failed. All who wait do so until one instant.
func (c *call) charges() string {
	c.mu.Lock()
	by := c.settleBy
	c.mu.Unlock()
	timer := time.NewTimer(time.Until(by))
	defer timer.Stop()
	select {
	case <-c.settled:
	case <-timer.C:
		select {
		case <-c.settled:
		default:
			return ""
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, meter := range slices.Sorted(maps.Keys(c.charged)) {
		parts = append(parts, fmt.Sprintf("%s=%d", meter, c.charged[meter]))
	}
	return strings.Join(parts, ", ")
}
