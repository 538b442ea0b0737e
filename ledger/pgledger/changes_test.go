package pgledger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/quota"
)

// feed reads what changed since its mark, as versions by scope.
type feed struct {
	ledger *pgledger.Ledger
	mark   string
}

func (f *feed) read(tb testing.TB) map[string]int64 {
	tb.Helper()
	versions := map[string]int64{}
	for more := true; more; {
		page, err := f.ledger.Changes(context.Background(), f.mark, 2)
		if err != nil {
			tb.Fatal(err)
		}
		for _, u := range page.Usage {
			versions[u.Scope] = u.Version
		}
		f.mark, more = page.Mark, page.More
	}
	return versions
}

func (f *feed) want(tb testing.TB, what string, want map[string]int64) {
	tb.Helper()
	if got := f.read(tb); fmt.Sprint(got) != fmt.Sprint(want) {
		tb.Errorf("%s: changed %v, want %v", what, got, want)
	}
}

// inScope moves a closing's only line to a row of its own.
func inScope(c ledger.Closing, scope string) ledger.Closing {
	c.Lines = slices.Clone(c.Lines)
	c.Lines[0].Scope = scope
	return c
}

func awaitLockWaits(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		var waiting int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		if waiting == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d transactions wait for a lock, want %d", waiting, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// An Append that began earlier and commits later than others must not be
// skipped by whoever looked in between.
func TestChangesOfLateCommits(t *testing.T) {
	d := fresh(t)
	pool := d.pool(t, "")
	l := open(t, pool)
	mustAppend(t, l, inScope(closing(1, ledger.RankRefunded, 5), "slow"))
	f := &feed{ledger: l}
	f.want(t, "from now on", map[string]int64{})

	// Its row is locked, so the Append stands still in mid-transaction.
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `SELECT FROM usage WHERE scope = 'slow' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	slow := make(chan error, 1)
	go func() {
		_, err := l.Append(context.Background(), []ledger.Closing{inScope(closing(2, ledger.RankRefunded, 5), "slow")})
		slow <- err
	}()
	awaitLockWaits(t, pool, 1)

	for i, scope := range []string{"a", "b", "c"} {
		mustAppend(t, l, inScope(closing(10+i, ledger.RankRefunded, 1), scope))
	}
	halfway, first := *f, map[string]int64{}
	if page, err := l.Changes(t.Context(), halfway.mark, 1); err != nil || !page.More || len(page.Usage) != 1 {
		t.Fatalf("a first page: %+v, %v", page, err)
	} else {
		halfway.mark = page.Mark // the rest of it is read after the late commit
		first[page.Usage[0].Scope] = 1
	}
	f.want(t, "the younger ones", map[string]int64{"a": 1, "b": 1, "c": 1})
	mustAppend(t, l, inScope(closing(20, ledger.RankRefunded, 1), "a"))
	f.want(t, "another", map[string]int64{"a": 2})

	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-slow; err != nil {
		t.Fatal(err)
	}
	f.want(t, "the older one", map[string]int64{"slow": 2})
	f.want(t, "nothing more", map[string]int64{})
	maps.Copy(first, halfway.read(t))
	halfway.want(t, "what came after a walk that began before", map[string]int64{"a": 2, "slow": 2})
	if first["b"] != 1 || first["c"] != 1 || first["a"] == 0 || len(first) != 3 {
		t.Errorf("the walk that began before: changed %v", first)
	}
}

// The feed must not cost what makes updates of busy rows cheap.
func TestUsageUpdatesAreHeapOnly(t *testing.T) {
	pool := fresh(t).pool(t, "")
	l := open(t, pool)
	const updates = 50
	for i := range updates + 1 {
		mustAppend(t, l, closing(i, ledger.RankRefunded, 1))
	}
	var all, heapOnly int
	deadline := time.Now().Add(20 * time.Second)
	for all < updates {
		err := pool.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'usage'`).Scan(&all, &heapOnly)
		if err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the statistics know %d updates, want %d", all, updates)
		}
	}
	if heapOnly != all {
		t.Errorf("%d of %d updates were heap-only", heapOnly, all)
	}
}

func TestOldMarks(t *testing.T) {
	pool := fresh(t).pool(t, "")
	l := open(t, pool)
	ctx := t.Context()
	exec := func(statement string, arguments ...any) {
		t.Helper()
		if _, err := pool.Exec(ctx, statement, arguments...); err != nil {
			t.Fatal(err)
		}
	}
	logged := func(want int) {
		t.Helper()
		var rows int
		if err := pool.QueryRow(ctx, `SELECT count(*) FROM usage_changes`).Scan(&rows); err != nil || rows != want {
			t.Errorf("the log has %d rows, %v; want %d", rows, err, want)
		}
	}
	prune := func() {
		t.Helper()
		if done, err := l.Maintain(ctx, start, 0); err != nil || done.More {
			t.Fatalf("maintain: %+v, %v", done, err)
		}
	}
	pass := func() { // MarkLife passes
		t.Helper()
		exec(`UPDATE usage_changes_pruned SET next_taken = next_taken - $1::interval`, ledger.MarkLife)
		prune()
	}
	old, recent := &feed{ledger: l}, &feed{ledger: l}
	old.read(t)
	mustAppend(t, l, inScope(closing(1, ledger.RankRefunded, 1), "a"))
	prune()
	logged(1)
	pass()
	recent.read(t)
	mustAppend(t, l, inScope(closing(2, ledger.RankRefunded, 1), "b"))
	logged(2) // what was taken at the migration says nothing of the first
	pass()
	logged(1)
	if _, err := l.Changes(ctx, old.mark, 1); !errors.Is(err, ledger.ErrOldMark) || errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("a mark older than what was pruned: error %v, want ErrOldMark", err)
	}
	recent.want(t, "a mark that is good", map[string]int64{"b": 1})
	pass()
	logged(0)
	recent.want(t, "nothing changed", map[string]int64{})

	// A dump that is restored into a server that counts lower.
	var next uint64
	if err := pool.QueryRow(ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&next); err != nil {
		t.Fatal(err)
	}
	elsewhere := fmt.Sprintf("%d:%d:", next+1_000_000, next+1_000_000)
	exec(`UPDATE usage_changes_pruned SET pruned = $1::pg_snapshot, next = $1::pg_snapshot`, elsewhere)
	exec(`INSERT INTO usage_changes (xid, usage_ids) SELECT (pg_current_xact_id()::text::bigint + 1)::text::xid8, '{}'`)
	mustAppend(t, l, inScope(closing(3, ledger.RankRefunded, 1), "c"))
	recent.want(t, "a restored dump", map[string]int64{"c": 1})
	exec(`INSERT INTO usage_changes (xid, usage_ids) VALUES ((pg_current_xact_id()::text::bigint + 1000)::text::xid8, '{}')`)
	if _, err := l.Changes(ctx, elsewhere, 1); !errors.Is(err, ledger.ErrOldMark) {
		t.Errorf("a mark of another server: error %v, want ErrOldMark", err)
	}
	prune()
	logged(1)
	mustAppend(t, l, inScope(closing(4, ledger.RankRefunded, quota.MaxAmount), "d"))
	recent.want(t, "after the dump", map[string]int64{"d": 1})
}
