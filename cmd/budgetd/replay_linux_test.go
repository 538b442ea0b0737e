package main_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// descendants lists the children of a process that are not zombies.
func descendants(t *testing.T, parent int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if state, of := processState(pid); of == parent && state != "Z" {
			children = append(children, pid)
		}
	}
	return children
}

func isZombie(pid int) bool {
	state, _ := processState(pid)
	return state == "Z"
}

// processState reads the state and the parent of a process: proc(5), stat.
func processState(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// Ctrl-C in the middle of a run finishes what was begun, stops the broker and
// the workers, and leaves nothing.
func TestReplayInterrupted(t *testing.T) {
	trace := generatedTrace(t, 10, 5000)
	temp := t.TempDir()
	cmd, out, errs := replayCommand(t, temp, trace, "--speed", "10", "--kill", "10%", "--lease", "20s")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "workers of the replay", func() bool { return len(descendants(t, cmd.Process.Pid)) >= 3 })
	began := time.Now()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	r := finishReplay(t, temp, cmd, out, errs, cmd.Wait())
	if r.code != 1 || !strings.Contains(r.errs, "interrupted") || !r.report.Interrupted {
		t.Errorf("exit code %d, %q, %q", r.code, r.errs, r.out)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v to stop", took)
	}
}

// A replay that is killed takes its broker and its workers with it.
func TestReplayKilled(t *testing.T) {
	trace := generatedTrace(t, 11, 5000)
	cmd, _, _ := replayCommand(t, t.TempDir(), trace, "--speed", "10", "--kill", "10%", "--lease", "20s")
	// The children hold these too: waiting for their ends must not wait for
	// the children.
	cmd.Stdout, cmd.Stderr = nil, nil
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var children []int
	eventually(t, "workers of the replay", func() bool {
		children = descendants(t, cmd.Process.Pid)
		return len(children) >= 3
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, fmt.Sprintf("the end of the processes %v", children), func() bool {
		return !slices.ContainsFunc(children, func(pid int) bool { return syscall.Kill(pid, 0) == nil && !isZombie(pid) })
	})
}
