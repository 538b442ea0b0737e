package alerts

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Bounds of the deliveries of one node.
const (
	claimAtOnce = 32
	// claimFor is how long a node has for what it claimed: longer than the
	// attempts take, sendsAtOnce at a time, and the notes of their outcomes.
	claimFor     = claimAtOnce/sendsAtOnce*(sendWithin+noteWithin) + 20*time.Second
	noteWithin   = 5 * time.Second
	lookEvery    = time.Second      // at the outbox: other nodes fill it too
	pendingEvery = 15 * time.Second // that the waiting ones are counted

	// The waits between attempts grow from 5 s by 2 to 4 h, each up to a fifth
	// shorter or longer. MaxAttempts of them take about three days.
	firstWait   = 5 * time.Second
	growth      = 2
	longestWait = 4 * time.Hour
	jitter      = 0.2

	// MaxAttempts is how often an alert is sent before it is given up: 30, over
	// about three days.
	MaxAttempts = 30
)

// DelivererConfig is what a [Deliverer] works with. Store, URL and Secrets are
// required.
type DelivererConfig struct {
	Store   *Store
	URL     string   // as ParseURL takes it
	Secrets [][]byte // as ParseSecrets returns them
	// Clock is time.Now unless set.
	Clock func() time.Time
	// Registerer takes the metrics; none unless set.
	Registerer prometheus.Registerer
	// Log takes what an operator must know; slog.Default unless set.
	Log *slog.Logger
}

// Deliverer posts the alerts of the outbox to a webhook. Every node may run
// one: what one has claimed no other sends, unless it dies before it has noted
// the outcome. So a receiver gets each alert at least once, always with the same
// id.
type Deliverer struct {
	config     DelivererConfig
	webhook    *webhook
	wake       chan struct{}
	deliveries *prometheus.CounterVec
	pending    prometheus.Gauge
	away       atomic.Bool // the store did not answer last time
	refused    atomic.Bool // the receiver did not take the last one
}

// NewDeliverer returns a deliverer; call Run to have it work. The error says
// what of the URL or the secrets is wrong, and repeats neither.
func NewDeliverer(config DelivererConfig) (*Deliverer, error) {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	hook, err := newWebhook(config.URL, config.Secrets)
	if err != nil {
		return nil, err
	}
	d := &Deliverer{config: config, webhook: hook, wake: make(chan struct{}, 1)}
	d.deliveries, d.pending = newDelivererMetrics(config.Registerer)
	return d, nil
}

// Wake has Run look at the outbox now. It never blocks.
func (d *Deliverer) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends. An attempt that is cut off then is due again at
// once, on any node.
func (d *Deliverer) Run(ctx context.Context) {
	defer d.webhook.client.CloseIdleConnections()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var counted time.Time
	for {
		for more := true; more && ctx.Err() == nil; {
			more, _ = d.Deliver(ctx) // counted and logged there
		}
		if now := time.Now(); now.Sub(counted) >= pendingEvery {
			counted = now
			d.count(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		case <-d.wake:
		}
	}
}

// Deliver sends what is due, up to a bounded number, each once, and reports
// whether more may be due. What fails is put off or given up, which is no error
// here; the error is the store's.
func (d *Deliverer) Deliver(ctx context.Context) (more bool, err error) {
	asking, cancel := context.WithTimeout(ctx, noteWithin)
	claimed, err := d.config.Store.Claim(asking, d.config.Clock(), claimFor, claimAtOnce)
	cancel()
	if ctx.Err() == nil {
		d.noteStore(err)
	}
	if err != nil {
		return false, err
	}
	sends := errgroup.Group{}
	sends.SetLimit(sendsAtOnce)
	for _, a := range claimed {
		sends.Go(func() error { return d.attempt(ctx, a) })
	}
	err = sends.Wait()
	d.noteStore(err)
	return err == nil && len(claimed) == claimAtOnce, err
}

// attempt sends one alert and notes the outcome. The error is the store's: the
// alert is sent again then.
func (d *Deliverer) attempt(ctx context.Context, a Alert) error {
	result := d.webhook.send(ctx, &a, d.config.Clock())
	now := d.config.Clock()
	stopped := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWithin)
	defer cancel()
	log := d.config.Log.With("alert", a.ID, "account", a.Account, "limit", a.LimitName, "percent", a.Percent)
	switch {
	case result.delivered:
		if d.refused.CompareAndSwap(true, false) {
			log.Info("the webhook takes alerts again")
		}
		d.deliveries.WithLabelValues(outcomeDelivered).Inc()
		return d.config.Store.Delivered(ctx, a.ID, now)
	case stopped:
		return d.config.Store.Retry(ctx, a, now, "the broker stopped in mid-attempt")
	case result.final || a.Attempts >= MaxAttempts:
		d.deliveries.WithLabelValues(outcomeFailed).Inc()
		log.Error("an alert is given up: the webhook did not take it", "attempts", a.Attempts, "error", cut(result.why))
		return d.config.Store.Fail(ctx, a, now, result.why)
	}
	if d.refused.CompareAndSwap(false, true) {
		log.Warn("the webhook does not take alerts; they are sent again", "error", cut(result.why))
	}
	d.deliveries.WithLabelValues(outcomeRetried).Inc()
	return d.config.Store.Retry(ctx, a, now.Add(max(waitAfter(a.Attempts), result.retryAfter)), result.why)
}

// waitAfter is how long to wait after so many attempts.
func waitAfter(attempts int) time.Duration {
	b := backoff.ExponentialBackOff{
		InitialInterval: firstWait, Multiplier: growth, MaxInterval: longestWait, RandomizationFactor: jitter,
	}
	b.Reset()
	wait := b.NextBackOff()
	for range min(attempts, MaxAttempts) - 1 {
		wait = b.NextBackOff()
	}
	return wait
}

func (d *Deliverer) count(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	if n, err := d.config.Store.Pending(ctx); err == nil {
		d.pending.Set(float64(n))
	}
}

// noteStore logs when the store goes away or comes back.
func (d *Deliverer) noteStore(err error) {
	switch {
	case err != nil && d.away.CompareAndSwap(false, true):
		d.config.Log.Warn("the outbox of alerts does not answer; what is in it waits", "error", err)
	case err == nil && d.away.CompareAndSwap(true, false):
		d.config.Log.Info("the outbox of alerts answers again")
	}
}
