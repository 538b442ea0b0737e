// Command budgetd is a budget broker for metered APIs: a caller asks Reserve
// before each call and Refund after it.
//
// Each subcommand is one file of this package; what a broker is made of is in
// internal.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // periods follow each account's time zone on any machine
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	// serve handles signals itself: the first one starts a graceful stop.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRootCommand(s)
	root.SetArgs(args)
	return report(s, root.ExecuteContext(ctx))
}
