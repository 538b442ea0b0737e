package lengthstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/budgetd/budgetd/estimator/forecast"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// eachStore runs the test on every database that the product offers. open returns
// a store as another node would open it.
func eachStore(t *testing.T, test func(t *testing.T, open func() *Store)) {
	opened := func(t *testing.T, driver, dsn string) *sql.DB {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	t.Run("sqlite", func(t *testing.T) {
		dsn := "file:" + filepath.Join(t.TempDir(), "budgetd.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"
		if _, err := migrations.Up(t.Context(), opened(t, "sqlite", dsn), migrations.SQLite); err != nil {
			t.Fatal(err)
		}
		test(t, func() *Store { return Open(opened(t, "sqlite", dsn), Config{}) })
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := servers.MigratedDatabase(t)
		test(t, func() *Store { return Open(opened(t, "pgx", dsn), Config{RowLocks: true}) })
	})
}

func keyOf(n int) forecast.Key {
	return forecast.Key{Account: "acme", Model: "openai/gpt-4o-mini", Route: fmt.Sprint("route", n), Bound: 12}
}

func lengths(tokens ...int64) []forecast.Length {
	var all []forecast.Length
	for i, n := range tokens {
		all = append(all, forecast.Length{Tokens: n, At: now.UnixMicro() + int64(i), Cut: i%2 == 1})
	}
	return all
}

func merge(t *testing.T, s *Store, at time.Time, cells ...forecast.Cell) []forecast.Cell {
	t.Helper()
	merged, err := s.Merge(t.Context(), cells, at)
	if err != nil || len(merged) != len(cells) {
		t.Fatalf("%d of %d cells, error %v", len(merged), len(cells), err)
	}
	return merged
}

func TestBrokersHaveTheUnion(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		a, b := open(), open()
		one, two := lengths(10, 20, 30), lengths(40, 50)
		merge(t, a, now, forecast.Cell{Key: keyOf(1), Lengths: one}, forecast.Cell{Key: keyOf(2)})
		got := merge(t, b, now, forecast.Cell{Key: keyOf(2)}, forecast.Cell{Key: keyOf(1), Lengths: two})
		if want := forecast.Union(one, two); len(got[0].Lengths) != 0 || got[1].Key != keyOf(1) || !slices.Equal(got[1].Lengths, want) {
			t.Fatalf("merged %+v, want %+v", got, want)
		}
		// Again changes nothing, and whoever only asks gets it too.
		got = merge(t, a, now, forecast.Cell{Key: keyOf(1), Lengths: one})
		asked := merge(t, open(), now, forecast.Cell{Key: keyOf(1)})
		if !slices.Equal(got[0].Lengths, asked[0].Lengths) || len(got[0].Lengths) != 5 {
			t.Fatalf("merged %+v, asked %+v", got, asked)
		}
		// What nobody added to for longer than any forecast looks back is gone.
		asked = merge(t, b, now.Add(Retention+time.Second), forecast.Cell{Key: keyOf(1)})
		if len(asked[0].Lengths) != 0 {
			t.Fatalf("still kept: %+v", asked)
		}
	})
}

// Nodes that merge the same keys at once, in other orders, lose nothing.
func TestMergesAtOnceLoseNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		const nodes, keys, turns = 4, 20, 5
		var running sync.WaitGroup
		errs := make([]error, nodes)
		for node := range nodes {
			s := open()
			running.Go(func() {
				for turn := range turns {
					var cells []forecast.Cell
					for i := range keys {
						n := (i*(6*node+1) + node) % keys // 1, 7, 13 and 19 have no divisor in common with 20
						at := now.UnixMicro() + int64(node*turns+turn)
						cells = append(cells, forecast.Cell{Key: keyOf(n), Lengths: []forecast.Length{{Tokens: int64(n), At: at}}})
					}
					if _, err := s.Merge(context.Background(), cells, now); err != nil {
						errs[node] = errors.Join(errs[node], err)
					}
				}
			})
		}
		running.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var ask []forecast.Cell
		for n := range keys {
			ask = append(ask, forecast.Cell{Key: keyOf(n)})
		}
		for _, cell := range merge(t, open(), now, ask...) {
			if len(cell.Lengths) != nodes*turns {
				t.Errorf("%d lengths of %s, want %d", len(cell.Lengths), cell.Route, nodes*turns)
			}
		}
	})
}

func TestAwayIsSaid(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		if _, err := s.Merge(t.Context(), make([]forecast.Cell, forecast.MaxShare+1), now); err == nil {
			t.Error("too many keys are merged")
		}
		s.db.Close()
		if _, err := s.Merge(t.Context(), []forecast.Cell{{Key: keyOf(1)}}, now); !errors.Is(err, ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Merge(ended, []forecast.Cell{{Key: keyOf(1)}}, now); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}
