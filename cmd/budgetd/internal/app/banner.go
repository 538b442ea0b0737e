package app

import (
	"fmt"
	"io"
	"strings"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/ops"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
	"github.com/budgetd/budgetd/quota"
)

// banner says what runs: on a terminal for people, else as a record of the log.
func (a *App) banner(out io.Writer, stores *Stores, policy *quota.Policy) {
	engine := "memory of this process; reservations end with it"
	if a.config.Redis.IsSet() {
		engine = a.config.Redis.String()
	}
	state := fmt.Sprintf("version %d, %d plans, %d pools, %d accounts", policy.Version, len(policy.Plans), len(policy.Pools), len(policy.Accounts))
	build := ops.ThisBuild()
	records := a.config.LogFormat == "json" || a.config.LogFormat == "auto" && !isTerminal(out)
	if records {
		a.log.Info("serving", "url", a.URL(), "ops", a.OpsAddr(), "engine", engine, "ledger", stores.Where,
			"policy_version", policy.Version, "accounts", len(policy.Accounts), "version", build.Version, "revision", build.Revision)
	} else {
		fmt.Fprintf(out, "budgetd %s serves %s\n", build.Version, a.URL())
		if a.ops != nil {
			fmt.Fprintf(out, "  ops     http://%s/metrics, /healthz, /readyz\n", a.OpsAddr())
		}
		fmt.Fprintf(out, "  engine  %s\n  ledger  %s\n  policy  %s\n", engine, stores.Where, state)
	}
	if len(policy.Accounts) == 0 {
		a.log.Warn("there is no account yet: every call is refused until \"budgetd apply\" brings in plans and accounts")
	}
	switch {
	case a.config.Demo && records:
		a.log.Info("account and key of the demo are both \"demo\"; the README has calls to try")
	case a.config.Demo:
		fmt.Fprint(out, a.demoLines())
	}
}

// demoLines are the two calls to try.
func (a *App) demoLines() string {
	service := a.URL() + "/" + budgetv1connect.BudgetServiceName
	var text strings.Builder
	line := func(method, body string) {
		fmt.Fprintf(&text, "  curl -s %s/%s -H 'Authorization: Bearer %s' \\\n    -H 'Content-Type: application/json' -d '%s'\n",
			service, method, auth.DemoKey, body)
	}
	fmt.Fprintf(&text, "\nAccount and key are both %q. Try, with the reservationId of the first answer in the second:\n\n", auth.DemoKey)
	line("Reserve", `{"account":"demo","labels":{"route":"chat"},"amounts":{"tokens":4000},"lease":"60s"}`)
	line("Refund", `{"reservationId":"…","usage":{"amounts":{"tokens":1600}}}`)
	text.WriteByte('\n')
	return text.String()
}
