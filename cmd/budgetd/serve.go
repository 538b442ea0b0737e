package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

func newServeCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long: `Runs a broker until it gets SIGINT or SIGTERM. Calls under way then finish, and
nothing that was acknowledged is lost.

Alone, a broker keeps counters in memory and its ledger in one SQLite file.
Several brokers share a Redis and a PostgreSQL. Every setting is a flag, an
environment variable and a line of the settings file, in this order of
precedence; docs/configuration.md explains them all.`,
		Example: `  budgetd serve --demo --listen 127.0.0.1:8080 --data ./budgetd-data
  budgetd serve --redis redis://127.0.0.1:6379 --postgres postgres://budgetd@127.0.0.1/budgetd
  BUDGETD_REDIS=redis://... BUDGETD_POSTGRES=postgres://... budgetd serve`,
		Args:        exactArgs(),
		Annotations: map[string]string{logs: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Flags(), os.LookupEnv)
			if err != nil {
				return err
			}
			warnOfVariables(app.NewLogger(s.err, c))
			// app.Run handles the signals: the first stops gracefully, the
			// second at once.
			return app.Run(context.WithoutCancel(cmd.Context()), c, s.err)
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

// warnOfVariables logs what the environment has for budgetd and nothing reads.
func warnOfVariables(log *slog.Logger) {
	for _, unknown := range config.UnknownVariables(os.Environ()) {
		log.Warn(unknown)
	}
}
