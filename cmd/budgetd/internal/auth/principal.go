package auth

import (
	"context"
	"fmt"
	"slices"

	"github.com/budgetd/budgetd/quota"
)

// Role is what kind of calls a key may make.
type Role string

// The roles. Their names are stored.
const (
	RoleCaller Role = "caller" // reserves and refunds for its accounts
	RoleAdmin  Role = "admin"  // everything, for every account
)

// EveryAccount in a key's list of accounts stands for all of them, those to
// come included.
const EveryAccount = "*"

// MaxAccounts bounds the accounts that one key lists. A key that needs more
// takes [EveryAccount].
const MaxAccounts = 1000

// Principal is who makes a call. It is a value to read: Accounts is shared by
// all calls with the key.
type Principal struct {
	KeyID    string   // id of the API key; "demo" for the demo key
	Name     string   // what the key's maker calls it; "demo" for the demo key
	Role     Role     // caller or admin
	Accounts []string // sorted account names, or only EveryAccount
}

// MayUse says whether the principal reaches the account. An account that it
// does not reach is to be answered as one that does not exist.
func (p Principal) MayUse(account string) bool {
	if len(p.Accounts) == 1 && p.Accounts[0] == EveryAccount {
		return account != ""
	}
	_, listed := slices.BinarySearch(p.Accounts, account)
	return listed
}

// IsAdmin says whether the principal may change plans, accounts and keys.
func (p Principal) IsAdmin() bool { return p.Role == RoleAdmin }

type principalKey struct{}

// WithPrincipal returns a context that carries the principal.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// FromContext returns the principal of the call, and false when the call was
// exempt from authentication or did not come through [Authenticator].
func FromContext(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}

// normalAccounts checks the accounts of a key with this role and returns them
// sorted, each once.
func normalAccounts(role Role, accounts []string) ([]string, error) {
	switch role {
	case RoleAdmin:
		if len(accounts) > 1 || len(accounts) == 1 && accounts[0] != EveryAccount {
			return nil, invalid("accounts", "an admin key reaches every account; leave the list out, or make the key a %s", RoleCaller)
		}
		return []string{EveryAccount}, nil
	case RoleCaller:
	default:
		return nil, invalid("role", "%s is not a role; write %s or %s", quoteShort(string(role)), RoleCaller, RoleAdmin)
	}
	switch {
	case len(accounts) == 0:
		return nil, invalid("accounts", "a caller key needs at least one account, or %q for every account", EveryAccount)
	case len(accounts) > MaxAccounts:
		return nil, invalid("accounts", "%d are listed, at most %d are accepted; write %q for every account", len(accounts), MaxAccounts, EveryAccount)
	}
	sorted := slices.Clone(accounts)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	if slices.Contains(sorted, EveryAccount) {
		if len(sorted) > 1 {
			return nil, invalid("accounts", "%q stands for every account; list it alone or leave it out", EveryAccount)
		}
		return sorted, nil
	}
	for _, account := range sorted {
		if err := quota.ValidateAccountName(account); err != nil {
			return nil, invalid("accounts", "%v", err)
		}
	}
	return sorted, nil
}

// quoteShort quotes a short piece of input for an error message.
func quoteShort(text string) string {
	const most = 40
	if len(text) > most {
		text = text[:most] + "..."
	}
	return fmt.Sprintf("%q", text)
}
