package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/backtest"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota/policyfile"
)

const backtestHelp = `Tells what a policy would have done to recorded calls: whom it would have
refused, when, by which limit, and what that would have saved. Nothing is asked
of a broker and nothing is changed: the policy file is one that apply takes, and
the calls go through the broker's own code, on a clock of their own.

Calls come from files: ` + trace.FileKinds + `.
The first line of a CSV file names its columns, in any order; a line of the
others is a JSON object. Only time has to be there:

  time        2026-03-10T12:00:00.5Z, or seconds since 1970; up to --lateness
              behind a line above it
  end         when the call ended; or duration, such as 1.5s. If neither is
              there: --duration, or 0.5 s + 20 ms per token of output (assumed)
  account     or --account for all; --plan for accounts that the policy has not
  model       and provider: the call is priced; or --model for all
  input       tokens read; output: tokens written; max_output: tokens that the
              caller allowed, which are held, or --max-output
  labels.NAME    a label of the call
  amounts.METER  what the call used of any meter; cost as $0.02 or in nano-USD
  held.METER     what it reserved, where that was not what it used

Traces as Azure publishes them (TIMESTAMP, ContextTokens, GeneratedTokens) are
read as they are.

With --ledger the calls are the reservations of a broker's ledger, by its --data or
--postgres. It is only read, and the broker may run. What a ledger cannot tell is
said in the report.

A refused call is gone: nobody knows what its caller would have done next.`

func newBacktestCommand(s streams) *cobra.Command {
	var (
		o        backtest.Options
		lateness time.Duration
		duration time.Duration
		against  string
		plan     string
		asJSON   bool
		books    backtestLedger
		onLedger bool
	)
	cmd := &cobra.Command{
		Use:   "backtest POLICY_FILE {CALLS... | --ledger}",
		Short: "Tell what a policy would have done to recorded calls",
		Long:  backtestHelp,
		Example: `  budgetd backtest plans.yaml calls.csv
  budgetd backtest plans.yaml code.csv conv.csv --account acme --model gpt-4o
  budgetd backtest plans.yaml march.jsonl.gz --against tighter.yaml --by team,model
  budgetd backtest plans.yaml --ledger --data ./budgetd-data --from last-month --to this-month`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef(cmd, "POLICY_FILE is missing")
			case len(args) == 1 && !onLedger:
				return usagef(cmd, "CALLS are missing; name files, or --ledger")
			case len(args) > 1 && onLedger:
				return usagef(cmd, "%s is named beside --ledger; use one of them", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("duration") {
				o.Defaults.Duration = &duration
			}
			if err := o.Check(); err != nil {
				return usageError(cmd, err)
			}
			policies := args[:1]
			if against != "" {
				policies = append(policies[:1:1], against)
			}
			bar := newReplayBar(s.err)
			defer bar.finish()
			var source backtestSource = &backtestFiles{paths: args[1:], lateness: lateness, bar: bar}
			if onLedger {
				books.account, books.bar = o.Defaults.Account, bar
				if err := books.open(cmd, time.Now()); err != nil {
					return err
				}
				defer books.close()
				source = &books
			}
			var err error
			if o.Plans, err = backtestPlans(cmd, policies, plan, o.Defaults.Account, source); err != nil {
				return err
			}
			report, err := runBacktest(cmd.Context(), source, o)
			bar.finish()
			if err != nil {
				return err
			}
			if wantsJSON(cmd, asJSON, s.out) {
				return json.NewEncoder(s.out).Encode(report)
			}
			showBacktest(s.out, report)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&against, "against", "", "another `policy file`, whose outcome is shown beside the first's")
	f.StringVar(&o.Defaults.Account, "account", "", "account of calls that name none; with --ledger the only account that is read")
	f.StringVar(&plan, "plan", "", "plan of accounts that the policy does not state; files are read once more for them")
	f.StringVar(&o.Defaults.Model, "model", "", "model of calls that name none; without a model nothing is priced")
	f.Int64Var(&o.Defaults.MaxOutput, "max-output", 4096, "`tokens` that are held for the output of a call that states no max_output")
	f.DurationVar(&duration, "duration", 0, "how long a call takes that states no end; 0.5 s + 20 ms per token of output if not given")
	f.StringSliceVar(&o.By, "by", nil, "`labels` whose values are told apart, such as team,model; accounts always are")
	f.Int64Var(&o.SkipBad, "skip-bad", 0, "leave out at most so many calls that have a fault, and say which")
	f.DurationVar(&lateness, "lateness", 0, "how far a call may be behind one above it in its file; they are put in order")
	f.BoolVar(&onLedger, "ledger", false, "take the calls from a broker's ledger: name its --data or --postgres")
	f.StringVar(&books.from, "from", "this-month", "with --ledger: first `instant` of a Reserve: a date, RFC 3339, -36h, -7d, today, this-month, last-month")
	f.StringVar(&books.until, "to", "now", "with --ledger: `instant` at which it ends")
	addStoreFlags(cmd)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// backtestSource are recorded calls that can be read more than once.
type backtestSource interface {
	// pass begins one more reading, which the bar shows as what.
	pass(ctx context.Context, what string) (backtestCalls, error)
	// accounts are those that the calls name.
	accounts(ctx context.Context) (map[string]bool, error)
	// complete adds to a report what is to be said about the source.
	complete(*backtest.Report)
}

// backtestCalls are one reading.
type backtestCalls interface {
	trace.Calls
	Close() error
}

func runBacktest(ctx context.Context, source backtestSource, o backtest.Options) (*backtest.Report, error) {
	calls, err := source.pass(ctx, "running the calls")
	if err != nil {
		return nil, err
	}
	defer calls.Close()
	report, err := backtest.Run(ctx, calls, o)
	if report != nil {
		source.complete(report)
	}
	return report, err
}

// backtestPlans reads the policies. plan is that of accounts which a policy does
// not state.
func backtestPlans(cmd *cobra.Command, paths []string, plan, account string, source backtestSource) ([]backtest.Plan, error) {
	accounts := map[string]bool{}
	if plan != "" {
		var err error
		if accounts, err = source.accounts(cmd.Context()); err != nil {
			return nil, err
		}
		if account != "" {
			accounts[account] = true
		}
	}
	plans := make([]backtest.Plan, len(paths))
	for i, path := range paths {
		document, _, err := readPolicy(cmd, path)
		if err != nil {
			return nil, err
		}
		if plans[i], err = backtestPlan(path, backtest.WithAccounts(document, accounts, plan)); err != nil {
			return nil, err
		}
	}
	return plans, nil
}

func backtestPlan(path string, document *policyfile.Document) (backtest.Plan, error) {
	policy, err := document.Policy(1)
	if err != nil {
		return backtest.Plan{}, &exit{code: config.ExitCode, err: fmt.Errorf("%s:\n%w", path, err)}
	}
	return backtest.Plan{Name: path, Policy: policy}, nil
}
