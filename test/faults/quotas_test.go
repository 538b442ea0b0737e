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
	closings int
	rank     int
	tokens   int64 // sum of the entries of the account's total of tokens
}

type books struct {
	reservations map[string]entered // by account and id
	totals       map[string]int64   // tokens, by account
}

// readBooks waits until every lease has ended and every closing is posted, and
// reads the tables themselves.
func readBooks(t *testing.T, f *fleet, traffic *traffic) books {
	t.Helper()
	pool := f.books()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for {
		b := books{reservations: map[string]entered{}, totals: map[string]int64{}}
		rows, err := pool.Query(ctx, `
			SELECT c.account, c.reservation::text, count(DISTINCT c.rank), max(c.rank), coalesce(sum(e.amount), 0)
			  FROM closings c LEFT JOIN (entries e JOIN usage u ON u.id = e.usage_id AND u.limit_id = '' AND u.meter = 'tokens')
			    ON e.account = c.account AND e.reservation = c.reservation AND e.month = c.month
			 GROUP BY c.account, c.reservation`)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var account, id string
			var e entered
			if err := rows.Scan(&account, &id, &e.closings, &e.rank, &e.tokens); err != nil {
				t.Fatal(err)
			}
			b.reservations[account+" "+id] = e
			b.totals[account] += e.tokens
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
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

// checkOnce compares what callers were told with the entries.
func checkOnce(t *testing.T, traffic *traffic, b books) {
	t.Helper()
	var acked, crashed, late int
	for _, c := range traffic.calls {
		e := b.reservations[c.account+" "+idOf(t, c.id)]
		switch {
		case c.acked.IsZero():
			crashed++
			// Its hold went back when the lease ended, with or without a row.
			if e.tokens != 0 {
				t.Errorf("a crashed caller of %s is charged %d tokens", c.account, e.tokens)
			}
		case e.closings != 1 || e.rank != 2 || e.tokens != c.used:
			t.Errorf("an answered Refund of %d tokens of %s is in the ledger %d times with rank %d and %d tokens", c.used, c.account, e.closings, e.rank, e.tokens)
		default:
			acked++
		}
		if c.late {
			late++
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
		t.Logf("budgetd audit:\n%s", broker.Run(t, "audit", "--server", b.URL, "--key-file", keyFile, "--json=false"))
	}
}

// checkQuotas compares, for each account, the most that grants had taken at
// any time with the quota and the windows that the faults opened.
//
// What was taken is bounded from below: a reservation counts as held from its
// answer until its Refund was sent or its lease had ended, and with what it
// used from the answer of the Refund on. So a violation that is reported is one.
func checkQuotas(t *testing.T, traffic *traffic) {
	t.Helper()
	for _, name := range names() {
		type change struct {
			at    time.Time
			delta int64
			grant bool
		}
		var changes []change
		var beyond int64 // by definition: overruns, and late Refunds
		var calls []*call
		for _, c := range traffic.calls {
			if c.account != name {
				continue
			}
			calls = append(calls, c)
			ends := c.asked.Add(c.lease)
			if !c.refunding.IsZero() && c.refunding.Before(ends) {
				ends = c.refunding
			}
			if ends.Before(c.answered) {
				ends = c.answered
			}
			changes = append(changes, change{c.answered, c.held, true}, change{ends, -c.held, false})
			if !c.acked.IsZero() {
				changes = append(changes, change{c.acked, c.used, false})
				if c.late || c.expired {
					beyond += c.used
				} else {
					beyond += max(c.used-c.held, 0)
				}
			}
		}
		slices.SortStableFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
		var level, most int64
		for _, change := range changes {
			level += change.delta
			if change.grant {
				most = max(most, level)
			}
		}
		// W1, W2, W4, W6: what was open, or answered and not yet known to be
		// posted, when Redis forgot.
		var windows int64
		for _, lost := range traffic.losses {
			for _, c := range calls {
				if c.answered.After(lost) {
					continue
				}
				if settled := c.acked; !settled.IsZero() && settled.Before(lost.Add(-unpostedFor)) {
					continue
				}
				if c.acked.IsZero() && c.answered.Add(c.lease).Before(lost) {
					continue
				}
				windows += max(c.held, c.used)
			}
		}
		t.Logf("%-7s quota %8d: at most %8d taken at a grant; %d by overruns and late Refunds; windows of %d losses: %d",
			name, quotas[name], most, beyond, len(traffic.losses), windows)
		if most > quotas[name]+beyond+windows {
			t.Errorf("%s: grants took %d of a quota of %d, with %d beyond it by definition and windows of %d", name, most, quotas[name], beyond, windows)
		}
	}
}

// unpostedFor is how long a Refund that was answered may be in a spool only:
// the longest outage of PostgreSQL in a run, and the time to drain.
const unpostedFor = 10 * time.Second
