package spool_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/spool"
	"github.com/budgetd/budgetd/quota"
)

// childScene makes a test process play a scene with the spool file that
// childPath names.
const (
	childScene = "BUDGETD_TEST_SPOOL_SCENE"
	childPath  = "BUDGETD_TEST_SPOOL_PATH"
)

var scenes = map[string]func(path string) error{
	"append until killed":  appendUntilKilled,
	"append until full":    appendUntilFull,
	"append until limited": func(path string) error { return errors.Join(limitFiles(), appendUntilFull(path)) },
}

// nowhere is a ledger behind the spool that is never there.
type nowhere struct{ ledger.Ledger }

func (nowhere) Append(context.Context, []ledger.Closing) ([]ledger.Verdict, error) {
	return nil, errAway
}
func (nowhere) Ping(context.Context) error { return errAway }

// appendUntilKilled prints the number of each closing once it is acknowledged.
func appendUntilKilled(path string) error {
	s, err := spool.Open(context.Background(), spool.Config{Next: nowhere{}, Path: path})
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	for caller := range 8 {
		wait.Go(func() {
			for number := caller; ; number += 8 {
				if _, err := s.Append(context.Background(), []ledger.Closing{closing(number, ledger.RankRefunded, 1)}); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				fmt.Println(number)
			}
		})
	}
	wait.Wait()
	return errors.New("the callers ended")
}

// appendUntilFull appends until the spool has no room, and checks that it then
// refuses, and keeps what it has acknowledged. It prints how many those are.
func appendUntilFull(path string) error {
	ctx := context.Background()
	s, err := spool.Open(ctx, spool.Config{Next: nowhere{}, Path: path})
	if err != nil {
		return err
	}
	kept := 0
	for ; ; kept++ {
		c := closing(kept, ledger.RankRefunded, 1)
		c.Outcome = make([]byte, 8<<10)
		_, err := s.Append(ctx, []ledger.Closing{c})
		if err == nil {
			continue
		}
		if !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "free space on the disk") {
			return fmt.Errorf("the error of a full disk: %w", err)
		}
		break
	}
	if err := s.Ping(ctx); !errors.Is(err, ledger.ErrUnavailable) {
		return fmt.Errorf("ping with a full disk: %v", err)
	}
	fmt.Println(kept)
	return nil // as it ends, the process closes nothing
}

func limitFiles() error {
	signal.Ignore(syscall.SIGXFSZ)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 5 << 20, Max: 5 << 20})
}

func child(scene, path string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childScene+"="+scene, childPath+"="+path)
	cmd.Stderr = os.Stderr
	return cmd
}

// TestProcessIsKilled kills a process in the middle of its Appends. The next
// one finds every closing that was acknowledged, and posts each once.
func TestProcessIsKilled(t *testing.T) {
	r := newRig(t, nil)
	for range 3 {
		if err := r.Spool.Close(); err != nil {
			t.Fatal(err)
		}
		c := child("append until killed", r.config.Path)
		output, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := map[int]bool{}
		lines := bufio.NewScanner(output)
		for lines.Scan() { // to the end of what it said before it died
			number, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Error(err)
			}
			acknowledged[number] = true
			if len(acknowledged) == 200 {
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := c.Wait(); err == nil {
			t.Error("the child was not killed")
		}
		r.start()
		for number := range acknowledged {
			c := closing(number, ledger.RankRefunded, 1)
			if got, err := r.Closing(t.Context(), c.Account, c.Reservation, c.Minted); err != nil || got.Body != c.Body {
				t.Fatalf("closing %d was acknowledged: %v", number, err)
			}
		}
		waiting := int(r.value("closings"))
		if waiting < len(acknowledged) {
			t.Errorf("%d closings wait, %d were acknowledged", waiting, len(acknowledged))
		}
		// The next round begins with the same numbers: they are in the ledger.
		if drained := r.drain(); len(drained) != waiting {
			t.Errorf("%d drained of %d", len(drained), waiting)
		}
		if filed := r.filed(); len(filed) > 0 {
			t.Errorf("filed: %v", filed)
		}
	}
	rows, err := r.books.AccountUsage(t.Context(), spend.Account, "", 10)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%v, %v", rows, err)
	}
	r.wantUsed(rows[0].Used)
}

// TestDiskIsFull fills a disk: nothing is acknowledged that is not kept, and
// what was kept is drained though the disk is still full.
func TestDiskIsFull(t *testing.T) {
	r := newRig(t, nil)
	if err := r.Spool.Close(); err != nil {
		t.Fatal(err)
	}
	scene := "append until full"
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Logf("a limit of the file size stands for a full disk: mount: %v", err)
		scene = "append until limited"
	} else {
		t.Cleanup(func() {
			if err := errors.Join(r.Spool.Close(), syscall.Unmount(disk, 0)); err != nil {
				t.Error(err)
			}
		})
	}
	r.config.Path = filepath.Join(disk, "spool.db")
	output, err := child(scene, r.config.Path).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	kept, err := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil || kept < 50 {
		t.Fatalf("%d closings fit: %v", kept, err)
	}
	r.start()
	if waiting := int(r.value("closings")); waiting != kept {
		t.Errorf("%d closings wait, %d were acknowledged", waiting, kept)
	}
	r.drain()
	r.wantUsed(quota.Amount(kept))
	r.books.away.Store(true)
	if v := r.append(closing(1<<20, ledger.RankRefunded, 0)); !v.Spooled {
		t.Errorf("with room again: %+v", v)
	}
}

// TestFileIsFull reaches the bound of the file itself.
func TestFileIsFull(t *testing.T) {
	r := newRig(t, func(c *spool.Config) { c.MaxBytes = spool.MinMaxBytes })
	r.books.away.Store(true)
	kept := 0
	var err error
	for ; err == nil; kept++ {
		c := closing(kept, ledger.RankRefunded, 1)
		c.Outcome = make([]byte, 8<<10)
		_, err = r.Append(t.Context(), []ledger.Closing{c})
	}
	kept--
	if !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "raise spool_max_bytes above 1048576") || kept < 50 {
		t.Errorf("after %d: %v", kept, err)
	}
	if err := r.Ping(t.Context()); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("ping: %v", err)
	}
	if v := r.append(closing(0, ledger.RankRefunded, 1)); !v.Spooled || v.Posted {
		t.Errorf("what is in the file already: %+v", v)
	}
	if bytes := r.value("bytes"); bytes > spool.MinMaxBytes || r.value("failures_total") != 1 {
		t.Errorf("%v bytes, %v failures", bytes, r.value("failures_total"))
	}
	// A closing can even be filed when there is no room.
	first := closing(0, ledger.RankRefunded, 7)
	if _, err := r.books.Ledger.Append(t.Context(), []ledger.Closing{first}); err != nil {
		t.Fatal(err)
	}
	r.books.away.Store(false)
	r.drain()
	r.wantUsed(quota.Amount(kept - 1 + 7))
	if filed := r.filed(); len(filed) != 1 {
		t.Errorf("filed: %v", filed)
	}
	r.books.away.Store(true)
	r.append(closing(1000, ledger.RankRefunded, 1))
	if err := r.Ping(t.Context()); err != nil {
		t.Errorf("ping with room again: %v", err)
	}
}
