package main

import (
	"encoding/json"
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policystore"
)

func newAccountCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "account",
		Short: "Create, change and list accounts",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAccountCreateCommand(s), newAccountSetCommand(s), newAccountListCommand(s), newAccountRemoveCommand(s))
	return cmd
}

// accountFlags are what create and set say of an account.
type accountFlags struct {
	plan      string
	timeZone  string
	anchorDay int
}

func (f *accountFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.plan, "plan", "", "the account's plan")
	cmd.Flags().StringVar(&f.timeZone, "time-zone", "", "IANA `name` of the zone in which its periods begin (UTC unless stated)")
	cmd.Flags().IntVar(&f.anchorDay, "anchor-day", 0, "`day` of the month on which its months begin, 1 to 31 (1 unless stated)")
}

// change sets what was stated and leaves the rest alone.
func (f *accountFlags) change(cmd *cobra.Command, account *quota.Account) {
	if cmd.Flags().Changed("plan") {
		account.Plan = f.plan
	}
	if cmd.Flags().Changed("time-zone") {
		account.TimeZone = f.timeZone
	}
	if cmd.Flags().Changed("anchor-day") {
		account.AnchorDay = f.anchorDay
	}
}

func newAccountCreateCommand(s streams) *cobra.Command {
	var flags accountFlags
	var asJSON bool
	var through remote
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an account",
		Long: `Creates an account on a plan that exists. Its quotas begin at midnight of its
time zone, months on its anchor day. Overrides of limits are stated in a policy
file; see apply.`,
		Example: "  budgetd account create acme --plan pro --time-zone Asia/Tokyo --anchor-day 15",
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.plan == "" {
				return usagef(cmd, "--plan is missing")
			}
			account := quota.Account{Name: args[0], TimeZone: "UTC", AnchorDay: 1}
			flags.change(cmd, &account)
			admin, err := through.client(cmd)
			if err != nil {
				return err
			}
			if admin != nil {
				answer, err := admin.CreateAccount(cmd.Context(), connect.NewRequest(&budgetv1.CreateAccountRequest{
					Name: account.Name, Plan: account.Plan, TimeZone: account.TimeZone, AnchorDay: anchorDay(account.AnchorDay),
				}))
				if err != nil {
					return through.explain(err)
				}
				return through.changed(cmd, s, account.Name, policystore.Added, answer.Msg.PolicyVersion, nil, asJSON)
			}
			return withStores(cmd, func(stores *app.Stores) error {
				change, err := stores.Policies.CreateAccount(cmd.Context(), account, operator())
				if err != nil {
					return err
				}
				return showChange(cmd, s, databaseOf(stores), change, asJSON, false)
			})
		},
	}
	addStoreFlags(cmd)
	through.addFlags(cmd)
	flags.add(cmd)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func newAccountSetCommand(s streams) *cobra.Command {
	var flags accountFlags
	var asJSON bool
	var through remote
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change an account's plan, time zone or anchor day",
		Long: `Changes what is stated and leaves the rest of the account alone, overrides
included. Counters keep what was used of limits that both plans have. With
another time zone or anchor day, days and months begin at other instants: their
quotas begin afresh.`,
		Example: "  budgetd account set acme --plan enterprise",
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			stated := cmd.Flags().Changed
			if !stated("plan") && !stated("time-zone") && !stated("anchor-day") {
				return usagef(cmd, "nothing to change: give --plan, --time-zone or --anchor-day")
			}
			admin, err := through.client(cmd)
			if err != nil {
				return err
			}
			if admin != nil {
				request := &budgetv1.UpdateAccountRequest{Name: args[0]}
				if stated("plan") {
					request.Plan = &flags.plan
				}
				if stated("time-zone") {
					request.TimeZone = &flags.timeZone
				}
				if stated("anchor-day") {
					day := anchorDay(flags.anchorDay)
					request.AnchorDay = &day
				}
				answer, err := admin.UpdateAccount(cmd.Context(), connect.NewRequest(request))
				if err != nil {
					return through.explain(err)
				}
				return through.changed(cmd, s, args[0], policystore.Changed, answer.Msg.PolicyVersion, answer.Msg.Change, asJSON)
			}
			return withStores(cmd, func(stores *app.Stores) error {
				change, err := stores.Policies.ChangeAccount(cmd.Context(), args[0], func(account *quota.Account) {
					flags.change(cmd, account)
				}, operator())
				if err != nil {
					return err
				}
				return showChange(cmd, s, databaseOf(stores), change, asJSON, false)
			})
		},
	}
	addStoreFlags(cmd)
	through.addFlags(cmd)
	flags.add(cmd)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// accountRow is an account as lists show it.
type accountRow struct {
	Name      string `json:"name"`
	Plan      string `json:"plan"`
	TimeZone  string `json:"timeZone"`
	AnchorDay int    `json:"anchorDay"`
}

func newAccountListCommand(s streams) *cobra.Command {
	var asJSON bool
	var through remote
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List accounts by name",
		Args:  exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, err := through.client(cmd)
			if err != nil {
				return err
			}
			if admin != nil {
				rows, err := through.accounts(cmd, admin)
				if err != nil {
					return err
				}
				return showAccounts(cmd, s, rows, asJSON)
			}
			return withStores(cmd, func(stores *app.Stores) error {
				rows := []accountRow{}
				const page = 1000
				for after, more := "", true; more; {
					accounts, err := stores.Policies.Accounts(cmd.Context(), after, page)
					if err != nil {
						return err
					}
					for _, a := range accounts {
						rows = append(rows, accountRow{a.Name, a.Plan, a.TimeZone, a.AnchorDay})
						after = a.Name
					}
					more = len(accounts) == page
				}
				return showAccounts(cmd, s, rows, asJSON)
			})
		},
	}
	addStoreFlags(cmd)
	through.addFlags(cmd)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func showAccounts(cmd *cobra.Command, s streams, rows []accountRow, asJSON bool) error {
	if wantsJSON(cmd, asJSON, s.out) {
		return json.NewEncoder(s.out).Encode(rows)
	}
	t := newTable(s.out, "ACCOUNT", "PLAN", "TIME ZONE", "ANCHOR DAY")
	for _, r := range rows {
		t.AppendRow([]any{r.Name, r.Plan, r.TimeZone, r.AnchorDay})
	}
	t.Render()
	return nil
}

func newAccountRemoveCommand(s streams) *cobra.Command {
	var asJSON bool
	var through remote
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an account",
		Long: `Removes an account: its calls are refused from then on. Open reservations can
still be refunded, and what it spent stays in the ledger.`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			const keysStay = "its API keys still exist: revoke them with `budgetd key revoke`"
			admin, err := through.client(cmd)
			if err != nil {
				return err
			}
			if admin != nil {
				answer, err := admin.RemoveAccount(cmd.Context(), connect.NewRequest(&budgetv1.RemoveAccountRequest{Name: args[0]}))
				if err != nil {
					return through.explain(err)
				}
				if err := through.changed(cmd, s, args[0], policystore.Removed, answer.Msg.PolicyVersion, nil, asJSON); err != nil {
					return err
				}
				fmt.Fprintln(s.err, keysStay)
				return nil
			}
			return withStores(cmd, func(stores *app.Stores) error {
				change, err := stores.Policies.Remove(cmd.Context(), policystore.KindAccount, args[0], operator())
				if err != nil {
					return err
				}
				if err := showChange(cmd, s, databaseOf(stores), change, asJSON, false); err != nil {
					return err
				}
				fmt.Fprintln(s.err, keysStay)
				return nil
			})
		},
	}
	addStoreFlags(cmd)
	through.addFlags(cmd)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// anchorDay is a day as a message has it; one that is none stays none.
func anchorDay(day int) int32 { return int32(min(max(day, -1), 32)) }
