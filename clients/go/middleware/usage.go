package middleware

import (
	"context"
	"sync"

	budget "github.com/budgetd/budgetd/clients/go"
)

// guarded is one call under way.
type guarded struct {
	running *budget.Running

	mu    sync.Mutex
	usage budget.Usage
	ended bool
}

type contextKey struct{}

func from(ctx context.Context) *guarded {
	g, _ := ctx.Value(contextKey{}).(*guarded)
	return g
}

// SetUsage says what the call of ctx really used; the last word before the
// handler returns counts. Without it everything that was held counts as used.
// False: ctx is not of a guarded call, or its handler has returned.
func SetUsage(ctx context.Context, usage budget.Usage) bool {
	g := from(ctx)
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	g.usage = usage
	return true
}

// Reservation returns what was granted to the call of ctx, nil when it is not of
// a guarded call.
func Reservation(ctx context.Context) *budget.Reservation {
	g := from(ctx)
	if g == nil {
		return nil
	}
	return g.running.Reservation
}

// end closes the door to SetUsage and returns its last word.
func (g *guarded) end() budget.Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	return g.usage
}
