package replay

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts every child process from one thread. Linux sends the
// parent-death signal when the thread that forked ends, not when the process
// does, and Go ends threads as it likes; this one stays until close, which
// takes with it every child that still runs.
type spawner struct {
	jobs chan func()
	once sync.Once
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	s.jobs <- func() { started <- cmd.Start() }
	return <-started
}

func (s *spawner) close() { s.once.Do(func() { close(s.jobs) }) }
