package servers

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// home is the test process's temporary directory with one directory per
// server, and the watching process that clears up after a test process that
// could not do so itself.
type home struct {
	mu      sync.Mutex
	dir     string
	servers int
	watch   *exec.Cmd
	alive   io.Closer // the watcher's standard input: it acts when this closes
	live    map[*process]struct{}
	keeper  keeper
}

var here home

// watcher waits for the end of its standard input, which comes when the test
// process ends in whatever way, then ends the servers that still run and
// removes the directory $1. A dying PostgreSQL may still write: so it tries
// again for a while.
const watcher = `cat >/dev/null
for f in "$1"/*/` + guardFile + `; do
	[ -f "$f" ] && read -r signal pid <"$f" && kill -"$signal" "$pid"
done
tries=100
until rm -rf "$1" || [ $tries -eq 0 ]; do tries=$((tries-1)); sleep 0.1; done`

// guardFile holds, while a server runs, the number of the signal that ends it
// and its process id.
const guardFile = "guard"

// newDir makes a directory for a server.
func (h *home) newDir(kind string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == "" {
		if err := h.open(); err != nil {
			return "", err
		}
	}
	h.servers++
	dir := filepath.Join(h.dir, kind+"-"+strconv.Itoa(h.servers))
	if err := os.Mkdir(dir, 0o711); err != nil {
		return "", fmt.Errorf("make a directory for a test server: %w", err)
	}
	return dir, nil
}

func (h *home) open() error {
	dir, err := os.MkdirTemp(tempRoot(), "budgetd-test-")
	if err != nil {
		return fmt.Errorf("make a directory for test servers: %w", err)
	}
	// The user that PostgreSQL runs as must reach its own part.
	if err := os.Chmod(dir, 0o711); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	cmd := exec.Command("/bin/sh", "-c", watcher, "budgetd-test-watcher", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start the watcher of test servers: %w", err), os.RemoveAll(dir))
	}
	h.dir, h.watch, h.alive = dir, cmd, stdin
	h.live = make(map[*process]struct{})
	return nil
}

// close stops what still runs, and has the watcher remove the directory.
func (h *home) close() error {
	h.mu.Lock()
	if h.dir == "" {
		h.mu.Unlock()
		return nil
	}
	live := make([]*process, 0, len(h.live))
	for p := range h.live {
		live = append(live, p)
	}
	watch, alive := h.watch, h.alive
	h.dir, h.watch, h.alive = "", nil, nil
	h.mu.Unlock()

	var errs []error
	for _, p := range live {
		errs = append(errs, p.kill())
	}
	errs = append(errs, alive.Close(), watch.Wait())
	h.keeper.release()
	return errors.Join(errs...)
}

func (h *home) enter(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live[p] = struct{}{}
}

func (h *home) leave(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.live, p)
}

// tempRoot is the system's temporary directory or, when the tests run as root
// and it is closed to other users, as /root/tmp is, /tmp.
func tempRoot() string {
	root := os.TempDir()
	if os.Geteuid() != 0 || openToAll(root) {
		return root
	}
	return "/tmp"
}

// openToAll says whether every user can pass through dir and its parents.
func openToAll(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil || !filepath.IsAbs(dir) {
		return false
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// removeDir removes a stopped server's directory.
func removeDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a test server's directory: %w", err)
	}
	return nil
}
