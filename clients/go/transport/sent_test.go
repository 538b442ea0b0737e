package transport_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/budgetd/budgetd/clients/go/transport"
)

// wire is a provider that does with each connection what its script says.
type wire struct {
	listener net.Listener
	conns    atomic.Int32
}

// newWire serves each connection with the next function, the last one for all that
// follow. A function that returns closes its connection.
func newWire(t *testing.T, script ...func(net.Conn, *bufio.Reader)) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*net.TCPConn).SetReadBuffer(smallBuffer)
			serve := script[min(int(w.conns.Add(1)), len(script))-1]
			go func() {
				defer conn.Close()
				serve(conn, bufio.NewReader(conn))
			}()
		}
	}()
	return w
}

// takes reads one request whole.
func takes(_ net.Conn, r *bufio.Reader) bool {
	request, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, request.Body)
	return err == nil
}

// smallBuffer of a connection, so that what nobody reads is soon not sent.
const smallBuffer = 4 << 10

func dialSmall(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(smallBuffer)
	}
	return conn, err
}

const usageBody = `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`

// answers reads one request and answers it.
func answers(conn net.Conn, r *bufio.Reader) {
	if takes(conn, r) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 51\r\n\r\n"+usageBody)
	}
}

// reads takes the request and closes the connection.
func reads(conn net.Conn, r *bufio.Reader) { takes(conn, r) }

// answersThenReads answers one request, and only reads the next.
func answersThenReads(conn net.Conn, r *bufio.Reader) { answers(conn, r); takes(conn, r) }

// TestSentWhole: a call without an answer is charged what it held if its request had
// gone out whole, and nothing if it had not.
func TestSentWhole(t *testing.T) {
	r := newRig(t, nil)
	big := strings.Replace(chatAsk, "Hello there", strings.Repeat("Hello ", 40<<10), 1)
	arrived, done := make(chan struct{}), make(chan struct{})
	defer close(done)
	silent := func(conn net.Conn, reader *bufio.Reader) { takes(conn, reader); arrived <- struct{}{}; <-done }
	stalls := func(conn net.Conn, reader *bufio.Reader) { _, _ = reader.ReadByte(); arrived <- struct{}{}; <-done }
	for _, example := range []struct {
		name    string
		script  func(net.Conn, *bufio.Reader)
		arrives bool
		scheme  string
		ask     string
		header  time.Duration // how long the base waits for a header; 0: the caller gives up
		charged int64
	}{
		{"read and closed", reads, false, "http://", chatAsk, time.Minute, 100},
		{"no answer in time", silent, true, "http://", chatAsk, 50 * time.Millisecond, 100},
		{"the caller gives up", silent, true, "http://", chatAsk, 0, 100},
		{"the caller gives up while it is sent", stalls, true, "http://", big, 0, 0},
		{"closed before it is sent", func(net.Conn, *bufio.Reader) {}, false, "http://", big, time.Minute, 0},
		{"no TLS", answers, false, "https://", chatAsk, time.Minute, 0},
	} {
		t.Run(example.name, func(t *testing.T) {
			r.t = t
			w := newWire(t, example.script)
			base := &http.Transport{ResponseHeaderTimeout: example.header, WriteBufferSize: smallBuffer, DialContext: dialSmall}
			defer base.CloseIdleConnections()
			r.use(transport.WithBase(base))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if example.arrives {
				go func() {
					if <-arrived; example.header == 0 {
						cancel()
					}
				}()
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, example.scheme+w.listener.Addr().String()+chatPath, strings.NewReader(example.ask))
			if err != nil {
				t.Fatal(err)
			}
			if response, err := r.http.Do(request); err == nil {
				t.Fatal("there is an answer: ", response.Status)
			}
			if s := r.take(1)[0]; s.Charged["output_tokens"] != example.charged || example.charged == 0 && s.Charged["tokens"] != 0 || s.Status != 0 {
				t.Errorf("charged %v", s.Charged)
			}
		})
	}
	// Nobody there.
	r.t = t
	r.use()
	for _, address := range []string{"http://127.0.0.1:1", "http://nobody.invalid"} {
		request, err := http.NewRequest(http.MethodPost, address+chatPath, strings.NewReader(chatAsk))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.http.Do(request); err == nil {
			t.Fatal("there is an answer")
		}
		if s := r.take(1)[0]; s.Charged["tokens"] != 0 {
			t.Errorf("%s was charged %v", address, s.Charged)
		}
	}
}

// TestTriesOfNetHTTP: net/http may try again by itself on another connection. That is
// one call and one charge, whatever becomes of the tries.
func TestTriesOfNetHTTP(t *testing.T) {
	r := newRig(t, nil)
	for _, example := range []struct {
		name   string
		key    string // Idempotency-Key
		breaks bool   // the idle connection, as it is taken for the second call
		second bool   // another connection can be made
		conns  int32
		fails  bool
		output int64
	}{
		// A POST that was sent is not sent again without a key.
		{"sent without a key", "", false, true, 1, true, 100},
		{"sent, and again by its key", "k", false, true, 2, false, 4},
		// The first was sent whole: the provider may have worked.
		{"sent, and again to nobody", "k", false, false, 1, true, 100},
		{"not sent, and again", "", true, true, 2, false, 4},
		{"not sent, and again to nobody", "", true, false, 1, true, 0},
	} {
		t.Run(example.name, func(t *testing.T) {
			r.t = t
			w := newWire(t, answersThenReads, answers)
			var dials atomic.Int32
			var first atomic.Pointer[net.Conn]
			base := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials.Add(1) > 1 && !example.second {
					return nil, errors.New("nobody is there")
				}
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				first.CompareAndSwap(nil, &conn)
				return conn, err
			}}
			defer base.CloseIdleConnections()
			r.use(transport.WithBase(base))
			for i := range 2 {
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
					if conn := first.Load(); example.breaks && got.Reused && conn != nil && got.Conn == *conn {
						got.Conn.Close() // the broker's connections are told here too
					}
				}})
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.listener.Addr().String()+chatPath, strings.NewReader(chatAsk))
				if err != nil {
					t.Fatal(err)
				}
				if example.key != "" {
					request.Header.Set("Idempotency-Key", example.key)
				}
				response, err := r.http.Do(request)
				if i == 0 || !example.fails {
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				} else if err == nil {
					t.Fatal("there is an answer")
				}
				if i == 0 {
					r.charged(3, 4)
				}
			}
			s := r.take(1)[0]
			if s.Charged["output_tokens"] != example.output || (s.Charged["input_tokens"] == 0) != (example.output == 0) {
				t.Errorf("charged %v", s.Charged)
			}
			if w.conns.Load() != example.conns {
				t.Errorf("%d connections, want %d", w.conns.Load(), example.conns)
			}
		})
	}
}
