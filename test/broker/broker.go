package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds the start of a broker, and a stop of it.
const startTimeout = 60 * time.Second

// Broker is a running budgetd: a broker, or a proxy in front of one.
type Broker struct {
	URL  string // "http://127.0.0.1:43210"
	tb   testing.TB
	cmd  *exec.Cmd
	log  *Output
	done chan struct{} // closed when the process has ended
}

var build struct {
	once sync.Once
	path string
	err  error
}

// Binary builds budgetd, once per test process, and returns its path.
func Binary(tb testing.TB) string {
	tb.Helper()
	build.once.Do(func() {
		_, file, _, _ := runtime.Caller(0)
		root := filepath.Join(filepath.Dir(file), "..", "..")
		dir, err := os.MkdirTemp("", "budgetd-binary-*")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "budgetd")
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", build.path, "./cmd/budgetd")
		cmd.Dir = root
		if text, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("go build ./cmd/budgetd: %w\n%s", err, text)
		}
	})
	if build.err != nil {
		tb.Fatal(build.err)
	}
	return build.path
}

// Remove removes what Binary built; for a TestMain, after its tests.
func Remove() {
	if build.path != "" {
		os.RemoveAll(filepath.Dir(build.path))
	}
}

// Main runs a package's tests, removes what Binary built, and exits with their
// code: for a TestMain whose tests start brokers.
func Main(m interface{ Run() int }) {
	code := m.Run()
	Remove()
	os.Exit(code)
}

// StartWith starts a broker as Start does, in a directory of its own, with a policy
// in force and an API key for accounts of it, which it returns.
func StartWith(tb testing.TB, policy string, accounts []string, args ...string) (b *Broker, key string) {
	tb.Helper()
	data := tb.TempDir()
	Apply(tb, policy, "--data", data)
	key = Key(tb, accounts, "--data", data)
	return Start(tb, append([]string{"--data", data}, args...)...), key
}

// Start starts "budgetd serve" on a free port with more arguments, waits until
// it is ready, and kills it at the end of the test. Without "--data" it gets a
// directory of its own.
func Start(tb testing.TB, args ...string) *Broker {
	tb.Helper()
	if !slices.Contains(args, "--data") {
		args = append(slices.Clip(args), "--data", tb.TempDir())
	}
	return start(tb, "serve", args)
}

// StartProxy starts "budgetd proxy" in front of a broker likewise.
func StartProxy(tb testing.TB, behind *Broker, args ...string) *Broker {
	tb.Helper()
	return start(tb, "proxy", append([]string{"--broker", behind.URL}, args...))
}

func start(tb testing.TB, command string, args []string) *Broker {
	tb.Helper()
	binary := Binary(tb)
	// Another process may take the port between our look and the broker's
	// bind: then it ends at once, and we look again.
	var last string
	for range 5 {
		address := FreeAddress(tb)
		b := launch(tb, binary, command, address, args)
		if b.ready() {
			tb.Cleanup(func() {
				b.Kill()
				if tb.Failed() {
					tb.Logf("log of %s at %s:\n%s", command, b.URL, b.log)
				}
			})
			return b
		}
		b.Kill()
		last = b.log.String()
		if !strings.Contains(last, "address already in use") {
			break
		}
	}
	tb.Fatalf("budgetd %s %s did not get ready:\n%s", command, strings.Join(args, " "), last)
	return nil
}

func launch(tb testing.TB, binary, command, address string, args []string) *Broker {
	tb.Helper()
	b := &Broker{URL: "http://" + address, tb: tb, log: &Output{}, done: make(chan struct{})}
	b.cmd = exec.Command(binary, append([]string{command, "--listen", address}, args...)...)
	b.cmd.Stderr, b.cmd.Stdout = b.log, b.log
	b.cmd.Env = cleanEnvironment()
	dieWithParent(b.cmd)
	if err := b.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		_ = b.cmd.Wait()
		close(b.done)
	}()
	return b
}

// cleanEnvironment keeps the settings of whoever runs the tests out of them.
func cleanEnvironment() []string {
	var kept []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "BUDGETD_") {
			kept = append(kept, pair)
		}
	}
	return kept
}

// FreeAddress is a loopback address, host:port, whose port was free just now.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func (b *Broker) ready() bool {
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) {
		select {
		case <-b.done:
			return false
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL+"/readyz", nil)
		if err == nil {
			var answer *http.Response
			if answer, err = http.DefaultClient.Do(request); err == nil {
				answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					cancel()
					return true
				}
			}
		}
		cancel()
		time.Sleep(5 * time.Millisecond) // a real process: poll, with a deadline
	}
	return false
}

// Kill ends the broker with SIGKILL, as a crash would, and waits for its end.
func (b *Broker) Kill() {
	_ = b.cmd.Process.Kill()
	<-b.done
}

// Stop asks the broker to end with SIGTERM and fails the test unless it ends
// by itself, with exit code 0.
func (b *Broker) Stop() {
	b.tb.Helper()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.tb.Fatal(err)
	}
	select {
	case <-b.done:
	case <-time.After(startTimeout):
		b.tb.Fatalf("the broker did not stop in %v:\n%s", startTimeout, b.log)
	}
	if code := b.cmd.ProcessState.ExitCode(); code != 0 {
		b.tb.Errorf("the broker ended with code %d:\n%s", code, b.log)
	}
}

// Log returns what the broker has written so far.
func (b *Broker) Log() string { return b.log.String() }

// Run runs another command of the binary to its end and returns what it wrote
// to standard output; the test fails unless it exits with 0.
func Run(tb testing.TB, args ...string) string {
	tb.Helper()
	out, code := Try(tb, args...)
	if code != 0 {
		tb.Fatalf("budgetd %s: exit status %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// Try runs a command that may fail, and returns what it printed, with its errors
// where it failed, and its exit code.
func Try(tb testing.TB, args ...string) (out string, code int) {
	tb.Helper()
	cmd := exec.Command(Binary(tb), args...)
	cmd.Env = cleanEnvironment()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var failed *exec.ExitError
	switch {
	case err == nil:
		return stdout.String(), 0
	case errors.As(err, &failed):
		return stdout.String() + stderr.String(), failed.ExitCode()
	}
	tb.Fatalf("budgetd %s: %v", strings.Join(args, " "), err)
	return "", 0
}

// Key makes an API key for accounts in the store that args name ("--data",
// directory or "--postgres", DSN), and returns it.
func Key(tb testing.TB, accounts []string, args ...string) string {
	tb.Helper()
	command := []string{"key", "create", "test", "--json=false"}
	for _, account := range accounts {
		command = append(command, "--account", account)
	}
	return strings.TrimSpace(Run(tb, append(command, args...)...))
}

// Apply puts a policy into force in the store that args name.
func Apply(tb testing.TB, policy string, args ...string) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		tb.Fatal(err)
	}
	Run(tb, append([]string{"apply", file}, args...)...)
}
