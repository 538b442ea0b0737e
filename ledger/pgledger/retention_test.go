package pgledger_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/quota"
)

// kept keeps September to November in mid-November.
const kept = 60 * 24 * time.Hour

// inMonth is a closing of a reservation that was made on the 20th of a month of
// 2026, on a row that all months share, as that of a yearly quota.
func inMonth(month time.Month, number int, rank ledger.Rank, amount quota.Amount) ledger.Closing {
	c := closing(number, rank, amount)
	c.Minted = time.Date(2026, month, 20, 12, 0, 0, 0, time.UTC)
	c.ClosedAt = c.Minted
	return c
}

func maintain(t *testing.T, l *pgledger.Ledger, retention time.Duration) ledger.Maintenance {
	t.Helper()
	var all ledger.Maintenance
	for more := true; more; {
		done, err := l.Maintain(t.Context(), start, retention)
		if err != nil {
			t.Fatal(err)
		}
		all.Made += done.Made
		all.Detached = append(all.Detached, done.Detached...)
		more = done.More
	}
	return all
}

func count(t *testing.T, pool *pgxpool.Pool, table string) (rows int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func wantTooOld(t *testing.T, l ledger.Appender, closings ...ledger.Closing) {
	t.Helper()
	_, err := l.Append(t.Context(), closings)
	if !errors.Is(err, ledger.ErrTooOld) || errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("error %v, want ErrTooOld", err)
	}
}

func TestRetention(t *testing.T) {
	d := fresh(t)
	pool := d.pool(t, "")
	l := open(t, pool)
	defer l.Close()
	for month := time.June; month <= time.November; month++ {
		mustAppend(t, l, inMonth(month, int(month), ledger.RankRefunded, quota.Amount(month)), inMonth(month, 100+int(month), ledger.RankExpired, 100))
	}
	const total = 6*100 + 6 + 7 + 8 + 9 + 10 + 11
	if done := maintain(t, l, 0); len(done.Detached) != 0 || done.Made != 0 {
		t.Errorf("without a retention: %+v", done)
	}
	if _, err := l.Maintain(t.Context(), start, 39*24*time.Hour); !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(err.Error(), "40 days") {
		t.Errorf("39 days: %v", err)
	}
	done := maintain(t, l, kept)
	if want := []string{"closings_2026_06", "entries_2026_06", "closings_2026_07", "entries_2026_07", "closings_2026_08", "entries_2026_08"}; !slices.Equal(done.Detached, want) {
		t.Errorf("detached %v, want %v", done.Detached, want)
	}
	awaitPartitions(t, pool, "2026_09", "2026_10", "2026_11", "2026_12", "2027_01")
	wantUsed(t, l, total) // and the books add up
	if rows := count(t, pool, "entries_2026_07"); rows != 2 {
		t.Errorf("the detached table has %d rows, want 2", rows)
	}

	// What is not kept takes nothing more, on nodes that knew the month, on new
	// ones, and also for months that never had a partition.
	other := open(t, d.pool(t, ""))
	defer other.Close()
	for _, node := range []*pgledger.Ledger{l, other} {
		wantTooOld(t, node, inMonth(time.June, 6, ledger.RankRefunded, 6))
		wantTooOld(t, node, inMonth(time.July, 107, ledger.RankRefunded, 6), inMonth(time.October, 500, ledger.RankRefunded, 1))
		wantTooOld(t, node, inMonth(time.March, 3, ledger.RankRefunded, 3))
	}
	june := inMonth(time.June, 6, ledger.RankRefunded, 6)
	if _, err := l.Closing(t.Context(), june.Account, june.Reservation, june.Minted); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a closing of a month that is not kept: %v", err)
	}
	// The others go on, and the next call finds nothing to do.
	mustAppend(t, other, inMonth(time.September, 109, ledger.RankRefunded, 0))
	wantUsed(t, l, total-100)
	if done := maintain(t, other, kept); len(done.Detached) != 0 {
		t.Errorf("detached again: %v", done.Detached)
	}
	if found := mismatch(t, d, l, total); len(found) != 1 || found[0].Entries != total-100 {
		t.Errorf("a damaged row: %+v", found)
	}
}

// mismatch damages the row, and returns what CheckSums finds.
func mismatch(t *testing.T, d database, l *pgledger.Ledger, used quota.Amount) []ledger.Mismatch {
	t.Helper()
	d.Damage(t, spend, used)
	found, err := l.CheckSums(t.Context(), spend.Account)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A month that is being detached when the node is cut off counts once all the
// time, takes nothing, and is detached by whoever comes next.
func TestRetentionIsCutOff(t *testing.T) {
	d := fresh(t)
	pool := d.pool(t, "")
	l := open(t, pool)
	defer l.Close()
	mustAppend(t, l, inMonth(time.July, 1, ledger.RankRefunded, 5), inMonth(time.October, 2, ledger.RankRefunded, 7))

	// Somebody reads: the sums can be carried, but no partition be detached.
	reader, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(t.Context(), `SELECT FROM closings`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := l.Maintain(ctx, start, kept)
		failed <- err
	}()
	await(t, func() bool {
		var pending bool
		err := pool.QueryRow(t.Context(), `SELECT coalesce(bool_or(inhdetachpending), false) FROM pg_inherits`).Scan(&pending)
		return err == nil && pending
	})
	cancel()
	if err := <-failed; !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("cut off: %v", err)
	}
	other := open(t, d.pool(t, ""))
	defer other.Close()
	for _, node := range []*pgledger.Ledger{l, other} {
		wantUsed(t, node, 12)
		wantTooOld(t, node, inMonth(time.July, 3, ledger.RankRefunded, 1))
		wantTooOld(t, node, inMonth(time.July, 1, ledger.RankRefunded, 5))
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Also when the setting is gone meanwhile.
	if done := maintain(t, other, 0); !slices.Equal(done.Detached, []string{"closings_2026_07", "entries_2026_07"}) {
		t.Errorf("detached %v", done.Detached)
	}
	wantUsed(t, l, 12)
}

// Months leave under traffic, with three nodes at it: what was appended in time
// counts, once, and the rest is refused.
func TestRetentionUnderTraffic(t *testing.T) {
	d := fresh(t)
	var nodes []*pgledger.Ledger
	for range 3 {
		l := open(t, d.pool(t, ""))
		defer l.Close()
		nodes = append(nodes, l)
	}
	mustAppend(t, nodes[0], inMonth(time.July, 0, ledger.RankRefunded, 1), inMonth(time.August, 0, ledger.RankRefunded, 1))
	var posted, refused atomic.Int64
	posted.Add(2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wait sync.WaitGroup
	for n, l := range nodes {
		wait.Go(func() {
			for i := 1; refused.Load() < 30 && ctx.Err() == nil; i++ {
				month := []time.Month{time.July, time.August, time.November}[i%3]
				_, err := l.Append(ctx, []ledger.Closing{inMonth(month, 10_000*(n+1)+i, ledger.RankRefunded, 1), inMonth(time.October, 10_000*(n+1)+i, ledger.RankRefunded, 1)})
				switch {
				case err == nil:
					posted.Add(2)
				case errors.Is(err, ledger.ErrTooOld):
					refused.Add(1)
				default:
					t.Errorf("append: %v", err)
					return
				}
			}
		})
		wait.Go(func() {
			for posted.Load() < 100 && ctx.Err() == nil {
			}
			for more := true; more && ctx.Err() == nil; {
				done, err := l.Maintain(ctx, start, kept)
				if err != nil && ctx.Err() == nil {
					t.Errorf("maintain: %v", err)
					return
				}
				more = done.More || len(done.Detached) > 0
			}
		})
	}
	wait.Wait()
	if refused.Load() < 30 {
		t.Fatalf("%d were refused", refused.Load())
	}
	maintain(t, nodes[0], kept)
	wantUsed(t, nodes[0], quota.Amount(posted.Load()))
	awaitPartitions(t, d.pool(t, ""), "2026_09", "2026_10", "2026_11", "2026_12", "2027_01")
}

// Books that are damaged are not carried: the damage would be out of sight.
func TestRetentionOfDamagedBooks(t *testing.T) {
	d := fresh(t)
	l := open(t, d.pool(t, ""))
	defer l.Close()
	mustAppend(t, l, inMonth(time.July, 1, ledger.RankRefunded, 5))
	d.Lose(t, spend)
	if _, err := l.Maintain(t.Context(), start, kept); err == nil || !strings.Contains(err.Error(), "1 of them do not exist") {
		t.Errorf("error %v", err)
	}
	if found, err := l.CheckSums(t.Context(), spend.Account); err != nil || len(found) != 1 || found[0].Entries != 5 {
		t.Errorf("%+v, %v", found, err)
	}
}

// Months are made ahead on a node without traffic.
func TestMonthsAheadWithoutTraffic(t *testing.T) {
	d := fresh(t)
	pool := d.pool(t, "")
	l := open(t, pool)
	defer l.Close()
	done, err := l.Maintain(t.Context(), start.AddDate(0, 1, 0), 0)
	if err != nil || done.Made != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	awaitPartitions(t, pool, "2026_11", "2026_12", "2027_01", "2027_02")
	if done, err := l.Maintain(t.Context(), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), 0); err != nil || done.Made != 0 {
		t.Errorf("the end of time: %+v, %v", done, err)
	}
}

// await polls until something is so.
func await(t *testing.T, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatal("it does not come true")
		}
	}
}
