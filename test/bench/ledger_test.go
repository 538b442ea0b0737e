package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// books are a PostgreSQL ledger behind a group commit, as in a broker.
type books struct {
	ledger.Ledger
	group *ledger.GroupCommitter
	dsn   string
}

func (b books) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	return b.group.Append(ctx, closings)
}

func newBooks(b *testing.B) books {
	b.Helper()
	dsn := servers.MigratedDatabase(b)
	pool, err := pgxpool.New(b.Context(), dsn)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	l, err := pgledger.New(b.Context(), pgledger.Pools{Main: pool}, start)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	group, err := ledger.NewGroupCommitter(l, ledger.GroupConfig{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { group.Close() })
	return books{l, group, dsn}
}

// BenchmarkAppend measures Appends of one closing each from many goroutines,
// against one connection that writes the same rows in bare batches of the size
// that so many callers could fill at best, and against one that writes one
// closing a transaction, as a ledger without group commit would.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ callers, batch, each int }{{64, 64, 250}, {2000, 500, 8}} {
		b.Run(fmt.Sprintf("callers=%d", c.callers), func(b *testing.B) {
			l := newBooks(b)
			conn, err := pgx.Connect(b.Context(), l.dsn)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close(context.Background())
			base, w := bare{conn}, newWorkload()
			write := func(closings []ledger.Closing) {
				together(c.callers, len(closings), func(i int) {
					if _, err := l.Append(b.Context(), closings[i:i+1]); err != nil {
						b.Error(err)
					}
				})
			}
			split := func(closings []ledger.Closing, size int) (batches []rows) {
				for at := 0; at < len(closings); at += size {
					batches = append(batches, base.prepare(closings[at:min(at+size, len(closings))]))
				}
				return batches
			}
			insert := func(batches []rows) {
				for _, r := range batches {
					if err := base.write(b.Context(), r); err != nil {
						b.Fatal(err)
					}
				}
			}
			const alone = 50
			size := c.callers * c.each // closings of one turn
			write(w.closings(size))    // makes the usage rows
			insert(split(w.closings(size), c.batch))
			var appends, batches, singles stopwatch
			for first := true; b.Loop(); first = !first {
				closings := w.closings(size)
				batched, single := split(w.closings(size), c.batch), split(w.closings(alone), 1)
				if first { // who comes second finds warm pages
					appends.run(size, func() { write(closings) })
				}
				batches.run(size, func() { insert(batched) })
				if !first {
					appends.run(size, func() { write(closings) })
				}
				singles.run(alone, func() { insert(single) })
			}
			// The time of an operation of the benchmark is that of all three
			// together, and says nothing.
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(appends.rate(), "append/s")
			b.ReportMetric(batches.rate(), "bare/s")
			b.ReportMetric(singles.rate(), "single/s")
			b.ReportMetric(appends.rate()/batches.rate(), "of-bare")
			b.ReportMetric(appends.rate()/singles.rate(), "of-single")
		})
	}
}
