package backtest_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/backtest"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
	"github.com/budgetd/budgetd/test/servers"
)

// ledgerRequests is how many calls of a trace reach the broker whose ledger is
// read.
const ledgerRequests = 1500

// ledgerPolicy is equalPolicy without forecasts: a ledger does not keep of which
// kind a call was, so its worst case is held.
var ledgerPolicy = strings.Replace(equalPolicy, ", hold: forecast, tolerance: 4000", "", 1)

// lineNumber is what a ledger has not of the lines of a trace.
var lineNumber = regexp.MustCompile(`^line \d+: `)

func withoutLines(lines []string) []string {
	var bare []string
	for _, line := range lines {
		if !strings.Contains(line, ": refused, ") {
			bare = append(bare, lineNumber.ReplaceAllString(line, ""))
		}
	}
	return bare
}

func onMemory(t *testing.T, clock func() time.Time) reservation.Store {
	store, err := memstore.New(memstore.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func policyOf(t *testing.T, text string) *quota.Policy {
	t.Helper()
	document, err := policyfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := document.Policy(1)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// allOf is a span that holds the traces.
func allOf(account string) trace.LedgerQuery {
	return trace.LedgerQuery{Account: account, From: time.Date(2023, 11, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2023, 12, 1, 0, 0, 0, 0, time.UTC)}
}

func fromLedger(t *testing.T, books ledger.Reader) *trace.Ledger {
	t.Helper()
	sum, err := trace.SumOfLedger(context.Background(), books, allOf(""))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(sum.Accounts, []string{"acme"}) {
		t.Fatalf("the accounts are %v", sum.Accounts)
	}
	return trace.NewLedger(context.Background(), books, allOf(""), sum.Accounts)
}

// TestLedgerOfABroker: what was granted by a broker is granted again when its
// ledger is taken through the same policy, with the same levels at each answer;
// through half of the limits it is as when a broker with these limits is asked.
func TestLedgerOfABroker(t *testing.T) {
	path := distinct(t, firstLines(t, published(t, "code"), 1+ledgerRequests))
	broker := runBroker(t, ledgerPolicy, onMemory)
	live := replayed(t, path, broker)
	books, err := sqliteledger.OpenReader(broker.path)
	if err != nil {
		t.Fatal(err)
	}
	defer books.Close()

	again := watched(t, fromLedger(t, books), policyOf(t, ledgerPolicy))
	if len(again.refused) > 0 {
		t.Errorf("the same policy refused %v of what it had granted", again.refused)
	}
	want, got := withoutLines(live.lines), withoutLines(again.lines)
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Fatalf("answer %d of the broker:\n%s\nand to its ledger:\n%s", i, want[i], got[i])
		}
	}
	if len(want) != len(got) {
		t.Fatalf("%d answers of the broker, %d to its ledger", len(want), len(got))
	}

	report, err := backtest.Run(context.Background(), fromLedger(t, books), backtest.Options{Plans: []backtest.Plan{{Name: "same", Policy: policyOf(t, ledgerPolicy)}}})
	if err != nil {
		t.Fatal(err)
	}
	query := ledger.ReportQuery{From: allOf("").From, To: allOf("").To, Grain: ledger.GrainTotal, Limit: 100}
	sums, err := books.Report(context.Background(), query)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range sums.Rows {
		switch have := report.Offered; {
		case row.Meter == quota.MeterTokens && int64(row.Used) != have.Tokens,
			row.Meter == quota.MeterCost && quota.NanoUSD(row.Used) != have.Cost,
			row.Meter == quota.MeterRequests && int64(row.Used) != have.Requests:
			t.Errorf("the ledger has %d of %s, the backtest %+v", row.Used, row.Meter, have)
		}
	}

	halved := halve(t, ledgerPolicy)
	granted := grantedLines(t, path, live)
	want = runBrokerLines(t, halved, granted)
	backtested := watched(t, fromLedger(t, books), policyOf(t, halved))
	if got := kinds(backtested.lines); !slices.Equal(got, want) {
		t.Errorf("half of the limits: the answers to the ledger differ from a broker's: %d and %d", len(got), len(want))
	}
	t.Logf("%d granted of %d; through half of the limits %v are refused", len(granted), ledgerRequests, backtested.refused)
	if len(backtested.refused) == 0 {
		t.Error("half of the limits refused nothing; the test shows too little")
	}
}

// halve is a policy with half of each limit.
func halve(t *testing.T, text string) string {
	t.Helper()
	document, err := policyfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	smaller := func(l *quota.Limit) {
		l.Rate.Amount, l.Burst, l.Max = l.Rate.Amount/2, l.Burst/2, l.Max/2
	}
	for i := range document.Plans {
		for j := range document.Plans[i].Limits {
			smaller(&document.Plans[i].Limits[j])
		}
	}
	for i := range document.Pools {
		smaller(&document.Pools[i].Limit)
	}
	out, err := policyfile.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// distinct leaves the lines out that come in the same microsecond as the one
// before: a ledger does not say which of them was first.
func distinct(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const instant = len("2023-11-16 18:17:03.979960")
	var kept [][]byte
	for _, line := range bytes.SplitAfter(text, []byte("\n")) {
		if n := len(kept); n > 1 && len(line) > instant && bytes.Equal(line[:instant], kept[n-1][:instant]) {
			continue
		}
		kept = append(kept, line)
	}
	return written(t, kept)
}

func written(t *testing.T, lines [][]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "calls.csv")
	if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// grantedLines are the lines of a trace that were granted.
func grantedLines(t *testing.T, path string, l *told) [][]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	kept := lines[:1:1]
	for _, at := range l.granted {
		kept = append(kept, lines[at-1])
	}
	return kept
}

// runBrokerLines are the answers of a broker to calls, without what differs
// between a model call and its amounts.
func runBrokerLines(t *testing.T, policy string, lines [][]byte) []string {
	t.Helper()
	return kinds(replayed(t, written(t, lines), runBroker(t, policy, onMemory)).lines)
}

func kinds(lines []string) []string {
	bare := make([]string, len(lines))
	for i, line := range lines {
		bare[i] = lineNumber.ReplaceAllString(line, "")
	}
	return bare
}

// TestLedgersReadAlike: both ledgers give the same calls in the same order,
// whatever the size of the pages.
func TestLedgersReadAlike(t *testing.T) {
	ctx := context.Background()
	broker := runBroker(t, ledgerPolicy, onMemory)
	replayed(t, firstLines(t, published(t, "conv"), 300), broker)
	file, err := sqliteledger.OpenReader(broker.path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pool, err := pgxpool.New(ctx, servers.MigratedDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	served, err := pgledger.New(ctx, pgledger.Pools{Main: pool}, allOf("").From)
	if err != nil {
		t.Fatal(err)
	}
	page, err := file.Closings(ctx, ledger.ClosingsQuery{From: allOf("").From, To: allOf("").To, Limit: ledger.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	// A second account, each of whose calls comes in the microsecond of one of the first.
	both := slices.Clone(page.Closings)
	for _, c := range page.Closings {
		c.Account = "beta"
		both = append(both, c)
	}
	for part := range slices.Chunk(both, ledger.MaxAppend) {
		if _, err := served.Append(ctx, part); err != nil {
			t.Fatal(err)
		}
	}
	want := readAll(t, trace.NewLedger(ctx, file, allOf(""), []string{"acme"}))
	reader := pgledger.NewReader(pool)
	if got := readAll(t, trace.NewLedger(ctx, reader, allOf("acme"), []string{"acme"})); !slices.Equal(got, want) {
		t.Errorf("PostgreSQL has %d calls of acme, the file %d, or in another order", len(got), len(want))
	}
	got := readAll(t, trace.NewLedger(ctx, reader, allOf(""), []string{"acme", "beta", "nobody"}))
	if len(got) != 2*len(want) || !slices.IsSorted(got) {
		t.Errorf("of two accounts %d calls, in order: %v", len(got), slices.IsSorted(got))
	}
	if len(want) < 100 {
		t.Errorf("only %d calls", len(want))
	}
}

func readAll(t *testing.T, calls trace.Calls) []string {
	t.Helper()
	var all []string
	for {
		call, err := calls.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, call.At.Format(time.RFC3339Nano)+call.Account+call.Ends.String()+call.File)
	}
}
