package budget

import (
	"context"
	"fmt"
	"sync"
)

// mostInBackground bounds the Refunds, and the Reserves without a caller, that run
// at once in the background.
const mostInBackground = 256

// background runs what no caller waits for, a bounded number at a time.
type background struct {
	mu      sync.Mutex
	running int
	closed  bool
	idle    chan struct{} // closed when nothing runs any more; nil: nobody waits
}

// begin runs f by itself. False: too many run already, or the Client is closed.
func (b *background) begin(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.running >= mostInBackground {
		return false
	}
	b.running++
	go func() {
		defer b.end()
		f()
	}()
	return true
}

func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running--; b.running == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// close begins nothing any more, and waits until what runs has ended, or ctx has.
func (b *background) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	if b.running == 0 {
		b.mu.Unlock()
		return nil
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Errorf("calls that still run in the background: %d: %w", b.running, context.Cause(ctx))
}
