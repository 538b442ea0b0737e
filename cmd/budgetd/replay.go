package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/replay"
	"github.com/budgetd/budgetd/quota"
)

const replayHelp = `Replays traces of LLM requests against a broker, over the network, and then checks
that nothing was lost. A trace is a CSV file with the columns TIMESTAMP,
ContextTokens and GeneratedTokens, such as those that Azure publishes; several
are replayed as one, each request at its own instant.

Each request comes at its instant in the trace, --speed times faster. It reserves
the tokens that it reads plus --max-tokens, holds them for as long as the call
would have taken (0.5 s + 20 ms per generated token, which is assumed: a trace
has no durations), and refunds with what it used. A refused request is counted
and not asked again.

Without --server a broker is started for the run, on a free port, with a
temporary data directory or the given Redis and PostgreSQL, and stopped at the
end. In a PostgreSQL it leaves an account and a plan, both named after the run,
and their ledger. With --server the account must be idle otherwise.

With --kill, that share of the requests is made by worker processes, which are
killed (SIGKILL) while they hold a reservation or while a call of theirs is on
its way. At the end it waits until one second after the last lease.

Then it checks that nothing is held any more, that every reservation is in the
ledger as what it was, and that the trace, the ledger and the broker's counters
have the same sums, to the token. On any gap it lists the gaps and exits with 1.`

// replayWorker is the hidden command that makes this program a worker.
const replayWorker = "replay-worker"

func newReplayCommand(s streams) *cobra.Command {
	var (
		to          connection
		o           replay.Options
		limit, kill string
	)
	cmd := &cobra.Command{
		Use:   "replay TRACE.csv...",
		Short: "Drive a broker with a trace of requests and check its books",
		Long:  replayHelp,
		Example: `  budgetd replay code.csv
  budgetd replay code.csv conv.csv --speed 120 --limit 10M/min --kill 2%
  budgetd replay conv.csv --redis redis://127.0.0.1:6379 --postgres postgres://budgetd@127.0.0.1/budgetd
  BUDGETD_KEY=... budgetd replay conv.csv --server http://127.0.0.1:8080 --account acme`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "TRACE.csv is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Traces = args
			if err := completeReplay(cmd, &o, &to, limit, kill); err != nil {
				return err
			}
			bar := newReplayBar(s.err)
			report, err := replay.Run(cmd.Context(), o, bar)
			bar.finish()
			var option *replay.OptionError
			if errors.As(err, &option) {
				return usageError(cmd, err)
			}
			if report == nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				if err := json.NewEncoder(s.out).Encode(report); err != nil {
					return err
				}
			} else {
				showReplay(s.out, report)
			}
			if err == nil && len(report.Gaps) > 0 {
				err = fmt.Errorf("replay: %d gaps; see the report", len(report.Gaps))
			}
			return err
		},
	}
	f := cmd.Flags()
	to.addFlags(cmd)
	f.Lookup("server").Usage = "address of a broker that runs already; without it one is started for the run"
	f.Lookup("server").DefValue = ""
	f.StringVar(&o.Account, "account", "", "with --server: whose budget is used; may be left out when the key has one account")
	f.Int64Var(&o.Speed, "speed", 60, "how many times faster than in the trace time passes, a whole `factor`")
	f.IntVar(&o.Concurrency, "concurrency", 64, "most calls under way at once, reservations of killed workers not counted")
	f.Int64Var(&o.MaxTokens, "max-tokens", 4096, "`tokens` that are held for the output of a call")
	f.StringVar(&limit, "limit", "", "limit on tokens, a `rate` in the trace's time such as 10M/min; none if not given")
	f.Int64Var(&o.Slots, "slots", 0, "limit on calls in flight; none if not given")
	f.DurationVar(&o.Lease, "lease", 10*time.Second, "lease of a reservation; renewed when a call takes longer")
	f.DurationVar(&o.MaxWait, "max-wait", 0, "how long a call may wait for its start instead of being refused, to 1h; not divided by --speed")
	f.StringVar(&kill, "kill", "0%", "`share` of the requests whose holder is killed, such as 2%")
	f.IntVar(&o.Workers, "workers", 4, "processes that hold what is to be killed")
	f.Uint64Var(&o.Seed, "seed", 1, "decides which requests are killed")
	f.Int64Var(&o.Requests, "requests", 0, "replay only the first so many requests; all if not given")
	f.StringVar(&o.Redis, "redis", "", "`URL` of a Redis for the broker that is started; its memory if not given")
	f.StringVar(&o.Postgres, "postgres", "", "`URL` of a PostgreSQL for the broker that is started; a temporary database if not given")
	return cmd
}

// completeReplay reads what flags do not read by themselves.
func completeReplay(cmd *cobra.Command, o *replay.Options, to *connection, limit, kill string) error {
	var err error
	if o.Kill, err = replay.ParseShare(kill); err != nil {
		return usagef(cmd, "--kill: %v", err)
	}
	if cmd.Flags().Changed("limit") && limit != "" {
		rate, err := quota.ParseRate(quota.MeterTokens, limit)
		if err == nil && rate.Amount == 0 {
			err = errors.New("is zero; leave it out for no limit")
		}
		if err != nil {
			return usagef(cmd, "--limit: %v", err)
		}
		o.Limit = &rate
	}
	if cmd.Flags().Changed("server") {
		o.Server = to.server
		if o.Key, err = to.key(cmd); err != nil {
			return err
		}
	} else {
		for _, flag := range []string{"key-file", "account"} {
			if cmd.Flags().Changed(flag) {
				return usagef(cmd, "--%s needs --server: the broker that is started for a run has an account and a key of its own", flag)
			}
		}
	}
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	o.WorkerArgs = []string{replayWorker}
	return nil
}

func newReplayWorkerCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:    replayWorker,
		Short:  "Hold reservations for replay, until killed",
		Hidden: true,
		Args:   exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return replay.Work(cmd.Context(), s.in, s.out)
		},
	}
}

// showReplay prints a report for people.
func showReplay(out io.Writer, r *replay.Report) {
	count := func(n int64) string { return showAmount(string(quota.MeterTokens), n) }
	fmt.Fprintf(out, "replayed %s, %d times faster, %s tokens held for each output, seed %d, account %s\n", strings.Join(r.Traces, ", "), r.Speed, count(r.MaxTokens), r.Seed, r.Account)
	fmt.Fprintf(out, "%s\n\n", r.Assumption)

	t := newTable(out, "REQUESTS", "COUNT", "TOKENS OF THE TRACE")
	for _, row := range []struct {
		name string
		c    replay.Count
	}{
		{"sent", r.Offered}, {"admitted", r.Admitted}, {"  refunded", r.Refunded}, {"  crashed", r.Crashed}, {"refused", r.Refused}, {"unanswered", r.Unanswered},
	} {
		t.AppendRow([]any{row.name, count(row.c.Requests), count(row.c.Tokens)})
	}
	t.Render()
	for _, by := range sortedNames(r.RefusedBy) {
		fmt.Fprintf(out, "refused by %s: %s\n", by, count(r.RefusedBy[by]))
	}
	fmt.Fprintln(out)

	t = newTable(out, "TOKENS", "AMOUNT")
	for _, row := range []struct {
		name   string
		amount int64
	}{
		{"held", r.HeldTokens}, {"given back by refunds", r.GivenBackTokens}, {"given back by expiry", r.ExpiredTokens}, {"overrun", r.OverrunTokens},
	} {
		t.AppendRow([]any{row.name, count(row.amount)})
	}
	t.Render()
	fmt.Fprintf(out, "leaked reservations: %s\n", count(r.Leaked))
	fmt.Fprintf(out, "late refunds: %s, renewals: %s, calls repeated for want of an answer: %s\n", count(r.Late), count(r.Renewed), count(r.Retries))
	if k := r.Kills; k.Workers > 0 {
		fmt.Fprintf(out, "workers killed: %s, holding %s reservations, with %s Reserves and %s Refunds on their way\n", count(k.Workers), count(k.Holding), count(k.MidReserve), count(k.MidRefund))
	}
	fmt.Fprintln(out)

	t = newTable(out, "LATENCY", "CALLS", "P50", "P90", "P99", "P99.9", "MAX")
	for _, row := range []struct {
		name string
		l    replay.Latency
	}{
		{"Reserve", r.Reserve}, {"Refund", r.Refund}, {"sent behind the trace", r.Behind},
	} {
		t.AppendRow([]any{row.name, count(row.l.Count), showMicros(row.l.P50), showMicros(row.l.P90), showMicros(row.l.P99), showMicros(row.l.P999), showMicros(row.l.Max)})
	}
	t.Render()
	fmt.Fprintf(out, "%.1f requests/s for %.1f s\n\n", r.RequestsPerSecond, r.ElapsedSeconds)
	if r.Interrupted {
		return
	}

	optional := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return count(*n)
	}
	t = newTable(out, "CHARGED BY", "TOKENS", "REQUESTS")
	for _, sum := range r.Sums {
		t.AppendRow([]any{sum.Of, optional(sum.Tokens), optional(sum.Requests)})
	}
	t.Render()
	if len(r.Gaps) == 0 {
		fmt.Fprintln(out, "no gaps: the sums agree, nothing is held")
		return
	}
	for _, gap := range r.Gaps {
		fmt.Fprintf(out, "GAP: %s\n", gap)
	}
}

func showMicros(micros int64) string {
	d := time.Duration(micros) * time.Microsecond
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.String()
}

func sortedNames(counts map[string]int64) []string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
