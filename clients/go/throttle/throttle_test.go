package throttle

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

// clock is a time that a test sets.
type clock struct{ now time.Time }

func newThrottle(random float64) (*Throttle, *clock) {
	c := &clock{time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}
	return New(Config{Now: func() time.Time { return c.now }, Random: func() float64 { return random }}), c
}

func TestChanceIsTheBooksFormula(t *testing.T) {
	for _, tt := range []struct {
		requests, accepts int
		want              float64
	}{
		{0, 0, 0}, {10, 10, 0}, {10, 5, 0}, {10, 4, 2.0 / 11}, {10, 0, 10.0 / 11}, {999, 0, 0.999},
	} {
		throttle, _ := newThrottle(0.9999)
		for i := range tt.requests {
			throttle.Done(i < tt.accepts)
		}
		if got := throttle.Chance(); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%d requests, %d accepted: %g, want %g", tt.requests, tt.accepts, got, tt.want)
		}
	}
}

func TestTheWindowRolls(t *testing.T) {
	throttle, c := newThrottle(0.5)
	for range 100 {
		throttle.Done(false)
		c.now = c.now.Add(time.Second)
	}
	if throttle.Allow() {
		t.Error("after 100 refusals a call with luck of 0.5 goes through")
	}
	c.now = c.now.Add(DefaultWindow - 10*time.Second)
	if got := throttle.Chance(); got != 10.0/11 { // nine of the hundred, and the dropped one
		t.Errorf("chance %g, want that of the last 10", got)
	}
	c.now = c.now.Add(time.Hour)
	if got := throttle.Chance(); got != 0 {
		t.Errorf("chance %g an hour later", got)
	}
	c.now = c.now.Add(-2 * time.Hour) // a clock that goes back
	if throttle.Done(false); throttle.Chance() != 0.5 {
		t.Errorf("chance %g after one call", throttle.Chance())
	}
}

func TestDo(t *testing.T) {
	throttle, _ := newThrottle(0.6)
	boom := errors.New("boom")
	calls := 0
	for range 10 {
		err := throttle.Do(func() (bool, error) { calls++; return false, boom })
		if err != boom && err != ErrDropped {
			t.Fatal(err)
		}
	}
	// The first two: after them the chance is 2/3.
	if calls != 2 {
		t.Errorf("%d calls were made, want 2", calls)
	}
}

type answers []int

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status := (*a)[0]
	if *a = (*a)[1:]; status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, nil
}

// Nothing is known of calls that are under way.
func TestManyAtOnceAreNotDropped(t *testing.T) {
	throttle, _ := newThrottle(0)
	for i := range 100 {
		if !throttle.Allow() {
			t.Fatalf("call %d was dropped before any had an answer", i+1)
		}
	}
}

func TestTransport(t *testing.T) {
	throttle, _ := newThrottle(0.9999)
	transport := &Transport{Base: &answers{200, 404, 429, 503, 0, 500}, Throttle: throttle}
	for range 6 {
		request, err := http.NewRequest(http.MethodPost, "http://example.com", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if response, err := transport.RoundTrip(request); err == nil {
			response.Body.Close()
		}
	}
	if throttle.total != (counts{6, 3}) {
		t.Errorf("%+v, want 3 of 6 accepted", throttle.total)
	}
	drops, _ := newThrottle(0)
	drops.Done(false)
	request, err := http.NewRequest(http.MethodGet, "http://example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&Transport{Throttle: drops}).RoundTrip(request)
	if err == nil {
		response.Body.Close()
	}
	if !errors.Is(err, ErrDropped) {
		t.Errorf("%v, want ErrDropped", err)
	}
}
