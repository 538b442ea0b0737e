package pgledger_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/test/servers"
)

var spend = ledger.UsageKey{Account: "acme", Limit: "spend.0123abcd", Period: "m2026-11-01", Meter: quota.MeterCost}

func closing(number int, rank ledger.Rank, amount quota.Amount) ledger.Closing {
	return ledger.Closing{
		Account: spend.Account, Reservation: [16]byte{7: 1, 13: byte(number >> 16), 14: byte(number >> 8), 15: byte(number)},
		Minted: start, ClosedAt: start, Rank: rank,
		Lines: []ledger.Line{{Limit: spend.Limit, Period: spend.Period, Meter: spend.Meter, Amount: amount}},
	}
}

func mustAppend(tb testing.TB, l ledger.Appender, closings ...ledger.Closing) []ledger.Verdict {
	tb.Helper()
	verdicts, err := l.Append(context.Background(), closings)
	if err != nil {
		tb.Fatal(err)
	}
	return verdicts
}

func wantUsed(tb testing.TB, l ledger.Ledger, want quota.Amount) {
	tb.Helper()
	usage, err := l.Usage(context.Background(), []ledger.UsageKey{spend})
	if err != nil {
		tb.Fatal(err)
	}
	if usage[0].Used != want {
		tb.Errorf("used %d, want %d", usage[0].Used, want)
	}
	if found, err := l.CheckSums(context.Background(), spend.Account); err != nil || len(found) > 0 {
		tb.Errorf("the books do not add up: %+v, %v", found, err)
	}
}

// turns counts round trips on the wire: how often a connection's owner stops
// writing and begins to read.
type turns struct {
	net.Conn
	mu    *sync.Mutex
	wrote *bool
	count *atomic.Int64
}

func (c turns) Write(data []byte) (int, error) {
	c.mu.Lock()
	*c.wrote = true
	c.mu.Unlock()
	return c.Conn.Write(data)
}

func (c turns) Read(data []byte) (int, error) {
	c.mu.Lock()
	if *c.wrote {
		c.count.Add(1)
		*c.wrote = false
	}
	c.mu.Unlock()
	return c.Conn.Read(data)
}

func TestRoundTrips(t *testing.T) {
	config, err := pgxpool.ParseConfig(fresh(t).dsn)
	if err != nil {
		t.Fatal(err)
	}
	var count atomic.Int64
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return turns{conn, new(sync.Mutex), new(bool), &count}, err
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l := open(t, pool)
	defer l.Close()

	const many = 40
	batch := func(first int, rank ledger.Rank) []ledger.Closing {
		var closings []ledger.Closing
		for i := range many {
			closings = append(closings, closing(first+i, rank, 5))
		}
		return closings
	}
	both := func(first int) []ledger.Closing {
		return append(batch(first, ledger.RankExpired), batch(first, ledger.RankRefunded)...)
	}
	// The first of each kind also prepares its statements, and the first
	// duplicate loses the bet that its reservation is new.
	for number, c := range []struct {
		what       string
		warm, call []ledger.Closing
		trips      int64
	}{
		{"new closings", batch(0, ledger.RankExpired), batch(1000, ledger.RankExpired), 1},
		{"duplicates", batch(0, ledger.RankExpired), batch(1000, ledger.RankExpired), 2},
		{"replacements", batch(0, ledger.RankRefunded), batch(1000, ledger.RankRefunded), 3},
		{"both ranks at once", both(2000), both(3000), 2},
	} {
		mustAppend(t, l, c.warm...)
		before := count.Load()
		mustAppend(t, l, c.call...)
		if got := count.Load() - before; got != c.trips {
			t.Errorf("case %d, %s: %d round trips, want %d", number, c.what, got, c.trips)
		}
	}
}

// partitions lists the months of a table's partitions.
func partitions(t *testing.T, pool *pgxpool.Pool, table string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT right(inhrelid::regclass::text, 7) FROM pg_inherits WHERE inhparent = $1::text::regclass ORDER BY 1`, table)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func awaitPartitions(t *testing.T, pool *pgxpool.Pool, want ...string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for _, table := range []string{"closings", "entries"} {
		got := partitions(t, pool, table)
		for ; !slices.Equal(got, want) && time.Now().Before(deadline); got = partitions(t, pool, table) {
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the partitions %v, want %v", table, got, want)
		}
	}
}

func TestPartitions(t *testing.T) {
	d := fresh(t)
	pool := d.pool(t, "")
	l := open(t, pool)
	defer l.Close()
	awaitPartitions(t, pool, "2026_11", "2026_12", "2027_01")

	c := closing(1, ledger.RankRefunded, 5)
	c.Minted = time.Date(2027, time.January, 31, 23, 59, 59, 0, time.UTC)
	mustAppend(t, l, c) // makes the next two ahead
	awaitPartitions(t, pool, "2026_11", "2026_12", "2027_01", "2027_02", "2027_03")

	old := closing(2, ledger.RankRefunded, 7)
	old.Minted = time.Date(2025, time.February, 1, 0, 0, 0, 0, time.UTC)
	mustAppend(t, l, old)
	if got := partitions(t, pool, "entries"); !slices.Contains(got, "2025_02") {
		t.Errorf("no partition for a closing of long ago: %v", got)
	}
	wantUsed(t, l, 12)

	// Somebody drops a month behind the engine's back.
	for _, table := range []string{"closings_2027_02", "entries_2027_03"} {
		if _, err := pool.Exec(t.Context(), `DROP TABLE `+table); err != nil {
			t.Fatal(err)
		}
	}
	february, march := closing(3, ledger.RankRefunded, 1), closing(4, ledger.RankRefunded, 1)
	february.Minted, march.Minted = c.Minted.AddDate(0, 0, 1), c.Minted.AddDate(0, 0, 30)
	for _, v := range mustAppend(t, l, february, march) {
		if !v.Posted {
			t.Error("a closing of a month that was dropped was not posted")
		}
	}
	wantUsed(t, l, 14)

	// An Append reads and writes the partitions of its months only.
	var plan []string
	rows, err := pool.Query(t.Context(), `EXPLAIN SELECT FROM closings WHERE month = '2027-02-01' AND account = 'acme'`)
	if err == nil {
		plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if text := strings.Join(plan, "\n"); err != nil || !strings.Contains(text, "closings_2027_02") || strings.Contains(text, "closings_2026_11") {
		t.Errorf("the plan for one month: %v\n%s", err, text)
	}
}

func TestNewRefuses(t *testing.T) {
	d := fresh(t)
	_, err := pgledger.New(t.Context(), pgledger.Pools{Main: d.pool(t, "&synchronous_commit=off")}, start)
	if err == nil || !strings.Contains(err.Error(), "synchronous_commit") {
		t.Errorf("synchronous_commit off: error %v", err)
	}
	empty := database{servers.FreshDatabase(t)}
	_, err = pgledger.New(t.Context(), pgledger.Pools{Main: empty.pool(t, "")}, start)
	if !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "budgetd migrate") {
		t.Errorf("no schema: error %v", err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	_, err = pgledger.New(t.Context(), pgledger.Pools{Main: database{"postgres://postgres@" + nobody.Addr().String() + "/x"}.pool(t, "?sslmode=disable")}, start)
	if !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("nobody listens: error %v", err)
	}
}

func TestTroubleIsUnavailable(t *testing.T) {
	d := fresh(t)
	admin := d.pool(t, "")
	l := open(t, d.pool(t, "&application_name=victim"))
	defer l.Close()
	impatient := open(t, d.pool(t, "&lock_timeout=20"))
	defer impatient.Close()
	mustAppend(t, l, closing(1, ledger.RankRefunded, 5))

	lock := func() (release func()) {
		tx, err := admin.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `SELECT FROM usage FOR UPDATE`); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := tx.Rollback(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	wantUnavailable := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("%s: error %v, want ErrUnavailable", what, err)
		}
	}

	release := lock()
	c := closing(2, ledger.RankRefunded, 5)
	_, err := impatient.Append(t.Context(), []ledger.Closing{c})
	wantUnavailable("a lock that is held too long", err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	_, err = l.Append(ctx, []ledger.Closing{c})
	cancel()
	wantUnavailable("a deadline", err)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline: error %v, want that of the context", err)
	}

	// The session is ended while the transaction is open.
	failed := make(chan error)
	go func() {
		_, err := l.Append(t.Context(), []ledger.Closing{c})
		failed <- err
	}()
	const terminate = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name = 'victim' AND wait_event_type = 'Lock' AND datname = current_database()`
	deadline := time.Now().Add(time.Minute)
	for ended := 0; ended == 0; {
		if err := admin.QueryRow(t.Context(), terminate).Scan(&ended); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("no Append waits for the lock")
		}
	}
	wantUnavailable("a session that was ended", <-failed)
	release()

	if v := mustAppend(t, impatient, c)[0]; !v.Posted {
		t.Errorf("the closing was written by a call that failed: %+v", v)
	}
	wantUsed(t, l, 10)
	if err := l.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

// TestServerIsKilled kills PostgreSQL while closings are appended. What was
// acknowledged must be there when it is back, and what was not must be posted
// once when it is repeated.
func TestServerIsKilled(t *testing.T) {
	server := servers.NewPostgres(t)
	l := open(t, database{server.MigratedDatabase(t)}.pool(t, ""))
	defer l.Close()
	group, err := ledger.NewGroupCommitter(l, ledger.GroupConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()

	const callers, rounds = 16, 3
	var next atomic.Int64
	for range rounds {
		var kept, unknown sync.Map
		var acknowledged atomic.Int64
		enough := make(chan struct{})
		var once sync.Once
		var wait sync.WaitGroup
		for range callers {
			wait.Go(func() {
				for {
					c := closing(int(next.Add(1)), ledger.RankRefunded, 1)
					if _, err := group.Append(t.Context(), []ledger.Closing{c}); err != nil {
						if !errors.Is(err, ledger.ErrUnavailable) {
							t.Errorf("error %v, want ErrUnavailable", err)
						}
						unknown.Store(c.Reservation, c)
						return
					}
					kept.Store(c.Reservation, c)
					if acknowledged.Add(1) == 200 {
						once.Do(func() { close(enough) })
					}
				}
			})
		}
		<-enough
		server.Kill()
		wait.Wait()
		server.Restart()
		for l.Ping(t.Context()) != nil { // the pool finds out that its sessions are dead
			if t.Context().Err() != nil {
				t.Fatal("the server did not come back")
			}
		}
		kept.Range(func(_, value any) bool {
			c := value.(ledger.Closing)
			if v := mustAppend(t, l, c)[0]; v.Posted {
				t.Errorf("closing %x was acknowledged and is gone", c.Reservation)
			}
			return true
		})
		unknown.Range(func(_, value any) bool {
			mustAppend(t, l, value.(ledger.Closing))
			return true
		})
	}
	wantUsed(t, l, quota.Amount(next.Load()))
}
