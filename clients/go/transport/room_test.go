package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := newRoom(100)
		first, second := &place{room: &room}, &place{room: &room}
		if err := first.enter(t.Context(), 60); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := second.enter(t.Context(), 60); !errors.Is(err, errNoRoom) || time.Since(began) != roomWait {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := second.enter(short, 60); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		go func() { time.Sleep(time.Second); first.leave() }()
		if err := second.enter(t.Context(), 60); err != nil {
			t.Error(err)
		}
		if second.more(50) || !second.more(40) {
			t.Error("more than there is was taken, or less")
		}
		if err := second.decode(t.Context(), 1<<20, 1<<20); err != nil { // all of it, at most
			t.Error(err)
		}
		second.leave()
		if !room.bodies.TryAcquire(100) || !room.forms.TryAcquire(100) {
			t.Error("some is still taken")
		}
	})
}

// TestReadBody: bodies of known and unknown length, in whatever pieces, take the room
// that they need.
func TestReadBody(t *testing.T) {
	const most = 1 << 20
	for _, size := range []int{0, 1, firstRead, firstRead + 1, 300_000, most, most + 1} {
		for _, stated := range []int64{int64(size), -1, 0, 10, most} {
			for name, cut := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "end with data": iotest.DataErrReader} {
				text := strings.Repeat("x", size)
				room := newRoom(most)
				place := &place{room: &room}
				request, err := http.NewRequest(http.MethodPost, "http://x/", io.NopCloser(cut(strings.NewReader(text))))
				if err != nil {
					t.Fatal(err)
				}
				request.ContentLength = stated
				raw, err := readBody(request, most, place)
				if size > most && err == errTooLarge {
					place.leave()
					continue
				}
				if err != nil || string(raw) != text || place.bodies < int64(size) || cap(raw) > 2*max(size, firstRead)+2 {
					t.Errorf("%d bytes, stated %d, %s: %d, %v, room of %d, capacity %d", size, stated, name, len(raw), err, place.bodies, cap(raw))
				}
			}
		}
	}
	room := newRoom(100_000)
	held := &place{room: &room}
	if err := held.enter(t.Context(), 30_000); err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, "http://x/", io.NopCloser(strings.NewReader(strings.Repeat("x", 80_000))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readBody(request, most, &place{room: &room}); err != errNoRoom {
		t.Errorf("a body that grows beyond the room: %v", err)
	}
}

// TestPayload: a body can be read any number of times until it is let go.
func TestPayload(t *testing.T) {
	p := newPayload([]byte("hello"))
	for range 2 {
		body, err := p.open()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(iotest.OneByteReader(body)); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
	p.letGo()
	if _, err := p.open(); !errors.Is(err, errLetGo) {
		t.Errorf("after it was let go: %v", err)
	}
}

// BenchmarkReadRequest is what a body takes in memory while it is reserved for, its
// own bytes and the message to the broker not counted.
func BenchmarkReadRequest(b *testing.B) {
	for name, body := range map[string]string{
		"numbers":  `{"x":[` + strings.Repeat("0,", 300_000) + `0]}`,
		"objects":  `{"x":[` + strings.Repeat(`{"":0},`, 150_000) + `0]}`,
		"messages": `{"messages":[` + strings.Repeat(`{"role":"user","content":"The quick brown fox jumps over the lazy dog, and again."},`, 10_000) + `0]}`,
		"picture":  `{"messages":[{"image":"` + strings.Repeat("QUFB", 1<<20) + `"}]}`,
		"short":    `{"messages":[{"role":"user","content":"Hello there"}],"model":"gpt-4o-mini","max_tokens":100}`,
	} {
		b.Run(name, func(b *testing.B) {
			raw := []byte(body)
			values, _ := weigh(raw)
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if _, err := checkBounds(raw); err != nil {
					b.Fatal(err)
				}
				if _, err := readRequest(&Endpoint{Provider: "openai"}, "", raw); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(values), "values")
			b.ReportMetric(float64(len(raw)), "bytes")
		})
	}
}
