package pacer

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallsLeaveInTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewShare(2, 3, 0.5) // one a second
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var mu sync.Mutex
		var order []int
		var left []time.Duration
		var running sync.WaitGroup
		for i := range 6 {
			running.Go(func() {
				if err := p.Wait(t.Context(), 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order, left = append(order, i), append(left, time.Since(began))
			})
			synctest.Wait()
		}
		running.Wait()
		for i, want := range []time.Duration{0, 0, 0, time.Second, 2 * time.Second, 3 * time.Second} {
			if order[i] != i || left[i] != want {
				t.Errorf("call %d left as number %d after %v, want %v", order[i], i, left[i], want)
			}
		}
	})
}

func TestWhoGivesUpGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewShare(1, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- p.Wait(ctx, 2) }()
		synctest.Wait()
		giveUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want canceled", err)
		}
		began := time.Now()
		if err := p.Wait(t.Context(), 1); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want a second", err, time.Since(began))
		}
	})
}

func TestBadLimits(t *testing.T) {
	nan := 0.0
	nan /= nan
	for _, bad := range []struct {
		rate  float64
		burst int
		share float64
	}{{0, 1, 1}, {-1, 1, 1}, {nan, 1, 1}, {1e13, 1, 1}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1.1}, {1, 1, nan}} {
		if p, err := NewShare(bad.rate, bad.burst, bad.share); err == nil || p != nil {
			t.Errorf("%+v makes a pacer", bad)
		}
	}
	p, err := New(10, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, units := range []int{-1, 0, 6} {
		if err := p.Wait(t.Context(), units); err == nil {
			t.Errorf("%d units may leave", units)
		}
	}
	if err := p.SetLimit(0, 5); err == nil || p.limiter.Limit() != 9.5 {
		t.Errorf("%v, and the rate is %g", err, p.limiter.Limit())
	}
	if err := p.SetLimit(20, 6); err != nil || p.limiter.Limit() != 19 || p.limiter.Burst() != 6 {
		t.Errorf("%v, and the rate is %g of %d", err, p.limiter.Limit(), p.limiter.Burst())
	}
}

// A new limit keeps the share that the Pacer was made with.
func TestSetLimitKeepsTheShare(t *testing.T) {
	p, err := NewShare(10, 5, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetLimit(20, 6); err != nil || p.limiter.Limit() != 10 || p.limiter.Burst() != 6 {
		t.Errorf("%v, and the rate is %g of %d, want half of 20", err, p.limiter.Limit(), p.limiter.Burst())
	}
}

func TestTransport(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer server.Close()
	p, err := New(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &Transport{Pacer: p, Units: func(r *http.Request) int { return int(r.ContentLength) }}}
	for body, ok := range map[string]bool{"xx": true, "xxx": false} {
		response, err := client.Post(server.URL, "text/plain", strings.NewReader(body))
		if err == nil {
			response.Body.Close()
		}
		if (err == nil) != ok {
			t.Errorf("%q: %v", body, err)
		}
	}
}
