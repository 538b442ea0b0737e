package app

import (
	"net/http"
	"sync"
	"time"
)

// calls counts the calls under way, so that the stores are not closed under
// them: net/http's own count ends with the connection, while a Refund goes on
// when its caller has hung up.
type calls struct {
	mu       sync.Mutex
	underWay int
	closed   bool
	idle     chan struct{} // closed when closed and none is under way
}

func (c *calls) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.begin() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer c.end()
		next.ServeHTTP(w, r)
	})
}

func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.underWay++
	return true
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.underWay--
	if c.closed && c.underWay == 0 {
		close(c.idle)
	}
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.underWay
}

// drain takes no more calls and waits for those under way. It says whether all
// have ended.
func (c *calls) drain(within time.Duration) bool {
	c.mu.Lock()
	c.closed = true
	c.idle = make(chan struct{})
	if c.underWay == 0 {
		c.mu.Unlock()
		return true
	}
	c.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.idle:
		return true
	case <-timer.C:
		return false
	}
}
