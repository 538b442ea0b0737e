package gateways

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/budgetd/budgetd/test/broker"
)

// nginxBinary finds nginx, which Debian keeps out of the PATH of users.
func nginxBinary(t testing.TB) string {
	t.Helper()
	for _, path := range []string{"nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	t.Fatal("nginx is not installed: .ci/install installs it")
	return ""
}

// startNginx runs nginx with the example of deploy/nginx, its addresses replaced,
// and returns its URL. passWithoutBroker uncomments the line that says so.
func startNginx(t testing.TB, brokerAddress, serviceAddress, key string, passWithoutBroker bool) string {
	t.Helper()
	text, err := os.ReadFile(repository("deploy", "nginx", "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	config := string(text)
	for old, replaced := range map[string]string{
		"server 127.0.0.1:8080;": "server " + brokerAddress + ";",
		"server 127.0.0.1:9000;": "server " + serviceAddress + ";",
		"listen 8081;":           "listen " + address + ";",
		// Of the machine, not of the example: nothing outside the directory.
		"\nhttp {": "\nhttp {\naccess_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;",
	} {
		if strings.Count(config, old) != 1 {
			t.Fatalf("nginx.conf has %q %d times", old, strings.Count(config, old))
		}
		config = strings.Replace(config, old, replaced, 1)
	}
	if passWithoutBroker {
		before := config
		if config = strings.Replace(config, "#error_page", "error_page", 1); config == before {
			t.Fatal("nginx.conf has no error_page to uncomment")
		}
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"nginx.conf":      config,
		"budget-key.conf": fmt.Sprintf("proxy_set_header X-Budget-Key %s;\n", key),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runNginx(t, dir, address)
	return "http://" + address
}

// runNginx runs nginx with the nginx.conf of a directory until the test ends, and
// returns when it listens at the address.
func runNginx(t testing.TB, dir, address string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(nginxBinary(t), "-p", dir, "-c", filepath.Join(dir, "nginx.conf"), "-e", "stderr",
		"-g", "daemon off; master_process off; pid nginx.pid;")
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("nginx:\n%s", log.String())
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("nginx ended: %v\n%s", err, log.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("nginx does not listen")
		}
	}
}

// A client of nginx sees 429 with Retry-After and the limit's headers once the
// demo's 10,000 tokens are used up: 4,000 a request. What it sends of its own
// does not reach the broker.
func TestNginx(t *testing.T) {
	b := broker.Start(t, "--demo")
	var served atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprintf(w, "served %s with %s", r.URL.Path, r.Header.Get("Authorization"))
	}))
	defer service.Close()
	start := func(passWithoutBroker bool) string {
		return startNginx(t, strings.TrimPrefix(b.URL, "http://"), strings.TrimPrefix(service.URL, "http://"), "demo", passWithoutBroker)
	}
	url := start(false)
	get := func(path string) (int, http.Header, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader("the client's body"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Basic of-the-service")
		request.Header.Set("X-Budget-Account", "another")
		request.Header.Set("X-Budget-Amount-Tokens", "1")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header, string(body)
	}
	status, header, body := get("/a")
	if status != http.StatusOK || body != "served /a with Basic of-the-service" || !strings.HasPrefix(header.Get("RateLimit"), `"tokens";r=6000;t=`) || header.Get("RateLimit-Policy") != `"tokens";q=10000;w=60` {
		t.Errorf("the first: %d %q %v", status, body, header)
	}
	if status, header, _ := get("/forbidden"); status != http.StatusForbidden || header.Get("Retry-After") != "" {
		t.Errorf("a 403 of the service: %d %v", status, header)
	}
	status, header, body = get("/c")
	t.Logf("refused: %d, Retry-After: %s, RateLimit: %s, RateLimit-Policy: %s", status, header.Get("Retry-After"), header.Get("RateLimit"), header.Get("RateLimit-Policy"))
	wait, err := strconv.Atoi(header.Get("Retry-After"))
	if status != http.StatusTooManyRequests || err != nil || wait < 1 || wait > 12 || header.Get("Budget-Limited-By") != "tokens" ||
		header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(header.Get("RateLimit"), `"tokens";r=`) || header.Get("RateLimit-Policy") != `"tokens";q=10000;w=60` {
		t.Errorf("the third: %d %q %v", status, body, header)
	}
	if n := served.Load(); n != 2 {
		t.Errorf("the service was asked %d times, want 2", n)
	}
	// Nothing passes while the broker does not answer, unless the file says so.
	b.Kill()
	if status, _, _ := get("/d"); status != http.StatusInternalServerError {
		t.Errorf("without a broker: %d", status)
	}
	url = start(true)
	if status, _, body := get("/e"); status != http.StatusOK || body != "served /e with Basic of-the-service" {
		t.Errorf("without a broker, where all is to pass: %d %q", status, body)
	}
	if n := served.Load(); n != 3 {
		t.Errorf("the service was asked %d times, want 3", n)
	}
}
