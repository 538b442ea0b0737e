package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/proxy"
)

func newProxyCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Run a proxy that budgets the calls to providers of models",
		Long: `Runs a reverse proxy in front of providers of models until it gets SIGINT or
SIGTERM. An SDK whose base URL is the proxy is budgeted by the broker, in any
language: what a call may use is reserved before it is forwarded, and what the
answer says that it used is charged after it, plain or streamed.

Base URLs, for a proxy at http://127.0.0.1:8081:

  OpenAI      http://127.0.0.1:8081/openai/v1
  Anthropic   http://127.0.0.1:8081/anthropic
  Gemini      http://127.0.0.1:8081/gemini
  others      http://127.0.0.1:8081/NAME/v1, with --upstream NAME=URL

Keys: with a provider's key in BUDGETD_PROXY_PROVIDER_KEY the key that an SDK
sends is a budget key, of the broker; the proxy replaces it. Without, the SDK's
own key goes through, and the budget key comes in the header X-Budget-Key.

Every setting is a flag, an environment variable and a line of the settings
file, in this order of precedence; docs/configuration.md explains them all.`,
		Example: `  BUDGETD_PROXY_PROVIDER_KEY="openai=$OPENAI_API_KEY" budgetd proxy
  budgetd proxy --broker https://budgetd.internal --provider-key anthropic=@/run/secrets/anthropic
  budgetd proxy --upstream groq=https://api.groq.com/openai`,
		Args:        exactArgs(),
		Annotations: map[string]string{logs: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.LoadProxy(cmd.Flags(), os.LookupEnv)
			if err != nil {
				return err
			}
			log := app.NewLogger(s.err, config.Config{LogLevel: c.LogLevel, LogFormat: c.LogFormat})
			warnOfVariables(log)
			// proxy.Run handles the signals: the first stops gracefully, the
			// second at once.
			return proxy.Run(context.WithoutCancel(cmd.Context()), c, log)
		},
	}
	config.AddProxyFlags(cmd.Flags())
	return cmd
}
