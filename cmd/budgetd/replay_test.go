package main_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/replay"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/reservation/holdlab/traces"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

// replayed is one run of "budgetd replay".
type replayed struct {
	code   int
	report replay.Report // zero when none was printed
	out    string
	errs   string
}

// replayTimeout bounds a run of a few seconds on a machine that is busy with
// other tests.
const replayTimeout = 5 * time.Minute

// replayCommand makes the command, with temporary files in temp and no settings
// of whoever runs the tests.
func replayCommand(t *testing.T, temp string, args ...string) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), replayTimeout)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, broker.Binary(t), append([]string{"replay"}, args...)...)
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "BUDGETD_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(cmd.Env, "TMPDIR="+temp)
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, errs
	return cmd, out, errs
}

// runReplay runs it to its end, which must leave nothing behind.
func runReplay(t *testing.T, args ...string) replayed {
	t.Helper()
	temp := t.TempDir()
	cmd, out, errs := replayCommand(t, temp, args...)
	return finishReplay(t, temp, cmd, out, errs, cmd.Run())
}

func finishReplay(t *testing.T, temp string, cmd *exec.Cmd, out, errs *bytes.Buffer, err error) replayed {
	t.Helper()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("replay: %v\n%s", err, errs)
	}
	r := replayed{code: cmd.ProcessState.ExitCode(), out: out.String(), errs: errs.String()}
	if strings.HasPrefix(r.out, "{") {
		if err := json.Unmarshal(out.Bytes(), &r.report); err != nil {
			t.Fatalf("the report is no JSON: %v\n%s", err, r.out)
		}
	}
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("the replay left %v behind", left)
	}
	return r
}

// generatedTrace writes a trace of the chat service's shape.
func generatedTrace(t *testing.T, seed uint64, requests int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "conv.csv")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := traces.Generate(file, traces.Conv, seed, requests); err != nil {
		t.Fatal(err)
	}
	return path
}

// traceTokens adds up the first requests of a trace, with another reader than
// the program's.
func traceTokens(t *testing.T, path string, requests int) int64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, row := range rows[1 : requests+1] {
		for _, column := range row[1:] {
			n, err := strconv.ParseInt(column, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// mustBeSound checks what every replay without gaps has.
func mustBeSound(t *testing.T, r replayed, requests int, tokens int64) {
	t.Helper()
	report := r.report
	if r.code != 0 || len(report.Gaps) > 0 || report.Leaked != 0 || report.Unanswered.Requests != 0 {
		t.Fatalf("exit code %d, gaps %q, leaked %d, unanswered %d\n%s%s", r.code, report.Gaps, report.Leaked, report.Unanswered.Requests, r.errs, r.out)
	}
	if report.Offered != (replay.Count{Requests: int64(requests), Tokens: tokens}) {
		t.Errorf("%+v were sent, the trace has %d requests of %d tokens", report.Offered, requests, tokens)
	}
	if got := report.Admitted.Requests + report.Refused.Requests; got != int64(requests) {
		t.Errorf("%d requests were admitted or refused, want %d", got, requests)
	}
	if report.Reserve.Count < int64(requests)-report.Kills.MidReserve || report.Reserve.P50 <= 0 || report.Reserve.Max < report.Reserve.P999 {
		t.Errorf("latency of Reserve %+v", report.Reserve)
	}
	if len(report.Sums) < 2 {
		t.Fatalf("sums %+v", report.Sums)
	}
	for _, sum := range report.Sums {
		if sum.Tokens != nil && *sum.Tokens != report.Refunded.Tokens {
			t.Errorf("%s has %d tokens, the refunded requests used %d", sum.Of, *sum.Tokens, report.Refunded.Tokens)
		}
	}
}

func mustHaveKilled(t *testing.T, r replayed) {
	t.Helper()
	report := r.report
	if report.Kills.Workers == 0 || report.Kills.Holding == 0 || report.Crashed.Requests == 0 || report.ExpiredTokens == 0 {
		t.Errorf("nothing crashed: %+v, crashed %+v", report.Kills, report.Crashed)
	}
}

func TestReplayEmbedded(t *testing.T) {
	const requests = 300
	trace := generatedTrace(t, 1, requests)
	r := runReplay(t, trace, "--speed", "60")
	mustBeSound(t, r, requests, traceTokens(t, trace, requests))
	if r.report.Refused.Requests != 0 || r.report.Kills != (replay.Kills{}) || r.report.Refunded != r.report.Offered {
		t.Errorf("without a limit and without kills: %+v", r.report.Totals)
	}
	if len(r.report.Sums) != 4 {
		t.Errorf("sums %+v; want the trace, the ledger and two counters", r.report.Sums)
	}
	if r.errs != "" {
		t.Errorf("wrote %q to standard error, which is no terminal", r.errs)
	}
}

// A bucket that refills slowly shows every token that did not come back: it
// must lack what was charged, less what it can have refilled.
func TestReplayKillsEmbedded(t *testing.T) {
	const requests = 400
	trace := generatedTrace(t, 2, requests)
	r := runReplay(t, trace, "--speed", "60", "--kill", "10%", "--lease", "3s", "--limit", "100M/day", "--workers", "3", "--seed", "5")
	mustBeSound(t, r, requests, traceTokens(t, trace, requests))
	mustHaveKilled(t, r)
	if r.report.Crashed.Requests > requests/10 {
		t.Errorf("%d requests crashed, at most %d were to", r.report.Crashed.Requests, requests/10)
	}
}

// Two traces as one, a limit that refuses, and the table for people.
func TestReplayRefusals(t *testing.T) {
	a, b := generatedTrace(t, 3, 150), generatedTrace(t, 4, 150)
	tokens := traceTokens(t, a, 150) + traceTokens(t, b, 150)
	r := runReplay(t, a, b, "--speed", "30", "--limit", "100000/min", "--slots", "10")
	mustBeSound(t, r, 300, tokens)
	if r.report.Refused.Requests == 0 || r.report.Admitted.Requests == 0 {
		t.Errorf("admitted %+v, refused %+v; want some of both", r.report.Admitted, r.report.Refused)
	}
	var refused int64
	for by, n := range r.report.RefusedBy {
		if by != "tokens RATE_LIMITED" && by != "slots CONCURRENCY_LIMITED" {
			t.Errorf("refused by %q", by)
		}
		refused += n
	}
	if refused != r.report.Refused.Requests {
		t.Errorf("refused by %v; want %d in all", r.report.RefusedBy, r.report.Refused.Requests)
	}
	table := runReplay(t, a, "--speed", "60", "--requests", "20", "--json=false")
	if table.code != 0 || !strings.Contains(table.out, "no gaps") || !strings.Contains(table.out, "assumed") || !strings.Contains(table.out, "counter tokens-month") {
		t.Errorf("exit code %d\n%s%s", table.code, table.errs, table.out)
	}
}

// With a wait nobody is refused, and the books agree all the same.
func TestReplayWaits(t *testing.T) {
	const requests = 120
	trace := generatedTrace(t, 3, requests)
	if r := runReplay(t, trace, "--speed", "60", "--limit", "100000/min"); r.report.Refused.Requests == 0 {
		t.Fatal("without a wait nobody is refused either")
	}
	r := runReplay(t, trace, "--speed", "60", "--limit", "100000/min", "--max-wait", "1m", "--kill", "10%", "--lease", "3s")
	mustBeSound(t, r, requests, traceTokens(t, trace, requests))
	mustHaveKilled(t, r)
	if r.report.Refused.Requests != 0 || r.report.Reserve.Max > 10_000_000 {
		t.Errorf("refused %+v, latency %+v; want nobody refused, and waits that are not in the latency", r.report.Refused, r.report.Reserve)
	}
}

// The published trace where it lies beside the repository, else a generated one.
func TestReplayPublishedTrace(t *testing.T) {
	const requests = 800
	trace := filepath.Join("..", "..", "..", "shared", "data", "azure-llm-2023", "code.csv")
	if _, err := os.Stat(trace); errors.Is(err, fs.ErrNotExist) {
		trace = generatedTrace(t, 6, requests)
	} else if err != nil {
		t.Fatal(err)
	}
	r := runReplay(t, trace, "--requests", strconv.Itoa(requests), "--speed", "120", "--kill", "2%", "--lease", "3s", "--limit", "10M/min")
	mustBeSound(t, r, requests, traceTokens(t, trace, requests))
	mustHaveKilled(t, r)
}

func TestReplayOnRedisAndPostgres(t *testing.T) {
	const requests = 300
	trace := generatedTrace(t, 7, requests)
	redis, postgres := servers.SharedRedis(t).URL(), servers.FreshDatabase(t)
	r := runReplay(t, trace, "--speed", "30", "--kill", "10%", "--lease", "3s", "--limit", "100M/day", "--redis", redis, "--postgres", postgres)
	mustBeSound(t, r, requests, traceTokens(t, trace, requests))
	mustHaveKilled(t, r)
}

// A broker that runs already, on an account that is idle, and on one that is
// not: a replay must notice what it did not send.
func TestReplayAgainstARunningBroker(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(`
plans:
  chat:
    limits:
      - {name: tokens, meter: tokens, rate: 100M/min}
      - {name: calls, meter: requests, rate: 100000/day}
      - {name: running, meter: in_flight, max: 1000}
    quotas:
      - {name: tokens-year, meter: tokens, amount: 1000M, period: year}
accounts:
  acme: {plan: chat}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(dir, "data")
	b := broker.Start(t, "--data", store, "--policy", policy)
	var created struct{ Key string }
	if err := json.Unmarshal([]byte(broker.Run(t, "key", "create", "replay", "--account", "acme", "--data", store, "--json")), &created); err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(dir, "key")
	if err := os.WriteFile(keyFile, []byte(created.Key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const requests = 150
	trace := generatedTrace(t, 8, requests)
	args := []string{trace, "--server", b.URL, "--key-file", keyFile, "--account", "acme", "--speed", "20", "--kill", "4%", "--lease", "2s"}
	for range 2 { // the second run finds the sums of the first
		r := runReplay(t, args...)
		mustBeSound(t, r, requests, traceTokens(t, trace, requests))
		if len(r.report.Sums) != 3 {
			t.Errorf("sums %+v; want the trace, the ledger and one counter", r.report.Sums)
		}
	}

	client, err := budget.New(b.URL, created.Key)
	if err != nil {
		t.Fatal(err)
	}
	totals := func() int64 {
		answer, err := client.Service().GetQuota(context.Background(), connect.NewRequest(&budgetv1.GetQuotaRequest{Account: "acme"}))
		if err != nil {
			t.Fatal(err)
		}
		return answer.Msg.Totals["tokens"]
	}
	before := totals()
	temp := t.TempDir()
	cmd, out, errs := replayCommand(t, temp, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replay's first Refund", func() bool { return totals() > before })
	if _, err := client.Service().Charge(context.Background(), connect.NewRequest(&budgetv1.ChargeRequest{Account: "acme", Amounts: map[string]int64{"tokens": 1}})); err != nil {
		t.Fatal(err)
	}
	r := finishReplay(t, temp, cmd, out, errs, cmd.Wait())
	found := strings.Join(r.report.Gaps, "\n")
	if r.code != 1 || !strings.Contains(found, "the ledger has") || !strings.Contains(found, "(+1)") || !strings.Contains(found, "quota tokens-year has") {
		t.Errorf("one token from elsewhere: exit code %d, gaps %q\n%s", r.code, r.report.Gaps, r.errs)
	}

	for flag, value := range map[string]string{"limit": "10M/min", "slots": "3", "postgres": "postgres://localhost/x"} {
		refused := runReplay(t, append(slices.Clone(args), "--"+flag, value)...)
		if refused.code != 2 || !strings.Contains(refused.errs, "--"+flag+":") {
			t.Errorf("--%s with --server: exit code %d, %q", flag, refused.code, refused.errs)
		}
	}
}

func TestReplayRefusesBadInput(t *testing.T) {
	good := generatedTrace(t, 9, 10)
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte(trace.Header+"\n2023-11-16 18:17:03.9799600,1,2\n2023-11-16 18:17:03.9799600,1,-2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "TRACE.csv is missing", nil},
		{1, "no such file", []string{good + ".not"}},
		{1, "bad.csv:3: GeneratedTokens", []string{bad}},
		{2, "--kill", []string{good, "--kill", "2"}},
		{2, "--limit", []string{good, "--limit", "fast"}},
		{2, "--limit", []string{good, "--limit", "0/min"}},
		{2, "--speed", []string{good, "--speed", "0"}},
		{2, "--lease", []string{good, "--lease", "1ms"}},
		{2, "--redis", []string{good, "--redis", "redis://localhost"}},
		{2, "--account", []string{good, "--account", "acme"}},
		{2, "no API key", []string{good, "--server", "http://127.0.0.1:1"}},
	} {
		r := runReplay(t, c.args...)
		if r.code != c.code || !strings.Contains(r.errs, c.want) || r.out != "" {
			t.Errorf("%q: exit code %d, %q; want %d and %q", c.args, r.code, r.errs, c.code, c.want)
		}
	}
}

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(20 * time.Millisecond) // real processes: poll, with a deadline
	}
}
