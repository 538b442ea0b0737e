package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/test/provider"
)

// partly is a connection on which a call has begun and its body has not ended.
type partly struct {
	net.Conn
	answers *bufio.Reader
}

// upload sends a call's header, and the first bytes of its body.
func (r *rig) upload(path, key string) partly {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.server.URL(), "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", path, key, len(chat), chat[:10]); err != nil {
		r.t.Fatal(err)
	}
	return partly{conn, bufio.NewReader(conn)}
}

// answer reads an answer, and says whether the connection has ended after it.
func (c partly) answer(t *testing.T) (a *http.Response, text string, ended bool) {
	t.Helper()
	a, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	text = read(t, a)
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err = c.answers.ReadByte()
	return a, text, err == io.EOF
}

// An upload that stalls is refused in the provider's shape, and its connection
// ends: one that is budgeted, one that is only forwarded, and one that was
// refused without its body.
func TestStalledUpload(t *testing.T) {
	r := start(t, func(r *rig) { r.proxy.bounds.stall, r.proxy.bounds.linger = 20*time.Millisecond, 20*time.Millisecond })
	for _, c := range []struct {
		path, key, shape string
		status           int
	}{
		{chatPath, budgetKey, `"code":"request_timeout"`, http.StatusRequestTimeout},
		{"/anthropic/v1/messages", budgetKey, `"type":"timeout_error"`, http.StatusRequestTimeout},
		{chatPath, "", `"invalid_api_key"`, http.StatusUnauthorized},
		{chatPath, budgetKeyA, `"invalid_api_key"`, http.StatusUnauthorized}, // unknown to the broker
	} {
		a, text, ended := r.upload(c.path, c.key).answer(t)
		if a.StatusCode != c.status || !strings.Contains(text, c.shape) || !ended {
			t.Errorf("%s with the key %q: %d %s, ended: %v", c.path, c.key, a.StatusCode, text, ended)
		}
	}
	if used := r.used(); used != 0 || len(r.provider.Calls()) != 0 {
		t.Errorf("%d tokens are charged; the provider saw %d calls", used, len(r.provider.Calls()))
	}
	await(t, "the calls to end", func() bool { return r.metric("budgetd_proxy_calls_in_flight") == 0 })
}

// The body of a call that costs nothing goes on as it comes. One that stalls is
// no fault of the provider.
func TestStalledFreeUpload(t *testing.T) {
	r := start(t, func(r *rig) { r.proxy.bounds.stall = 20 * time.Millisecond })
	gone := make(chan struct{})
	r.serveAs(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		defer close(gone)
		_, _ = io.Copy(io.Discard, request.Body)
	}))
	a, text, ended := r.upload("/anthropic/v1/messages/count_tokens", budgetKey).answer(t)
	if a.StatusCode != http.StatusRequestTimeout || !ended {
		t.Errorf("%d %s, ended: %v", a.StatusCode, text, ended)
	}
	<-gone
}

// A body that comes in drops has an end too.
func TestSlowUpload(t *testing.T) {
	r := start(t, func(r *rig) { r.config.UploadTimeout = 50 * time.Millisecond })
	c := r.upload(chatPath, budgetKey)
	answered := make(chan struct{})
	go func() {
		drops := time.NewTicker(10 * time.Millisecond)
		defer drops.Stop()
		for {
			select {
			case <-drops.C:
				_, _ = c.Write([]byte(" ")) // the proxy may have closed
			case <-answered:
				return
			}
		}
	}()
	a, err := http.ReadResponse(c.answers, nil)
	close(answered)
	if err != nil || a.StatusCode != http.StatusRequestTimeout {
		t.Errorf("%+v, %v", a, err)
	}
}

// Over HTTP/2 too, where other calls go on over the connection.
func TestStalledUploadHTTP2(t *testing.T) {
	r := start(t, func(r *rig) { r.proxy.bounds.stall = 20 * time.Millisecond })
	r.speakHTTP2()
	body, more := io.Pipe()
	defer more.Close()
	request := r.request(t.Context(), chatPath, "", provider.Script{})
	request.Body, request.ContentLength = body, int64(len(chat))
	go func() { _, _ = more.Write([]byte(chat[:10])) }()
	a, err := r.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if text := read(t, a); a.StatusCode != http.StatusRequestTimeout || a.ProtoMajor != 2 {
		t.Errorf("%s %d %s", a.Proto, a.StatusCode, text)
	}
	if a, text := r.call(chatPath, chat, provider.Script{}); a.StatusCode != http.StatusOK {
		t.Errorf("the next call: %d %s", a.StatusCode, text)
	}
}

// A call counts from its header on. Beyond the bound calls are refused at once,
// and told when to come back.
func TestMaxInFlight(t *testing.T) {
	r := start(t, func(r *rig) { r.config.MaxInFlight = 1 })
	first := r.upload(chatPath, budgetKey)
	await(t, "the upload to be seen", func() bool { return r.metric("budgetd_proxy_calls_in_flight") == 1 })
	a, text := r.call(chatPath, chat, provider.Script{})
	if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") != "1" || a.Header.Get("X-Should-Retry") != "true" || !strings.Contains(text, "too many calls") {
		t.Errorf("the second: %d %v %s", a.StatusCode, a.Header, text)
	}
	if _, err := io.WriteString(first, chat[10:]); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(first.answers, nil)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	read(t, answer)
	await(t, "the first to end", func() bool { return r.metric("budgetd_proxy_calls_in_flight") == 0 })
	if a, text := r.call(chatPath, chat, provider.Script{}); a.StatusCode != http.StatusOK {
		t.Errorf("the third: %d %s", a.StatusCode, text)
	}
}

// speakHTTP2 has the test's client do so, without TLS.
func (r *rig) speakHTTP2() {
	r.http.CloseIdleConnections()
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	r.http.Transport = transport
}
