package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/backtest"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/replay"
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

A refused call is gone: nobody knows what its caller would have done next.

With --suggest 1% the calls are read several times, to find the smallest amount of
each limit that refuses under 1% of them: of each as if it were the only one, and
then of all together. Amounts are of two digits with zeros behind; a burst that is
stated keeps its proportion. The policy beside it is shown as usual.`

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
		suggest  string
		asYAML   bool
	)
	cmd := &cobra.Command{
		Use:   "backtest POLICY_FILE {CALLS... | --ledger}",
		Short: "Tell what a policy would have done to recorded calls",
		Long:  backtestHelp,
		Example: `  budgetd backtest plans.yaml calls.csv
  budgetd backtest plans.yaml code.csv conv.csv --account acme --model gpt-4o
  budgetd backtest plans.yaml march.jsonl.gz --against tighter.yaml --by team,model
  budgetd backtest plans.yaml march.csv --suggest 0.5% --yaml > smaller.yaml
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
			var share int64
			switch searching := cmd.Flags().Changed("suggest"); {
			case searching && against != "":
				return usagef(cmd, "--suggest and --against are stated: what is suggested is shown beside POLICY_FILE; use one of them")
			case searching:
				var err error
				if share, err = replay.ParseShare(suggest); err != nil {
					return usagef(cmd, "--suggest: %v", err)
				}
			case asYAML:
				return usagef(cmd, "--yaml needs --suggest: it prints the policy that is suggested")
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
			documents, err := backtestDocuments(cmd, policies, plan, o.Defaults.Account, source)
			if err != nil {
				return err
			}
			for _, d := range documents {
				p, err := backtestPlan(d.path, d.whole)
				if err != nil {
					return err
				}
				o.Plans = append(o.Plans, p)
			}
			var suggestion *backtest.Suggestion
			if suggest != "" {
				if suggestion, err = suggestLimits(cmd.Context(), source, documents[0], share, o); err != nil {
					return err
				}
				p, err := backtestPlan("suggested", suggestion.Whole)
				if err != nil {
					return err
				}
				o.Plans = append(o.Plans, p)
			}
			report, err := runBacktest(cmd.Context(), source, o)
			bar.finish()
			if err != nil {
				return err
			}
			report.Suggestion = suggestion
			if asYAML {
				fmt.Fprint(s.out, suggestion.Policy)
				return nil
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
	f.StringVar(&suggest, "suggest", "", "search the smallest limits that refuse under so large a `share` of the calls, such as 1%; 0% for none")
	f.BoolVar(&asYAML, "yaml", false, "with --suggest: print only the suggested policy, as apply takes it")
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

// backtestDocument is a policy file.
type backtestDocument struct {
	path   string
	stated *policyfile.Document
	whole  *policyfile.Document // with accounts that only the calls name
}

// backtestDocuments reads the policies. plan is that of accounts which a policy
// does not state.
func backtestDocuments(cmd *cobra.Command, paths []string, plan, account string, source backtestSource) ([]backtestDocument, error) {
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
	documents := make([]backtestDocument, len(paths))
	for i, path := range paths {
		document, _, err := readPolicy(cmd, path)
		if err != nil {
			return nil, err
		}
		documents[i] = backtestDocument{path, document, backtest.WithAccounts(document, accounts, plan)}
	}
	return documents, nil
}

// suggestLimits searches the limits of a policy.
func suggestLimits(ctx context.Context, source backtestSource, d backtestDocument, share int64, o backtest.Options) (*backtest.Suggestion, error) {
	search := backtest.Search{
		Document: d.stated, Whole: d.whole, Name: d.path, Share: share, Options: o,
		Open: func(ctx context.Context, what string) (trace.Calls, func() error, error) {
			calls, err := source.pass(ctx, what)
			if err != nil {
				return nil, nil, err
			}
			return calls, calls.Close, nil
		},
	}
	return search.Run(ctx)
}

func backtestPlan(path string, document *policyfile.Document) (backtest.Plan, error) {
	policy, err := document.Policy(1)
	if err != nil {
		return backtest.Plan{}, &exit{code: config.ExitCode, err: fmt.Errorf("%s:\n%w", path, err)}
	}
	return backtest.Plan{Name: path, Policy: policy}, nil
}
