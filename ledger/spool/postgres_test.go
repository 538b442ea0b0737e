package spool_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/ledger/spool"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/test/servers"
)

// TestPostgresComesAndGoes kills and restarts PostgreSQL under callers, the
// spool restarts in between. Every call is acknowledged, and every closing is
// in the ledger once.
func TestPostgresComesAndGoes(t *testing.T) {
	server := servers.NewPostgres(t)
	db, err := sql.Open("pgx", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Up(t.Context(), db, migrations.Postgres); err != nil {
		t.Fatal(err)
	}
	db.Close()
	pool, err := pgxpool.New(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	engine, err := pgledger.New(t.Context(), pgledger.Pools{Main: pool}, noon)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	group, err := ledger.NewGroupCommitter(engine, ledger.GroupConfig{AppendTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()

	var drained sync.Map
	config := spool.Config{
		Next: grouped{engine, group}, Path: filepath.Join(t.TempDir(), "spool.db"), Patience: 500 * time.Millisecond,
		Drained: func(all []ledger.Drained) {
			for _, d := range all {
				drained.Store(d.Closing.Reservation, d.Verdict)
			}
		},
	}
	var s *spool.Spool
	var stop func()
	begin := func() {
		t.Helper()
		if s, err = spool.Open(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		stop = func() {
			cancel()
			running.Wait()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	begin()
	defer func() { stop() }()

	const callers, each = 16, 10
	var next, spooled atomic.Int64
	traffic := func() {
		t.Helper()
		var wait sync.WaitGroup
		for range callers {
			wait.Go(func() {
				for range each {
					c := closing(int(next.Add(1)), ledger.RankRefunded, 1)
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					verdicts, err := s.Append(ctx, []ledger.Closing{c})
					cancel()
					if err != nil {
						t.Errorf("not acknowledged: %v", err)
						return
					}
					if verdicts[0].Spooled {
						spooled.Add(1)
					} else if len(verdicts[0].Usage) != 1 {
						t.Errorf("%+v", verdicts[0])
					}
				}
			})
		}
		wait.Wait()
	}
	traffic()
	if spooled.Load() != 0 {
		t.Errorf("%d closings were spooled while PostgreSQL was there", spooled.Load())
	}
	for range 2 {
		// PostgreSQL goes away in the middle of the traffic.
		before := spooled.Load()
		var wait sync.WaitGroup
		wait.Go(traffic)
		server.Kill()
		wait.Wait()
		traffic()
		if spooled.Load()-before < callers*each {
			t.Errorf("%d closings were spooled", spooled.Load()-before)
		}
		stop()
		begin() // a new process that finds a spool and no PostgreSQL
		traffic()
		wait.Go(traffic)
		server.Restart()
		wait.Wait()
		await(t, func() bool { return !s.Away() })
		if _, err := s.Usage(t.Context(), []ledger.UsageKey{spend}); err != nil { // drains
			t.Fatal(err)
		}
		wantUsed(t, engine, quota.Amount(next.Load()))
	}
	count := int64(0)
	drained.Range(func(_, verdict any) bool {
		count++
		if v := verdict.(ledger.Verdict); v.Spooled || len(v.Usage) != 1 {
			t.Errorf("drained with %+v", v)
		}
		return true
	})
	if count < spooled.Load() {
		t.Errorf("%d were drained, %d were spooled", count, spooled.Load())
	}
}

// grouped is a ledger behind a group committer.
type grouped struct {
	ledger.Ledger
	group *ledger.GroupCommitter
}

func (g grouped) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	return g.group.Append(ctx, closings)
}
