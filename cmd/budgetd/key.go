package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota/policystore"
)

func newKeyCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Create, list and revoke API keys",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeyCreateCommand(s), newKeyListCommand(s), newKeyRevokeCommand(s), newKeyRotateSigningCommand(s))
	return cmd
}

func newKeyCreateCommand(s streams) *cobra.Command {
	var (
		accounts []string
		admin    bool
		lifetime time.Duration
		asJSON   bool
		through  remote
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an API key and print it, this once",
		Long: `Creates an API key for one or more accounts and prints it. Only its hash is
stored: it can't be shown again. A key reaches its accounts and nobody else's.`,
		Example: `  budgetd key create chat-service --account acme
  budgetd key create ops --admin
  budgetd key create trial --account acme --expires-in 720h
  budgetd key create chat-service --account acme --server https://budgetd.internal --key-file admin-key`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n := auth.NewKey{Name: args[0], Role: auth.RoleCaller, Accounts: accounts, By: operator()}
			switch {
			case admin && len(accounts) > 0:
				return usagef(cmd, "--admin reaches every account: leave --account out")
			case admin:
				n.Role = auth.RoleAdmin
			case len(accounts) == 0:
				return usagef(cmd, "--account is missing (or --admin)")
			}
			if cmd.Flags().Changed("expires-in") {
				if lifetime <= 0 {
					return usagef(cmd, "--expires-in %v: want a time above zero, such as 720h", lifetime)
				}
				n.ExpiresAt = time.Now().Add(lifetime)
			}
			admin, err := through.client(cmd)
			if err != nil {
				return err
			}
			if admin != nil {
				return through.createKey(cmd, s, admin, n, asJSON)
			}
			return withStores(cmd, func(stores *app.Stores) error {
				key, secret, err := stores.Keys.Create(cmd.Context(), n)
				if err != nil {
					return err
				}
				unknown := unknownAccounts(cmd.Context(), stores, key.Accounts)
				return showNewKey(cmd, s, newKey{id: key.ID, secret: secret.Reveal(), accounts: key.Accounts, role: key.Role, unknown: unknown, where: databaseOf(stores)}, asJSON)
			})
		},
	}
	addStoreFlags(cmd)
	through.addFlags(cmd)
	cmd.Flags().StringArrayVar(&accounts, "account", nil, "an account that the key reaches; repeat for more")
	cmd.Flags().BoolVar(&admin, "admin", false, "an admin key, which reaches everything")
	cmd.Flags().DurationVar(&lifetime, "expires-in", 0, "how long the key works; for good if not given")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// unknownAccounts are the accounts of a key that do not exist: perhaps they are
// misspelt.
func unknownAccounts(ctx context.Context, stores *app.Stores, accounts []string) []string {
	var unknown []string
	for _, name := range accounts {
		if name == auth.EveryAccount {
			continue
		}
		if _, err := stores.Policies.Account(ctx, name); errors.Is(err, policystore.ErrNotFound) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

func newKeyListCommand(s streams) *cobra.Command {
	var asJSON bool
	var through remote
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List API keys, without the keys themselves",
		Args:  exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, err := through.client(cmd)
			if err != nil {
				return err
			}
			if admin != nil {
				keys, err := through.keys(cmd, admin)
				if err != nil {
					return err
				}
				return showKeys(cmd, s, keys, asJSON)
			}
			return withStores(cmd, func(stores *app.Stores) error {
				var keys []auth.Key
				for after, more := "", true; more; {
					page, err := stores.Keys.List(cmd.Context(), after, auth.MaxListKeys)
					if err != nil {
						return err
					}
					keys = append(keys, page...)
					if more = len(page) == auth.MaxListKeys; more {
						after = page[len(page)-1].ID
					}
				}
				return showKeys(cmd, s, keys, asJSON)
			})
		},
	}
	addStoreFlags(cmd)
	through.addFlags(cmd)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func showKeys(cmd *cobra.Command, s streams, keys []auth.Key, asJSON bool) error {
	if wantsJSON(cmd, asJSON, s.out) {
		return printKeysJSON(s, keys)
	}
	t := newTable(s.out, "ID", "NAME", "ROLE", "ACCOUNTS", "KEY ENDS", "CREATED", "BY", "EXPIRES", "STATE")
	for _, k := range keys {
		t.AppendRow([]any{k.ID, k.Name, k.Role, strings.Join(k.Accounts, ","), "…" + k.Last4, showTime(k.CreatedAt), k.CreatedBy, showTime(k.ExpiresAt), keyState(k)})
	}
	t.Render()
	return nil
}

func keyState(k auth.Key) string {
	switch {
	case !k.RevokedAt.IsZero():
		state := "revoked " + showTime(k.RevokedAt)
		if k.RevokedBy != "" {
			state += " by " + k.RevokedBy
		}
		return state
	case k.ExpiresAt.IsZero() || time.Now().Before(k.ExpiresAt):
		return "works"
	}
	return "expired"
}

func printKeysJSON(s streams, keys []auth.Key) error {
	type row struct {
		ID        string     `json:"id"`
		Name      string     `json:"name"`
		Role      auth.Role  `json:"role"`
		Accounts  []string   `json:"accounts"`
		Last4     string     `json:"last4"`
		CreatedAt time.Time  `json:"createdAt"`
		ExpiresAt *time.Time `json:"expiresAt,omitempty"`
		RevokedAt *time.Time `json:"revokedAt,omitempty"`
		CreatedBy string     `json:"createdBy,omitempty"`
		RevokedBy string     `json:"revokedBy,omitempty"`
	}
	rows := make([]row, len(keys))
	for i, k := range keys {
		rows[i] = row{ID: k.ID, Name: k.Name, Role: k.Role, Accounts: k.Accounts, Last4: k.Last4, CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, RevokedBy: k.RevokedBy}
		if !k.ExpiresAt.IsZero() {
			rows[i].ExpiresAt = &keys[i].ExpiresAt
		}
		if !k.RevokedAt.IsZero() {
			rows[i].RevokedAt = &keys[i].RevokedAt
		}
	}
	return json.NewEncoder(s.out).Encode(rows)
}

func newKeyRevokeCommand(s streams) *cobra.Command {
	var through remote
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke an API key; it stops working within a second",
		Args:  exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			admin, err := through.client(cmd)
			if err != nil {
				return err
			}
			if admin != nil {
				answer, err := admin.RevokeKey(cmd.Context(), connect.NewRequest(&budgetv1.RevokeKeyRequest{Id: args[0]}))
				if err != nil {
					return through.explain(err)
				}
				fmt.Fprintf(s.out, "revoked %s (%s) by %s\n", answer.Msg.Key.Id, answer.Msg.Key.Name, through.where())
				return nil
			}
			return withStores(cmd, func(stores *app.Stores) error {
				key, err := stores.Keys.Revoke(cmd.Context(), args[0], operator())
				if err != nil {
					return err
				}
				fmt.Fprintf(s.out, "revoked %s (%s) in %s\n", key.ID, key.Name, stores.Where)
				return nil
			})
		},
	}
	addStoreFlags(cmd)
	through.addFlags(cmd)
	return cmd
}
