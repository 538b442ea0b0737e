// Package throttle drops calls in the client once a service refuses most of them,
// so that a service that is over its limits, or down, does not spend its time on
// refusing.
//
// It is client-side throttling after "Handling Overload" in Site Reliability
// Engineering (Beyer et al., 2016): of the calls of the last two minutes, requests
// were made and accepts were not refused; the next call is dropped with the
// probability max(0, (requests - K x accepts) / (requests + 1)). With K = 2 about
// as many calls reach a service that refuses as it accepts. Dropped calls count as
// requests, and others when their outcome is known: many that start at once are not
// taken for refused.
package throttle

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrDropped says that a call was not made, since most of the last ones were
// refused.
var ErrDropped = errors.New("throttle: dropped, since the service refused most of the last calls")

// The defaults of a Throttle.
const (
	DefaultRatio  = 2.0
	DefaultWindow = 2 * time.Minute
)

// buckets is how finely the window rolls: by a hundred and twentieth.
const buckets = 120

// Config is how a Throttle decides.
type Config struct {
	Ratio  float64          // K, at least 1; [DefaultRatio] unless set. 1.1 drops sooner, 3 later
	Window time.Duration    // how far it looks back, at least 120 ns; [DefaultWindow] unless set
	Now    func() time.Time // time.Now unless set
	Random func() float64   // from 0 up to 1; math/rand/v2 unless set
}

// Throttle decides about calls to one service. It is safe for concurrent use.
type Throttle struct {
	config Config
	width  time.Duration // of a bucket

	mu        sync.Mutex
	counts    [buckets]counts // a ring by the bucket's number
	last      int64           // number of the latest bucket
	total     counts
	accounted bool // last is set
}

type counts struct{ requests, accepts int64 }

// New makes a Throttle that has seen nothing.
func New(config Config) *Throttle {
	if config.Ratio < 1 {
		config.Ratio = DefaultRatio
	}
	if config.Window < buckets {
		config.Window = DefaultWindow
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Random == nil {
		config.Random = rand.Float64
	}
	return &Throttle{config: config, width: config.Window / buckets}
}

// Do makes the call unless it is dropped, which is [ErrDropped]. The call says
// whether the service accepted it: a service that answers, even with an error of
// the call's own, has accepted.
func (t *Throttle) Do(call func() (accepted bool, err error)) error {
	if !t.Allow() {
		return ErrDropped
	}
	accepted, err := call()
	t.Done(accepted)
	return err
}

// Allow says whether to make a call, and counts it if not. What became of one that
// was made is told to [Throttle.Done].
func (t *Throttle) Allow() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	bucket := t.roll()
	if t.config.Random() >= t.chance() {
		return true
	}
	bucket.requests++
	t.total.requests++
	return false
}

// Done counts a call that was made, and whether the service accepted it. A call that
// its caller gave up says nothing, and is not to be counted.
func (t *Throttle) Done(accepted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bucket := t.roll()
	bucket.requests++
	t.total.requests++
	if accepted {
		bucket.accepts++
		t.total.accepts++
	}
}

// Chance is the probability, from 0 up to 1, with which the next call is dropped.
func (t *Throttle) Chance() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roll()
	return t.chance()
}

func (t *Throttle) chance() float64 {
	requests, accepts := float64(t.total.requests), float64(t.total.accepts)
	return max(0, (requests-t.config.Ratio*accepts)/(requests+1))
}

// roll forgets what is older than the window, and returns the bucket of now. A
// clock that goes back counts in the latest bucket. t.mu is held.
func (t *Throttle) roll() *counts {
	now := t.config.Now().UnixNano() / int64(t.width)
	if !t.accounted {
		t.last, t.accounted = now, true
	}
	for steps := 0; t.last < now && steps < buckets; steps++ {
		t.last++
		old := &t.counts[place(t.last)]
		t.total.requests -= old.requests
		t.total.accepts -= old.accepts
		*old = counts{}
	}
	t.last = max(t.last, now)
	return &t.counts[place(t.last)]
}

func place(bucket int64) int64 { return (bucket%buckets + buckets) % buckets }
