package servers

import (
	"os/exec"
	"runtime"
	"sync"
)

// keeper is the one operating system thread that starts every server. The
// parent-death signal of Linux is sent when the thread that forked the child
// ends, not when the process does, and Go ends threads as it likes: so the
// thread is locked to a goroutine that stays until no server is left.
type keeper struct {
	mu   sync.Mutex
	jobs chan func()
}

// start runs cmd.Start on the keeper's thread.
func (k *keeper) start(cmd *exec.Cmd) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.jobs == nil {
		k.jobs = make(chan func())
		go serveJobs(k.jobs)
	}
	started := make(chan error, 1)
	k.jobs <- func() { started <- cmd.Start() }
	return <-started
}

// release ends the thread, and with it every process that it started.
func (k *keeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.jobs != nil {
		close(k.jobs)
		k.jobs = nil
	}
}

func serveJobs(jobs <-chan func()) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	for job := range jobs {
		job()
	}
}
