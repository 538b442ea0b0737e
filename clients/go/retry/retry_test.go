package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorded is a policy that notes its waits and takes no time.
func recorded(p Policy, random float64) (Policy, *[]time.Duration) {
	var slept []time.Duration
	p.Random = func() float64 { return random }
	p.Sleep = func(ctx context.Context, d time.Duration) error {
		slept = append(slept, d)
		return ctx.Err()
	}
	return p, &slept
}

func TestWaits(t *testing.T) {
	full := errors.New("full")
	for _, tt := range []struct {
		name   string
		policy Policy
		random float64
		after  []time.Duration // of each failing try
		want   []time.Duration
		ok     bool
	}{
		{"as asked, and a quarter", Policy{}, 1, []time.Duration{4 * time.Second, 8 * time.Second}, []time.Duration{5 * time.Second, 10 * time.Second}, true},
		{"growing by half", Policy{First: time.Second}, 0.5, []time.Duration{0, 0, 0}, []time.Duration{time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond}, true},
		{"growing no more", Policy{First: time.Second, Longest: time.Second}, 0, []time.Duration{0, 0}, []time.Duration{time.Second / 2, time.Second / 2}, true},
		{"so many tries", Policy{Tries: 2}, 0, []time.Duration{time.Second, time.Second}, []time.Duration{time.Second}, false},
		{"so long in all", Policy{MaxWait: 10 * time.Second}, 0, []time.Duration{6 * time.Second, 5 * time.Second}, []time.Duration{6 * time.Second}, false},
		{"too long at once", Policy{}, 0, []time.Duration{time.Hour}, nil, false},
	} {
		policy, slept := recorded(tt.policy, tt.random)
		try := 0
		err := policy.Do(t.Context(), func() error {
			if try++; try <= len(tt.after) {
				return fmt.Errorf("call: %w", &Later{After: tt.after[try-1], Err: full})
			}
			return nil
		})
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, full) || !slices.Equal(*slept, tt.want) {
			t.Errorf("%s: %v after %v, want %v", tt.name, err, *slept, tt.want)
		}
	}
	boom := errors.New("boom")
	calls := 0
	if err := (Policy{}).Do(t.Context(), func() error { calls++; return boom }); err != boom || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestTheContextEndsIt(t *testing.T) {
	policy, slept := recorded(Policy{}, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	full := errors.New("full")
	if err := policy.Do(ctx, func() error { return &Later{After: time.Second, Err: full} }); !errors.Is(err, full) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// A wait beyond the deadline is not begun.
	*slept = nil
	soon, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := (Policy{MaxWait: time.Hour, Sleep: policy.Sleep}).Do(soon, func() error { return &Later{After: 2 * time.Minute, Err: full} }); err == nil || errors.Is(err, context.DeadlineExceeded) || len(*slept) != 0 {
		t.Errorf("%v after %v", err, *slept)
	}
}

// service answers with what is next in its list, and notes the bodies.
type service struct {
	answers []answer
	bodies  []string
	open    int
}

type answer struct {
	status int // 0: the connection fails
	header http.Header
}

type counted struct {
	io.Reader
	closed func()
}

func (c counted) Close() error { c.closed(); return nil }

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		all, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(all)
		r.Body.Close()
	}
	s.bodies = append(s.bodies, body)
	next := s.answers[0]
	if s.answers = s.answers[1:]; next.status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	if next.header == nil {
		next.header = http.Header{}
	}
	s.open++
	return &http.Response{StatusCode: next.status, Header: next.header, Body: counted{strings.NewReader("x"), func() { s.open-- }}}, nil
}

func TestTransport(t *testing.T) {
	spent := http.Header{"X-Should-Retry": {"false"}, "Retry-After": {"1"}}
	for _, tt := range []struct {
		name, method string
		keyed, once  bool
		answers      []answer
		status       int // returned; 0: an error
		tries        int
	}{
		{"refused twice", "POST", false, false, []answer{{429, http.Header{"Retry-After": {"2"}}}, {503, nil}, {200, nil}}, 200, 3},
		{"spent", "POST", false, false, []answer{{429, spent}}, 429, 1},
		{"the service says so", "POST", false, false, []answer{{409, http.Header{"X-Should-Retry": {"true"}}}, {200, nil}}, 200, 2},
		{"not found", "GET", false, false, []answer{{404, nil}}, 404, 1},
		{"a post that may have arrived", "POST", false, false, []answer{{0, nil}}, 0, 1},
		{"a post that may be repeated", "POST", true, false, []answer{{0, nil}, {502, nil}, {200, nil}}, 200, 3},
		{"a get", "GET", false, false, []answer{{0, nil}, {504, nil}, {200, nil}}, 200, 3},
		{"a body that is gone", "POST", false, true, []answer{{429, nil}}, 429, 1},
		{"too often", "GET", false, false, []answer{{429, nil}, {429, nil}, {429, nil}, {429, nil}}, 429, 4},
	} {
		s := &service{answers: tt.answers}
		policy, slept := recorded(Policy{Tries: 4}, 0)
		request, err := http.NewRequest(tt.method, "http://example.com", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		if tt.keyed {
			request.Header.Set("Idempotency-Key", "k")
		}
		if tt.once {
			request.GetBody = nil
		}
		response, err := (&Transport{Base: s, Policy: policy}).RoundTrip(request)
		got := 0
		if err == nil {
			got = response.StatusCode
			response.Body.Close()
		}
		if got != tt.status || len(s.bodies) != tt.tries || len(*slept) != tt.tries-1 || s.open != 0 {
			t.Errorf("%s: %d, %v after %d tries and %v; %d answers are open", tt.name, got, err, len(s.bodies), *slept, s.open)
		}
		for _, body := range s.bodies {
			if body != "body" {
				t.Errorf("%s: sent %q", tt.name, body)
			}
		}
	}
}

func TestJitterStaysInItsBounds(t *testing.T) {
	for _, random := range []float64{0, 0.5, math.Nextafter(1, 0)} {
		policy, slept := recorded(Policy{Tries: 2}, random)
		_ = policy.Do(t.Context(), func() error { return &Later{After: 4 * time.Second, Err: io.EOF} })
		if wait := (*slept)[0]; wait < 4*time.Second || wait > 5*time.Second {
			t.Errorf("with %g: %v", random, wait)
		}
	}
}

// endless is a body of which nothing comes until it is closed.
type endless struct {
	closed chan struct{}
	once   sync.Once
}

func (e *endless) Read([]byte) (int, error) {
	<-e.closed
	return 0, io.ErrClosedPipe
}

func (e *endless) Close() error {
	e.once.Do(func() { close(e.closed) })
	return nil
}

// An answer that is not returned may go on for ever: nobody waits for its end.
func TestBodiesThatDoNotEnd(t *testing.T) {
	body := &endless{closed: make(chan struct{})}
	tries := 0
	transport := &Transport{
		Base: roundTripper(func(*http.Request) (*http.Response, error) {
			if tries++; tries > 1 {
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			}
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: body}, nil
		}),
		Policy: Policy{Tries: 2, First: time.Millisecond},
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://provider.test", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := transport.RoundTrip(request)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	<-body.closed
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
