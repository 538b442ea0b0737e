package sqliteledger_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/quota"
)

// childPath makes a test process one that appends until it is killed, to the
// file that it names. It prints the number of each closing after Append has
// returned.
const childPath = "BUDGETD_TEST_LEDGER_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		if err := appendForever(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

var spend = ledger.UsageKey{Account: "acme", Limit: "spend.0123abcd", Period: "m2026-11-01", Meter: quota.MeterCost}

func closing(number int) ledger.Closing {
	at := time.Date(2026, time.November, 15, 12, 0, 0, 0, time.UTC)
	return ledger.Closing{
		Account: spend.Account, Reservation: [16]byte{7: 1, 13: byte(number >> 16), 14: byte(number >> 8), 15: byte(number)},
		Minted: at, ClosedAt: at, Rank: ledger.RankRefunded,
		Lines: []ledger.Line{{Limit: spend.Limit, Period: spend.Period, Meter: spend.Meter, Amount: 1}},
	}
}

// The child's closings come in threes, so that a transaction cut in two would
// show.
const childBatch = 3

func appendForever(path string) error {
	first, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if err != nil {
		return err
	}
	l, err := sqliteledger.Open(context.Background(), sqliteledger.Config{Path: path, BusyTimeout: time.Minute})
	if err != nil {
		return err
	}
	for number := first; ; number += childBatch {
		batch := []ledger.Closing{closing(number), closing(number + 1), closing(number + 2)}
		if _, err := l.Append(context.Background(), batch); err != nil {
			return err
		}
		if _, err := fmt.Println(number); err != nil {
			return err
		}
	}
}

// TestProcessIsKilled kills a process in the middle of its Appends, with
// another process writing to the same file. What the victim acknowledged must
// be there, what it did not is there in full or not at all, and the survivor
// goes on.
func TestProcessIsKilled(t *testing.T) {
	d := fresh(t)
	l := open(t, d.path)
	defer l.Close()
	own, total := 5_000_000, 0
	for round := range 4 {
		first := 1_000_000 * round
		child := exec.Command(os.Args[0], strconv.Itoa(first))
		child.Env = append(os.Environ(), childPath+"="+d.path)
		child.Stderr = os.Stderr
		output, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := bufio.NewScanner(output)
		last := -1
		read := func() bool {
			if !acknowledged.Scan() {
				return false
			}
			if last, err = strconv.Atoi(acknowledged.Text()); err != nil {
				t.Error(err)
			}
			return true
		}
		for range 20 {
			if !read() {
				t.Fatal("the child ended by itself")
			}
			if _, err := l.Append(t.Context(), []ledger.Closing{closing(own)}); err != nil {
				t.Fatalf("beside another process: %v", err)
			}
			own++
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for read() { // what it still said before it died
		}
		if err := child.Wait(); err == nil {
			t.Error("the child was not killed")
		}

		kept := 0
		for number := first; ; number++ {
			c := closing(number)
			_, err := l.Closing(t.Context(), c.Account, c.Reservation, c.Minted)
			if errors.Is(err, ledger.ErrNotFound) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			kept++
		}
		if acked := last - first + childBatch; kept < acked || kept%childBatch != 0 {
			t.Errorf("%d closings are there, %d were acknowledged, in threes", kept, acked)
		}
		total += kept
	}
	usage, err := l.Usage(t.Context(), []ledger.UsageKey{spend})
	if err != nil {
		t.Fatal(err)
	}
	if want := quota.Amount(total + own - 5_000_000); usage[0].Used != want {
		t.Errorf("used %d, want %d", usage[0].Used, want)
	}
	if found, err := l.CheckSums(t.Context(), spend.Account); err != nil || len(found) > 0 {
		t.Errorf("the books do not add up: %+v, %v", found, err)
	}
}
