package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
)

func migrated(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	db, err := OpenFile(path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := migrations.Up(t.Context(), db, migrations.SQLite); err != nil {
		t.Fatal(err)
	}
	return path
}

func opened(t *testing.T, config Config) *Ledger {
	t.Helper()
	l, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func oneClosing(number byte) ledger.Closing {
	at := time.Date(2026, time.November, 15, 12, 0, 0, 0, time.UTC)
	return ledger.Closing{
		Account: "acme", Reservation: [16]byte{1, 15: number}, Minted: at, ClosedAt: at, Rank: ledger.RankRefunded,
		Lines: []ledger.Line{{Period: "m2026-11-01", Meter: quota.MeterCost, Amount: 1}},
	}
}

// TestSettings reads back what durability hangs on.
func TestSettings(t *testing.T) {
	path := migrated(t)
	l := opened(t, Config{Path: path})
	for name, db := range map[string]*sql.DB{"write": l.write, "read": l.read} {
		for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} { // 2 is FULL
			var got string
			if err := db.QueryRow(`PRAGMA ` + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s connection: %s is %q, %v; want %q", name, pragma, got, err, want)
			}
		}
	}
	if _, err := l.read.Exec(`DELETE FROM usage`); err == nil {
		t.Error("a connection for reading can write")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v; want 0600", info.Mode(), err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		config Config
		says   string
	}{
		"no path":            {Config{}, "path: is empty"},
		"a negative timeout": {Config{Path: "x", BusyTimeout: -1}, "busy_timeout: "},
		"no directory":       {Config{Path: filepath.Join(t.TempDir(), "none", "ledger.db")}, "no such file"},
		"a directory":        {Config{Path: t.TempDir()}, "is a directory"},
		"no schema":          {Config{Path: filepath.Join(t.TempDir(), "empty.db")}, "budgetd migrate"},
	} {
		l, err := Open(t.Context(), c.config)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one with %q", what, err, c.says)
		}
		if l != nil && err != nil {
			t.Errorf("%s: a ledger and an error", what)
		}
	}
	garbage := filepath.Join(t.TempDir(), "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: garbage}); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("a file that is no database: error %v", err)
	}
}

func TestAnotherWriter(t *testing.T) {
	path := migrated(t)
	l := opened(t, Config{Path: path, BusyTimeout: 30 * time.Millisecond})
	patient := opened(t, Config{Path: path, BusyTimeout: time.Minute})
	other, err := OpenFile(path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.Begin() // takes the write lock
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Append(t.Context(), []ledger.Closing{oneClosing(1)})
	if !errors.Is(err, ledger.ErrUnavailable) || code(err) != sqlite3.SQLITE_BUSY {
		t.Errorf("a lock held too long: error %v, want ErrUnavailable and busy", err)
	}
	if err := l.Ping(t.Context()); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("ping: error %v, want ErrUnavailable", err)
	}
	// The context ends the wait, for the file and for the process's own turn.
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		failed := make(chan error)
		for number := range 2 {
			go func() {
				_, err := patient.Append(ctx, []ledger.Closing{oneClosing(byte(number + 1))})
				failed <- err
			}()
		}
		for range 2 {
			if err := <-failed; !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a deadline: error %v, want ErrUnavailable and DeadlineExceeded", err)
			}
		}
		cancel()
	}
	// Reads do not wait.
	if _, err := l.Usage(t.Context(), []ledger.UsageKey{{Account: "acme"}}); err != nil {
		t.Errorf("a read beside a writer: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if v, err := l.Append(t.Context(), []ledger.Closing{oneClosing(1)}); err != nil || !v[0].Posted {
		t.Errorf("after the lock is free: %+v, %v", v, err)
	}
}

func TestFullDisk(t *testing.T) {
	l := opened(t, Config{Path: migrated(t)})
	var pages int
	if err := l.write.QueryRow(`PRAGMA page_count`).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	limit := func(to int) {
		t.Helper()
		var got int
		if err := l.write.QueryRow(fmt.Sprintf(`PRAGMA max_page_count = %d`, to)).Scan(&got); err != nil || got < to {
			t.Fatalf("max_page_count is %d, %v", got, err)
		}
	}
	limit(pages + 1) // SQLite answers SQLITE_FULL beyond it, as for a full disk
	big := oneClosing(1)
	big.Outcome = make([]byte, ledger.MaxOutcomeBytes)
	_, err := l.Append(t.Context(), []ledger.Closing{oneClosing(2), big})
	if !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("error %v, want ErrUnavailable that says the disk is full", err)
	}
	if _, err := l.Closing(t.Context(), "acme", oneClosing(2).Reservation, big.Minted); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a part was written: %v", err)
	}
	limit(pages + 1000)
	if v, err := l.Append(t.Context(), []ledger.Closing{oneClosing(2), big}); err != nil || !v[0].Posted || !v[1].Posted {
		t.Errorf("with room again: %+v, %v", v, err)
	}
}
