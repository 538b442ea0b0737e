package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// startWithin bounds the wait for a server to answer. It is long because a
	// machine that runs every test at once is slow, and it is never waited for
	// by a server that exits.
	startWithin = 60 * time.Second
	// stopWithin bounds the wait for a signalled server to end. PostgreSQL
	// gives its own children 5 s before it kills them.
	stopWithin = 20 * time.Second
	// pollEvery is how often a starting server is asked.
	pollEvery = 20 * time.Millisecond
	// startTries bounds how often a start is tried again, with another port,
	// after somebody took the port between the probe and the bind.
	startTries = 10
	// firstPort to lastPort lie below the ports that Linux (32768 up) and macOS
	// (49152 up) hand out to connections, so that nobody gets a server's port
	// by chance while it is down. A Redis Cluster node also listens 10,000
	// above its port, still below.
	firstPort = 12000
	lastPort  = 22000
	busOffset = 10000
)

// errPortTaken says that somebody else listens on the port.
var errPortTaken = errors.New("the port is taken")

// process is one server's process, which can be ended and started again.
type process struct {
	name string // as in messages: "redis-server"
	dir  string
	end  syscall.Signal // ends it at once, without saving anything
	// command makes the command line for a start.
	command func(port int) *exec.Cmd
	user    *syscall.Credential
	// answers returns nil when the server with that process id serves on port.
	answers func(ctx context.Context, pid, port int) error

	mu     sync.Mutex
	port   int
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended and was waited for
}

// startAnywhere starts the server on a free port.
func (p *process) startAnywhere(bus bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for range startTries {
		if p.port, err = freePort(bus); err != nil {
			return err
		}
		if err = p.start(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// restart ends the server if it runs and starts it on its old port.
func (p *process) restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.stop(); err != nil {
		return err
	}
	deadline := time.Now().Add(stopWithin)
	for {
		err := p.start()
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollEvery)
	}
}

// start starts the server on p.port and waits until it answers.
func (p *process) start() error {
	// The log goes on from start to start, so that what happened before a
	// restart can still be read. What this start wrote comes after mark.
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", p.name, err)
	}
	mark := info.Size()

	cmd := p.command(p.port)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes(p.user, p.end)
	if err := here.keeper.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	exited := make(chan struct{})
	go func() {
		// How it ended is in its log; a killed server ends with an error.
		_ = cmd.Wait()
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited
	here.enter(p)
	guard := fmt.Sprintf("%d %d\n", int(p.end), cmd.Process.Pid)
	if err := os.WriteFile(filepath.Join(p.dir, guardFile), []byte(guard), 0o600); err != nil {
		return errors.Join(err, p.stop())
	}

	if err := p.awaitAnswer(); err != nil {
		said := p.logFrom(mark)
		err = errors.Join(err, p.stop())
		if bytes.Contains(said, []byte("Address already in use")) || bytes.Contains(said, []byte("Failed listening on port")) {
			err = errors.Join(errPortTaken, err)
		}
		return fmt.Errorf("start %s on port %d: %w\n%s", p.name, p.port, err, tail(said))
	}
	return nil
}

func (p *process) awaitAnswer() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := p.answers(ctx, p.cmd.Process.Pid, p.port)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return errors.New("it ended while it started")
		case <-ctx.Done():
			return fmt.Errorf("no answer within %s, last: %w", startWithin, err)
		case <-tick.C:
		}
	}
}

// kill ends the server at once and waits until it is gone.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stop()
}

func (p *process) stop() error {
	if p.cmd == nil {
		return nil
	}
	err := p.cmd.Process.Signal(p.end)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	select {
	case <-p.exited:
	case <-time.After(stopWithin):
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill %s, which did not end within %s: %w", p.name, stopWithin, err)
		}
		<-p.exited
	}
	p.cmd, p.exited = nil, nil
	here.leave(p)
	if err := os.Remove(filepath.Join(p.dir, guardFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// signal sends a signal to the running server.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("send %s to %s: it is not running", s, p.name)
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}

// pid returns the process id, 0 when the server is down.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *process) addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return loopback(p.port)
}

func (p *process) logFile() string { return filepath.Join(p.dir, "log") }

func (p *process) logFrom(mark int64) []byte {
	log, err := os.ReadFile(p.logFile())
	if err != nil {
		return fmt.Appendf(nil, "(no log: %v)", err)
	}
	return log[min(mark, int64(len(log))):]
}

// tail returns the end of a log, enough to see what went wrong.
func tail(log []byte) []byte {
	const limit = 4096
	return log[max(0, len(log)-limit):]
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePort finds a port that nobody listens on and, with bus, whose Redis
// Cluster bus port is free as well. Somebody may take it before the server
// does: see errPortTaken.
func freePort(bus bool) (int, error) {
	const probes = 200
	var err error
	for range probes {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if err = probe(port); err == nil && bus {
			err = probe(port + busOffset)
		}
		if err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free loopback port between %d and %d, last: %w", firstPort, lastPort, err)
}

func probe(port int) error {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return err
	}
	return l.Close()
}
