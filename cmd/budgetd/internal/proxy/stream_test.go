package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/test/provider"
)

var words = []string{"one", " two", " three", " four"}

// stepped is a stream that waits before its first event, and before each word.
func stepped(id string) provider.Script {
	return provider.Script{ID: id, Steps: true, Pieces: words, Tokens: provider.Tokens{Input: 8}}
}

// beginStream begins a stepped call and reads its first word.
func (r *rig) beginStream(ctx context.Context, id string) (*http.Response, *bufio.Reader) {
	r.t.Helper()
	go func() { r.provider.Step(id); r.provider.Step(id) }()
	a, err := r.http.Do(r.request(ctx, chatPath, stream, stepped(id)))
	if err != nil {
		r.t.Fatal(err)
	}
	reader := bufio.NewReader(a.Body)
	for line := ""; !strings.Contains(line, words[0]); {
		if line, err = reader.ReadString('\n'); err != nil {
			r.t.Fatal(err)
		}
	}
	return a, reader
}

// finishStream lets a stepped call go on to its end, and reads it.
func (r *rig) finishStream(a *http.Response, reader *bufio.Reader, id string) {
	r.t.Helper()
	go func() {
		for range words[1:] {
			r.provider.Step(id)
		}
	}()
	rest, err := io.ReadAll(reader)
	a.Body.Close()
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		r.t.Errorf("%s: the stream ends with %q, %v", a.Proto, rest, err)
	}
	// Without a trailer where the broker took longer than an answer may wait for it.
	if charged := a.Trailer.Get("X-Budget-Charged"); charged != "" && !strings.Contains(charged, "tokens=12") {
		r.t.Errorf("%s: the trailer says %q", a.Proto, charged)
	}
}

// A stream may be silent for longer than one write may take, in its middle and
// before its end: over HTTP/1.1, over HTTP/2, and over TLS.
func TestSilentStream(t *testing.T) {
	const bound = 20 * time.Millisecond
	for _, way := range []struct {
		name  string
		speak func(*rig)
		major int
	}{
		{"HTTP 1.1", func(*rig) {}, 1},
		{"HTTP 2", (*rig).speakHTTP2, 2},
		{"TLS", (*rig).speakTLS, 2},
	} {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t)
			way.speak(r)
			r.begin(func(r *rig) { r.proxy.bounds.write = bound })
			a, reader := r.beginStream(t.Context(), "silent")
			if a.ProtoMajor != way.major {
				t.Fatal(a.Proto)
			}
			time.Sleep(3 * bound) // what is tested is that this time passes
			r.finishStream(a, reader, "silent")
			if used := r.used(); used != 12 {
				t.Errorf("%d tokens are charged, want 12", used)
			}
		})
	}
}

// speakTLS gives the proxy a certificate, and has the test's client trust it.
func (r *rig) speakTLS() {
	source := httptest.NewTLSServer(nil)
	defer source.Close()
	pair := source.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		r.t.Fatal(err)
	}
	dir := r.t.TempDir()
	r.config.TLSCert, r.config.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		r.config.TLSCert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		r.config.TLSKey:  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(source.Certificate())
	r.http.Transport = &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
}

// A caller that hangs up in mid-stream is charged for what was seen, and the
// provider need not go on.
func TestHangUp(t *testing.T) {
	for _, speak := range []func(*rig){func(*rig) {}, (*rig).speakHTTP2} {
		r := start(t)
		speak(r)
		ctx, hangUp := context.WithCancel(t.Context())
		a, _ := r.beginStream(ctx, "hung up")
		hangUp()
		a.Body.Close()
		await(t, "the provider to see it", func() bool { return len(r.provider.Calls()) == 1 })
		call := r.provider.Calls()[0]
		if used := r.used(); !call.Cut || used != call.Billed.Total() || used != 9 {
			t.Errorf("%d tokens are charged, the provider bills %+v, cut: %v", used, call.Billed, call.Cut)
		}
		await(t, "the call to end", func() bool { return r.metric("budgetd_proxy_calls_in_flight") == 0 })
	}
}

// A caller that does not read does not hold a stream, and the provider, for ever.
func TestSlowReader(t *testing.T) {
	r := start(t, func(r *rig) { r.proxy.bounds.write = 50 * time.Millisecond })
	sent := make(chan int, 1)
	r.serveAs(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event := `data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4o-mini","choices":[{"index":0,"delta":{"content":"` + strings.Repeat("word ", 5000) + `"}}]}` + "\n\n"
		n := 0
		for request.Context().Err() == nil {
			if _, err := io.WriteString(w, event); err != nil {
				break
			}
			n++
		}
		sent <- n
	}))
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.server.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", chatPath, budgetKey, len(stream), stream); err != nil {
		t.Fatal(err)
	}
	if n := <-sent; n == 0 {
		t.Error("the provider sent nothing")
	}
	await(t, "the call to end", func() bool { return r.metric("budgetd_proxy_calls_in_flight") == 0 })
	if used := r.used(); used < 1000 {
		t.Errorf("%d tokens are charged for what was seen", used)
	}
}
