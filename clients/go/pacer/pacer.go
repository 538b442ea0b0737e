// Package pacer keeps a client a little under a limit that it knows, so that it
// is not refused: calls wait for their turn in the order in which they came. It is
// for batch work, where waiting in the client costs less than a refusal.
package pacer

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/time/rate"
)

// DefaultShare is how much of the limit's rate is used: clocks differ, and a call
// that leaves on time may arrive early.
const DefaultShare = 0.95

// Pacer is a token bucket that waits. It is safe for concurrent use.
type Pacer struct {
	limiter *rate.Limiter
	share   float64
}

// New makes a Pacer for a limit of perSecond units a second and a bucket of
// burst, which it takes to be full. It uses [DefaultShare] of the rate; both must
// be above 0.
func New(perSecond float64, burst int) (*Pacer, error) {
	return NewShare(perSecond, burst, DefaultShare)
}

// NewShare is New with another share of the rate, above 0 and at most 1.
func NewShare(perSecond float64, burst int, share float64) (*Pacer, error) {
	switch {
	case !(perSecond > 0) || perSecond > 1e12:
		return nil, fmt.Errorf("pacer: a rate of %g a second is not above 0, or over 1e12", perSecond)
	case burst < 1:
		return nil, fmt.Errorf("pacer: a burst of %d is not at least 1", burst)
	case !(share > 0) || share > 1:
		return nil, fmt.Errorf("pacer: a share of %g is not above 0 and at most 1", share)
	}
	return &Pacer{rate.NewLimiter(rate.Limit(perSecond*share), burst), share}, nil
}

// Wait waits until a call of so many units may leave, after those that asked
// before. It fails at once for units below 1 or above the burst, and where the
// context's deadline is sooner; and with the context's error when it ends
// meanwhile; what it waited for is then given back, unless others wait behind it.
func (p *Pacer) Wait(ctx context.Context, units int) error {
	if units < 1 {
		return fmt.Errorf("pacer: a call of %d units; at least 1", units)
	}
	return p.limiter.WaitN(ctx, units)
}

// SetLimit changes the limit's rate and burst, as by an answer's RateLimit-Policy;
// the share stays as it is. Values that New refuses change nothing.
func (p *Pacer) SetLimit(perSecond float64, burst int) error {
	other, err := NewShare(perSecond, burst, p.share)
	if err != nil {
		return err
	}
	p.limiter.SetLimit(other.limiter.Limit())
	p.limiter.SetBurst(burst)
	return nil
}

// Transport is an http.RoundTripper whose requests leave in their turn.
type Transport struct {
	Base  http.RoundTripper // http.DefaultTransport unless set
	Pacer *Pacer
	// Units says what a request counts for; 1 unless set.
	Units func(*http.Request) int
}

// RoundTrip implements http.RoundTripper. A request that does not get its turn
// fails with Wait's error.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	base, units := t.Base, 1
	if base == nil {
		base = http.DefaultTransport
	}
	if t.Units != nil {
		units = t.Units(request)
	}
	if err := t.Pacer.Wait(request.Context(), units); err != nil {
		if request.Body != nil {
			request.Body.Close()
		}
		return nil, err
	}
	return base.RoundTrip(request)
}
