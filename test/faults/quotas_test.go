package faults

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/test/broker"
)

// The accounts' quotas are so small that some are spent soon, some in the
// middle of the run and some never.
var quotas = map[string]int64{
	"tiny": 5_000, "small": 20_000, "middle": 60_000, "large": 80_000, "huge": 10_000_000,
}

// policy states a quota a year, whose period does not end during a run: it
// begins on January 15, or, on the days around it, on the 1st.
func policy(now time.Time) string {
	anchor := 15
	if now.UTC().Month() == time.January && now.UTC().Day() >= 13 && now.UTC().Day() <= 16 {
		anchor = 1
	}
	var text strings.Builder
	text.WriteString("plans:\n")
	for _, name := range names() {
		fmt.Fprintf(&text, "  %s:\n    limits:\n      - {name: tokens, meter: tokens, rate: 1M/s}\n    quotas:\n", name)
		fmt.Fprintf(&text, "      - {name: year, meter: tokens, amount: %d, period: year}\n", quotas[name])
		fmt.Fprintf(&text, "      - {name: team, meter: tokens, amount: %d, period: year, per: [team]}\n", quotas[name])
	}
	text.WriteString("accounts:\n")
	for _, name := range names() {
		fmt.Fprintf(&text, "  %s: {plan: %s, anchor_day: %d}\n", name, name, anchor)
	}
	return text.String()
}

func names() []string {
	var all []string
	for name := range quotas {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// TestQuotas breaks servers in turn under traffic. Every Refund that was
// answered is in the ledger exactly once; the audit finds no drift; and no
// quota was exceeded by grants beyond the windows of docs/guarantees.md.
func TestQuotas(t *testing.T) {
	decides := *seed
	if decides == 0 {
		decides = rand.Uint64()
	}
	t.Logf("seed %d: go test ./test/faults -run Quotas -args -seed %d -span %s", decides, decides, *span)
	f := startFleet(t, policy(time.Now()))
	traffic := startTraffic(f, names(), decides)
	r := &run{fleet: f, traffic: traffic, random: rand.New(rand.NewPCG(decides, 0)), until: traffic.began.Add(*span), faults: map[string]int{}}
	r.breakThings()
	for time.Now().Before(r.until) {
		r.pause(100*time.Millisecond, 200*time.Millisecond)
	}
	traffic.finish()
	t.Logf("faults:\n%s", r)

	books := readBooks(t, f, traffic)
	checkOnce(t, traffic, books)
	checkAudit(t, f)
	checkQuotas(t, traffic)
	if len(traffic.calls) < 500 {
		t.Errorf("only %d reservations were made: that proves little", len(traffic.calls))
	}
}

// entered is what the ledger holds of one reservation.
type entered struct {
	rank    int
	entries int              // more than one for one usage row: it was charged again
	charged map[string]int64 // sums of the entries, by limit; "" is the account's total of tokens
}

// books are the ledger's tables.
type books struct {
	reservations map[string]entered // by account and id
	used         map[string]int64   // of the usage rows, by account and limit, scopes together
}

// readBooks waits until every lease has ended and every closing is posted, and
// reads the tables themselves.
func readBooks(t *testing.T, f *fleet, traffic *traffic) books {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	pool := f.books()
	for {
		b := readOnce(ctx, t, pool)
		missing := 0
		for _, c := range traffic.calls {
			if _, posted := b.reservations[c.account+" "+idOf(t, c.id)]; !posted && !c.acked.IsZero() {
				missing++
			}
		}
		if missing == 0 {
			return b
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d answered Refunds of %d reservations are not in the ledger", missing, len(traffic.calls))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// readOnce reads the tables as they are at one instant: closings go on being posted, and a
// closing's entries are not to be seen without it.
func readOnce(ctx context.Context, t *testing.T, pool *pgxpool.Pool) books {
	t.Helper()
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	b := books{reservations: map[string]entered{}, used: map[string]int64{}}
	for _, row := range rowsOf[closingRow](ctx, t, tx, `SELECT account, reservation::text, rank FROM closings`) {
		b.reservations[row.Account+" "+row.Reservation] = entered{rank: row.Rank, charged: map[string]int64{}}
	}
	for _, row := range rowsOf[entryRow](ctx, t, tx, `
		SELECT e.account, e.reservation::text, split_part(u.limit_id, '.', 1), count(*), sum(e.amount)::bigint
		  FROM entries e JOIN usage u ON u.id = e.usage_id AND u.meter = 'tokens' GROUP BY 1, 2, 3, e.usage_id`) {
		e := b.reservations[row.Account+" "+row.Reservation]
		e.entries = max(e.entries, row.Entries)
		e.charged[row.Limit] += row.Amount
		b.reservations[row.Account+" "+row.Reservation] = e
	}
	for _, row := range rowsOf[usedRow](ctx, t, tx, `
		SELECT account, split_part(limit_id, '.', 1), sum(used)::bigint FROM usage WHERE meter = 'tokens' GROUP BY 1, 2`) {
		b.used[row.Account+" "+row.Limit] = row.Used
	}
	return b
}

type closingRow struct {
	Account, Reservation string
	Rank                 int
}

type entryRow struct {
	Account, Reservation, Limit string
	Entries                     int
	Amount                      int64
}

type usedRow struct {
	Account, Limit string
	Used           int64
}

func rowsOf[R any](ctx context.Context, t *testing.T, tx pgx.Tx, query string) []R {
	t.Helper()
	rows, err := tx.Query(ctx, query)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[R])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// idOf is the id inside of a reservation's token, as the ledger keeps it.
func idOf(t *testing.T, reservation string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(reservation)
	if err != nil || len(raw) < 19 {
		t.Fatalf("%q is no reservation id", reservation)
	}
	id := raw[3:19]
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// limitsOf are the usage rows that a call is charged on.
var limitsOf = []string{"", "year", "team"}

// checkOnce compares what callers were told with the entries of each
// reservation, and their sums with the usage rows.
func checkOnce(t *testing.T, traffic *traffic, b books) {
	t.Helper()
	var acked, crashed, late int
	sums := map[string]int64{}
	for _, c := range traffic.calls {
		e := b.reservations[c.account+" "+idOf(t, c.id)]
		var want int64 // a crashed caller's hold goes back when the lease ends, with or without a row
		if c.acked.IsZero() {
			crashed++
		} else {
			acked++
			want = c.used
			if e.rank != 2 {
				t.Errorf("an answered Refund of %s has rank %d in the ledger", c.account, e.rank)
			}
		}
		for _, limit := range limitsOf {
			if got := e.charged[limit]; got != want {
				t.Errorf("a call of %s that used %d tokens is charged %d on %q", c.account, want, got, limit)
			}
			sums[c.account+" "+limit] += want
		}
		// The end of a lease may be posted before the Refund: 0, then all of it.
		if e.entries > 2 {
			t.Errorf("a call of %s has %d entries on one usage row", c.account, e.entries)
		}
		if c.late {
			late++
		}
	}
	for row, want := range sums {
		if got := b.used[row]; got != want {
			t.Errorf("the usage rows of %s say %d, and callers were told %d", row, got, want)
		}
	}
	t.Logf("%d reservations: %d Refunds answered and in the ledger once (%d late), %d callers crashed; %d refused, %d not answered",
		len(traffic.calls), acked, late, crashed, traffic.refused.Load(), traffic.unanswered.Load())
}

// checkAudit runs the command as an operator would, until what is on its way
// has arrived.
func checkAudit(t *testing.T, f *fleet) {
	t.Helper()
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(f.key), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, b := range f.brokers {
		// The last closings are on their way still: that is what 75 says.
		for until := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
			out, code := broker.Try(t, "audit", "--server", b.URL, "--key-file", keyFile, "--json=false")
			if code == 75 && time.Now().Before(until) {
				continue
			}
			if t.Logf("budgetd audit:\n%s", out); code != 0 {
				t.Errorf("budgetd audit: exit status %d", code)
			}
			break
		}
	}
}
