package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policystore"
)

func newAccountCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "account",
		Short: "Create, change and list accounts",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newAccountPutCommand(s, "create", "Create an account", func(p *policystore.Store) accountPut { return p.CreateAccount }),
		newAccountPutCommand(s, "set", "Change an account's plan, time zone or anchor day", func(p *policystore.Store) accountPut { return p.SetAccount }),
		newAccountListCommand(s),
		newAccountRemoveCommand(s),
	)
	return cmd
}

func newAccountPutCommand(s streams, verb, short string, of func(*policystore.Store) accountPut) *cobra.Command {
	var account quota.Account
	var asJSON bool
	cmd := &cobra.Command{
		Use:   verb + " NAME",
		Short: short,
		Long: short + `. Its plan must exist. Quotas of an account
begin at midnight of its time zone, months on its anchor day. Overrides of
limits are stated in a policy file; see apply.`,
		Example: "  budgetd account " + verb + " acme --plan pro --time-zone Asia/Tokyo --anchor-day 15",
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			account.Name = args[0]
			return withStores(cmd, func(stores *app.Stores) error {
				change, err := of(stores.Policies)(cmd.Context(), account, operator())
				if err != nil {
					return err
				}
				return showChange(cmd, s, change, asJSON, false)
			})
		},
	}
	addStoreFlags(cmd)
	cmd.Flags().StringVar(&account.Plan, "plan", "", "the account's plan")
	cmd.Flags().StringVar(&account.TimeZone, "time-zone", "UTC", "IANA name of the zone in which its periods begin")
	cmd.Flags().IntVar(&account.AnchorDay, "anchor-day", 1, "day of the month on which its months begin, 1 to 31")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func newAccountListCommand(s streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List accounts by name",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStores(cmd, func(stores *app.Stores) error {
				type row struct {
					Name      string `json:"name"`
					Plan      string `json:"plan"`
					TimeZone  string `json:"timeZone"`
					AnchorDay int    `json:"anchorDay"`
				}
				rows := []row{}
				const page = 1000
				for after, more := "", true; more; {
					accounts, err := stores.Policies.Accounts(cmd.Context(), after, page)
					if err != nil {
						return err
					}
					for _, a := range accounts {
						rows = append(rows, row{a.Name, a.Plan, a.TimeZone, a.AnchorDay})
						after = a.Name
					}
					more = len(accounts) == page
				}
				if wantsJSON(cmd, asJSON, s.out) {
					return json.NewEncoder(s.out).Encode(rows)
				}
				t := newTable(s.out, "ACCOUNT", "PLAN", "TIME ZONE", "ANCHOR DAY")
				for _, r := range rows {
					t.AppendRow([]any{r.Name, r.Plan, r.TimeZone, r.AnchorDay})
				}
				t.Render()
				return nil
			})
		},
	}
	addStoreFlags(cmd)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func newAccountRemoveCommand(s streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an account",
		Long: `Removes an account: its calls are refused from then on. Open reservations can
still be refunded, and what it spent stays in the ledger.`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStores(cmd, func(stores *app.Stores) error {
				change, err := stores.Policies.Remove(cmd.Context(), policystore.KindAccount, args[0], operator())
				if err != nil {
					return err
				}
				if err := showChange(cmd, s, change, asJSON, false); err != nil {
					return err
				}
				fmt.Fprintln(s.err, "its API keys still exist: revoke them with `budgetd key revoke`")
				return nil
			})
		},
	}
	addStoreFlags(cmd)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// accountPut creates or changes one account.
type accountPut func(ctx context.Context, account quota.Account, by string) (policystore.Change, error)
