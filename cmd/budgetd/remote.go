package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
	"github.com/budgetd/budgetd/quota/policystore"
)

// remote is a running broker through which a command may work that else works on the
// database: an operator then needs an admin key, and no way to the database.
type remote struct{ connection }

func (r *remote) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.server, "server", "", "`address` of a broker to work through with an admin key, instead of on the database")
	cmd.Flags().StringVar(&r.keyFile, "key-file", "", "with --server: `file` that holds the admin key; without it "+config.EnvKey+" is read")
}

// client returns the broker's, nil where the command is to work on the database.
func (r *remote) client(cmd *cobra.Command) (budgetv1connect.AdminServiceClient, error) {
	if !cmd.Flags().Changed("server") {
		if cmd.Flags().Changed("key-file") {
			return nil, usagef(cmd, "--key-file is for --server: give that too")
		}
		return nil, nil
	}
	for _, name := range []string{"data", "postgres"} {
		if cmd.Flags().Changed(name) {
			return nil, usagef(cmd, "--server works through a broker, and --%s on its database: leave one out", name)
		}
	}
	return r.openAdmin(cmd)
}

// where names the broker in what is printed.
func (r *remote) where() place { return place{"broker", r.server} }

// place is where something was changed.
type place struct {
	kind string // "database" or "broker", as JSON has it
	name string
}

// databaseOf names the database in what is printed.
func databaseOf(stores *app.Stores) place { return place{"database", stores.Where} }

// String names it for people.
func (p place) String() string {
	if p.kind == "broker" {
		return "the broker at " + p.name
	}
	return p.name
}

// apply puts a policy into force through the broker.
func (r *remote) apply(cmd *cobra.Command, admin budgetv1connect.AdminServiceClient, path, text string, dryRun, prune bool) (policystore.Change, error) {
	answer, err := admin.ApplyPolicy(cmd.Context(), connect.NewRequest(&budgetv1.ApplyPolicyRequest{Policy: text, DryRun: dryRun, Prune: prune}))
	if connect.CodeOf(err) == connect.CodeInvalidArgument {
		return policystore.Change{}, &exit{code: config.ExitCode, err: fmt.Errorf("%s:\n%w", path, r.explain(err))}
	}
	if err != nil {
		return policystore.Change{}, r.explain(err)
	}
	change := changeOf(answer.Msg.Change)
	change.Warnings = answer.Msg.Warnings
	return change, nil
}

// changeOf is a change as the store has it.
func changeOf(c *budgetv1.PolicyChange) policystore.Change {
	change := policystore.Change{From: c.GetFromVersion(), Version: c.GetVersion()}
	actions := map[budgetv1.PolicyAction]policystore.Action{
		budgetv1.PolicyAction_POLICY_ACTION_ADDED: policystore.Added, budgetv1.PolicyAction_POLICY_ACTION_CHANGED: policystore.Changed,
		budgetv1.PolicyAction_POLICY_ACTION_REMOVED: policystore.Removed, budgetv1.PolicyAction_POLICY_ACTION_UNCHANGED: policystore.Unchanged,
	}
	for _, o := range c.GetObjects() {
		object := policystore.ObjectChange{Kind: policystore.Kind(o.Kind), Name: o.Name, Action: actions[o.Action]}
		for _, f := range o.Fields {
			object.Fields = append(object.Fields, policystore.FieldChange{Path: f.Path, Old: f.Old, New: f.New})
		}
		change.Objects = append(change.Objects, object)
	}
	return change
}

// createKey makes a key through the broker and prints it.
func (r *remote) createKey(cmd *cobra.Command, s streams, admin budgetv1connect.AdminServiceClient, n auth.NewKey, asJSON bool) error {
	request := &budgetv1.CreateKeyRequest{Name: n.Name, Accounts: n.Accounts, Role: budgetv1.KeyRole_KEY_ROLE_CALLER}
	if n.Role == auth.RoleAdmin {
		request.Role = budgetv1.KeyRole_KEY_ROLE_ADMIN
	}
	if !n.ExpiresAt.IsZero() {
		request.ExpiresAt = timestamppb.New(n.ExpiresAt)
	}
	answer, err := admin.CreateKey(cmd.Context(), connect.NewRequest(request))
	if err != nil {
		return r.explain(err)
	}
	m := answer.Msg
	return showNewKey(cmd, s, newKey{id: m.Key.Id, secret: m.Secret, accounts: m.Key.Accounts, role: n.Role, unknown: m.UnknownAccounts, where: r.where()}, asJSON)
}

// newKey is a key that was made just now.
type newKey struct {
	id, secret string
	accounts   []string
	role       auth.Role
	unknown    []string // accounts that do not exist
	where      place    // it was made
}

// showNewKey prints it, this once.
func showNewKey(cmd *cobra.Command, s streams, k newKey, asJSON bool) error {
	for _, name := range k.unknown {
		fmt.Fprintf(s.err, "budgetd: note: there is no account %q in %s; the key works once there is\n", name, k.where)
	}
	if wantsJSON(cmd, asJSON, s.out) {
		answer := map[string]any{"id": k.id, "key": k.secret, "accounts": k.accounts, "role": k.role, k.where.kind: k.where.name}
		if len(k.unknown) > 0 {
			answer["unknownAccounts"] = k.unknown
		}
		return json.NewEncoder(s.out).Encode(answer)
	}
	fmt.Fprintf(s.err, "This key of %s is shown once. Keep it where secrets are kept:\n", k.where)
	fmt.Fprintln(s.out, strings.TrimSpace(k.secret))
	return nil
}

// changed prints that an account was changed through the broker.
func (r *remote) changed(cmd *cobra.Command, s streams, name string, action policystore.Action, version int64, change *budgetv1.PolicyChange, asJSON bool) error {
	c := changeOf(change)
	if change == nil {
		c = policystore.Change{From: version - 1, Version: version, Objects: []policystore.ObjectChange{{Kind: policystore.KindAccount, Name: name, Action: action}}}
	}
	return showChange(cmd, s, r.where(), c, asJSON, false)
}

// accounts lists them through the broker.
func (r *remote) accounts(cmd *cobra.Command, admin budgetv1connect.AdminServiceClient) ([]accountRow, error) {
	rows := []accountRow{}
	err := walkPages(func(token string) (string, error) {
		answer, err := admin.ListAccounts(cmd.Context(), connect.NewRequest(&budgetv1.ListAccountsRequest{PageSize: pageOfLists, PageToken: token}))
		if err != nil {
			return "", r.explain(err)
		}
		for _, a := range answer.Msg.Accounts {
			rows = append(rows, accountRow{a.Name, a.Plan, a.TimeZone, int(a.AnchorDay)})
		}
		return answer.Msg.NextPageToken, nil
	})
	return rows, err
}

// keys lists them through the broker.
func (r *remote) keys(cmd *cobra.Command, admin budgetv1connect.AdminServiceClient) ([]auth.Key, error) {
	var keys []auth.Key
	err := walkPages(func(token string) (string, error) {
		answer, err := admin.ListKeys(cmd.Context(), connect.NewRequest(&budgetv1.ListKeysRequest{PageSize: pageOfLists, PageToken: token}))
		if err != nil {
			return "", r.explain(err)
		}
		for _, k := range answer.Msg.Keys {
			key := auth.Key{
				ID: k.Id, Name: k.Name, Role: auth.RoleCaller, Accounts: k.Accounts, Last4: k.Last4,
				CreatedAt: instant(k.CreatedAt), ExpiresAt: instant(k.ExpiresAt), RevokedAt: instant(k.RevokedAt), CreatedBy: k.CreatedBy, RevokedBy: k.RevokedBy,
			}
			if k.Role == budgetv1.KeyRole_KEY_ROLE_ADMIN {
				key.Role = auth.RoleAdmin
			}
			keys = append(keys, key)
		}
		return answer.Msg.NextPageToken, nil
	})
	return keys, err
}

// instant is a time that may be absent.
func instant(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
