package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

// streams are where a command reads and writes.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// onTerminal says whether what is written is read by a person.
func onTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

const rootHelp = `budgetd puts a budget around metered API calls. A caller asks Reserve before a
call and Refund after it; budgetd answers from rate limits, in-flight slots and
monthly quotas, all in one atomic step, and keeps a ledger of what was spent.

Try it:

  budgetd serve --demo &                          # a broker with one account
  export BUDGETD_KEY=demo
  budgetd reserve --account demo --amount tokens=4000
  budgetd refund RESERVATION_ID --amount tokens=1600
  budgetd quota --account demo

Commands that ask a broker take its address from --server or BUDGETD_SERVER and
an API key from BUDGETD_KEY or --key-file; those of operators need an admin's.
apply, account and key work on the broker's database: give them the same --data
or --postgres as the broker, or the same settings file.

Exit codes: 0 done; 1 failed; 2 wrong usage; 69 the broker does not answer;
75 refused now, may pass later; 76 refused for good; 77 not allowed; 78 bad
configuration.`

// logs is the annotation of commands that keep a log, and tell there what others
// write to standard error.
const logs = "logs"

func newRootCommand(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "budgetd",
		Short:         "A budget broker for metered APIs",
		Long:          rootHelp,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          subcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			if cmd.Hidden || cmd.Annotations[logs] != "" {
				return
			}
			for _, unknown := range config.UnknownVariables(os.Environ()) {
				fmt.Fprintf(s.err, "budgetd: note: %s\n", unknown)
			}
		},
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, err) })
	root.AddGroup(
		&cobra.Group{ID: "broker", Title: "Run a broker:"},
		&cobra.Group{ID: "call", Title: "Ask a broker:"},
		&cobra.Group{ID: "manage", Title: "Manage plans, accounts, keys, grants and prices:"},
		&cobra.Group{ID: "choose", Title: "Choose limits:"},
		&cobra.Group{ID: "operate", Title: "Look after the books:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, command := range commands {
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	add("broker", newServeCommand(s), newProxyCommand(s), newMigrateCommand(s), newConfigCommand(s))
	add("call", newReserveCommand(s), newRefundCommand(s), newRenewCommand(s), newQuotaCommand(s), newUsageCommand(s), newEstimateCommand(s), newReplayCommand(s), newReplayWorkerCommand(s))
	add("manage", newApplyCommand(s), newPolicyCommand(s), newLimitCommand(s), newAccountCommand(s), newKeyCommand(s), newGrantCommand(s), newPricesCommand(s))
	add("choose", newBacktestCommand(s), newSimulateCommand(s))
	add("operate", newAuditCommand(s), newReservationCommand(s), newAdjustCommand(s), newAlertsCommand(s))
	return root
}

// version is what the Go toolchain recorded: the module's version of a released
// binary, else the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
			return "devel-" + setting.Value[:12]
		}
	}
	return "devel"
}

// usage is an error in how the command was called.
type usage struct {
	err  error
	path string
}

func (u *usage) Error() string { return u.err.Error() }
func (u *usage) Unwrap() error { return u.err }

func usageError(cmd *cobra.Command, err error) error {
	return &usage{err: err, path: cmd.CommandPath()}
}

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return usageError(cmd, fmt.Errorf(format, args...))
}

// exactArgs is cobra.ExactArgs with an error that says what is missing.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usagef(cmd, "%s is missing", names[len(args)])
		}
		if len(args) > len(names) {
			return usagef(cmd, "%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// subcommand is what the arguments of a command are that has nothing but
// subcommands: whatever is left over is none of them.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("%q is no command of %s", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError(cmd, errors.New(text))
}

// report prints an error, if any, and returns the exit code for it.
func report(s streams, err error) int {
	if err == nil {
		return 0
	}
	var quiet *exit
	if errors.As(err, &quiet) && quiet.err == nil {
		return quiet.code
	}
	fmt.Fprintf(s.err, "budgetd: %s\n", plainText(err))
	var u *usage
	if errors.As(err, &u) {
		fmt.Fprintf(s.err, "Run '%s --help' for what it takes.\n", u.path)
	}
	return exitCode(err)
}

// plainText is an error for people: without the protocol's code, which the exit
// code tells.
func plainText(err error) string {
	var rpc *connect.Error
	if errors.As(err, &rpc) {
		return strings.Replace(err.Error(), rpc.Code().String()+": ", "", 1)
	}
	return err.Error()
}
