// Package pause is what the rooms of the client share that wait.
package pause

import (
	"context"
	"time"
)

// For waits, or fails with the context's error when that ends first.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Seconds is a wait in whole seconds, as Retry-After has it: rounded up, so that
// whoever waits so long does not come too early, and at least 1.
func Seconds(d time.Duration) int64 { return max(int64((d+time.Second-1)/time.Second), 1) }
