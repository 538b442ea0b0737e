package servers

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Main runs a package's tests, stops its shared servers and exits:
//
//	func TestMain(m *testing.M) { servers.Main(m) }
//
// A package without it leaves its shared servers to the end of the process,
// which ends them too.
func Main(m *testing.M) { os.Exit(Stopping(m).Run()) }

// Stopping wraps m so that Run also stops every server when the tests are
// done. It is for a TestMain that looks for leaked goroutines:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }
func Stopping(m *testing.M) Runner { return Runner{m} }

// Runner is a testing.M that stops the servers. See [Stopping].
type Runner struct{ m *testing.M }

// Run runs the tests, stops the servers and returns the exit code, which is
// not zero when a server could not be stopped.
func (r Runner) Run() int {
	code := r.m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the test servers:", err)
		code = max(code, 1)
	}
	return code
}

// Stop stops every server that this process started and removes their
// directories. A shared server starts anew when it is next asked for.
func Stop() error {
	return errors.Join(sharedPostgres.reset(), sharedCluster.reset(), sharedRedis.reset(), here.close())
}

// shared is something that is started once, on first use. A failure is kept
// as well: every test that needs the thing reports it, none tries again.
type shared[T any] struct {
	mu     sync.Mutex
	asked  bool
	value  T
	err    error
	finish func(T) error // what to do before the processes are ended; may be nil
}

func (s *shared[T]) get(start func() (T, error)) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked {
		s.asked = true
		s.value, s.err = start()
	}
	return s.value, s.err
}

func (s *shared[T]) reset() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.asked && s.err == nil && s.finish != nil {
		err = s.finish(s.value)
	}
	var none T
	s.asked, s.value, s.err = false, none, nil
	return err
}
