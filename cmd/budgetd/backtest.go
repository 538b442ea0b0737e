package main

import (
	"encoding/json"
	"errors"
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

A refused call is gone: nobody knows what its caller would have done next.`

func newBacktestCommand(s streams) *cobra.Command {
	var (
		o        backtest.Options
		lateness time.Duration
		duration time.Duration
		against  string
		plan     string
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "backtest POLICY_FILE CALLS...",
		Short: "Tell what a policy would have done to recorded calls",
		Long:  backtestHelp,
		Example: `  budgetd backtest plans.yaml calls.csv
  budgetd backtest plans.yaml code.csv conv.csv --account acme --model gpt-4o
  budgetd backtest plans.yaml march.jsonl.gz --against tighter.yaml --by team,model`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return usagef(cmd, "POLICY_FILE is missing")
			case 1:
				return usagef(cmd, "CALLS are missing")
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
			files := backtestFiles{paths: args[1:], lateness: lateness, bar: newReplayBar(s.err)}
			files.bar.bytes = true
			defer files.bar.finish()
			var err error
			if o.Plans, err = backtestPlans(cmd, policies, plan, o.Defaults.Account, &files); err != nil {
				return err
			}
			report, err := files.run(cmd, o)
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
	f.StringVar(&o.Defaults.Account, "account", "", "account of calls that name none")
	f.StringVar(&plan, "plan", "", "plan of accounts that the policy does not state; the files are read once more for them")
	f.StringVar(&o.Defaults.Model, "model", "", "model of calls that name none; without a model nothing is priced")
	f.Int64Var(&o.Defaults.MaxOutput, "max-output", 4096, "`tokens` that are held for the output of a call that states no max_output")
	f.DurationVar(&duration, "duration", 0, "how long a call takes that states no end; 0.5 s + 20 ms per token of output if not given")
	f.StringSliceVar(&o.By, "by", nil, "`labels` whose values are told apart, such as team,model; accounts always are")
	f.Int64Var(&o.SkipBad, "skip-bad", 0, "leave out at most so many calls that have a fault, and say which")
	f.DurationVar(&lateness, "lateness", 0, "how far a call may be behind one above it in its file; they are put in order")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// backtestFiles are recorded calls that can be read more than once.
type backtestFiles struct {
	paths    []string
	lateness time.Duration
	bar      *replayBar
}

// pass opens the files for one more reading, which the bar shows as what.
func (b *backtestFiles) pass(what string) (*trace.Files, error) {
	files, err := trace.OpenFiles(b.paths, trace.FilesOptions{Lateness: b.lateness, Read: b.bar.Add})
	if err != nil {
		return nil, err
	}
	size, err := files.Size()
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	b.bar.Stage(what, size)
	return files, nil
}

func (b *backtestFiles) run(cmd *cobra.Command, o backtest.Options) (*backtest.Report, error) {
	calls, err := b.pass("running the calls")
	if err != nil {
		return nil, err
	}
	defer calls.Close()
	report, err := backtest.Run(cmd.Context(), calls, o)
	b.bar.finish()
	if report != nil {
		report.Sources = b.paths
	}
	return report, err
}

// backtestPlans reads the policies. plan is that of accounts which a policy does
// not state.
func backtestPlans(cmd *cobra.Command, paths []string, plan, account string, files *backtestFiles) ([]backtest.Plan, error) {
	accounts := map[string]bool{}
	if plan != "" {
		calls, err := files.pass("reading the accounts")
		if err != nil {
			return nil, err
		}
		defer calls.Close()
		if accounts, err = backtest.Accounts(calls); err != nil {
			return nil, err
		}
		files.bar.finish()
		if account != "" {
			accounts[account] = true
		}
	}
	plans := make([]backtest.Plan, len(paths))
	for i, path := range paths {
		document, err := readPolicy(cmd, path)
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
