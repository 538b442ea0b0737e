package reservation

import (
	"context"
	"time"
)

// shareInterval is how often a broker puts together with others what it learned
// of output lengths.
const shareInterval = 2 * time.Second

// lastShare is how long a broker that stops tries to hand on what it learned.
const lastShare = time.Second

// ShareForecasts merges with Parts.Forecasts what this broker learned of output
// lengths since the last time, and takes over what others learned of the kinds of
// calls that it meets. It reports whether more waits. What fails waits for the
// next time. It must not be called beside RunForecasts.
func (b *Broker) ShareForecasts(ctx context.Context) (more bool, err error) {
	if b.Forecasts == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.config.LedgerDeadline)
	defer cancel()
	more, err = b.forecasts.Share(ctx, b.Forecasts, b.now())
	if err != nil {
		b.metrics.sharesFailed.Inc()
	}
	return more, err
}

// RunForecasts shares forecasts every two seconds until ctx ends, and once more
// then: what this broker learned last is not lost with it.
func (b *Broker) RunForecasts(ctx context.Context) {
	if b.Forecasts == nil {
		return
	}
	sharing := trouble{logger: b.config.Logger, what: "sharing forecasts of output"}
	for {
		more, err := b.ShareForecasts(ctx)
		sharing.note(ctx, err)
		if err == nil && more && ctx.Err() == nil {
			continue
		}
		if !pause(ctx, shareInterval) {
			break
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastShare)
	defer cancel()
	for more, err := true, error(nil); more && err == nil; {
		more, err = b.ShareForecasts(last)
	}
}
