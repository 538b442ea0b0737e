package policystore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// AddGrant adds a grant to an account. One that states no beginning begins now.
// The error says what is wrong with the grant (the account must have its quota),
// or wraps [ErrGrantExists], [ErrNotFound] when there is no such account,
// [ErrBroken] or [ErrUnavailable].
func (s *Store) AddGrant(ctx context.Context, account string, grant quota.Grant, by string) (Change, error) {
	return s.changeAccount(ctx, account, func(a *quota.Account) error {
		if findGrant(a.Grants, grant.Name) != nil {
			return fmt.Errorf("grant %.140q of account %q: %w", grant.Name, account, ErrGrantExists)
		}
		a.Grants = append(a.Grants, grant)
		return nil
	}, by)
}

// RemoveGrant removes a grant from an account, and what is known of it: what it
// had covered in the period that runs counts against the quota from then on. The
// error wraps [ErrNotFound] when there is no such account or grant, [ErrBroken]
// or [ErrUnavailable].
func (s *Store) RemoveGrant(ctx context.Context, account, name, by string) (Change, error) {
	return s.changeAccount(ctx, account, func(a *quota.Account) error {
		if findGrant(a.Grants, name) == nil {
			return fmt.Errorf("grant %.140q of account %q: %w", name, account, ErrNotFound)
		}
		a.Grants = slices.DeleteFunc(a.Grants, func(g quota.Grant) bool { return g.Name == name })
		return nil
	}, by)
}

func findGrant(grants []quota.Grant, name string) *quota.Grant {
	i := slices.IndexFunc(grants, func(g quota.Grant) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return &grants[i]
}

// grantsIn returns the grants of a stored account; ok is false when it can't be
// read. There are none in no document.
func grantsIn(account, document string) (grants []quota.Grant, ok bool) {
	if document == "" {
		return nil, true
	}
	decoded, err := decodeAccount(account, document)
	return decoded.Grants, err == nil
}

// begun returns the account with a beginning of every grant: where none is
// stated, that of the grant of the same name that adds to the same counter now,
// so that stating it again changes nothing; else the second that runs.
func (s *Store) begun(account quota.Account, stored string) quota.Account {
	if !slices.ContainsFunc(account.Grants, func(g quota.Grant) bool { return g.From.IsZero() }) {
		return account
	}
	known, _ := grantsIn(account.Name, stored)
	account.Grants = slices.Clone(account.Grants)
	for i := range account.Grants {
		g := &account.Grants[i]
		if !g.From.IsZero() {
			continue
		}
		if was := findGrant(known, g.Name); was != nil && was.Limit == g.Limit && was.Scope == g.Scope {
			g.From = was.From
		} else {
			g.From = s.clock().UTC().Truncate(time.Second)
		}
	}
	return account
}

// goneGrants lists account and name of the grants of the old document of which
// the new one has none, or another: one that adds to another counter or begins
// at another instant.
func goneGrants(account, old, new string) []any {
	before, _ := grantsIn(account, old)
	after, _ := grantsIn(account, new)
	var gone []any
	for _, g := range before {
		now := findGrant(after, g.Name)
		if now == nil || now.Limit != g.Limit || now.Scope != g.Scope || !now.From.Equal(g.From) {
			gone = append(gone, account, g.Name)
		}
	}
	return gone
}

// removeUses removes what grants covered, given as account and name of each.
func removeUses(ctx context.Context, tx *sql.Tx, grants []any) error {
	return insert(ctx, tx, `DELETE FROM grant_uses WHERE (account, grant_name) IN (VALUES `, `)`, 2, grants)
}

// SaveGrantUses keeps uses in place of all that is kept of each grant that they
// name, unless the account or the grant is another now than in the policy from
// which they were worked out. It reports whether anything changed: then the
// version counts up by one, so that every node reads them. Any number of nodes
// may save the same. The error names the use that is out of its bounds, or wraps
// [ErrBroken] or [ErrUnavailable]; nothing is written then.
func (s *Store) SaveGrantUses(ctx context.Context, uses []quota.GrantUse, seen *quota.Policy) (saved bool, err error) {
	wanted, err := usesByAccount(uses)
	if err != nil || len(wanted) == 0 {
		return false, err
	}
	err = s.inVersion(ctx, "keep what grants covered", func(tx *sql.Tx, _ int64) (bool, error) {
		var old, new []any
		for accounts := range slices.Chunk(slices.Sorted(maps.Keys(wanted)), rowsAtOnce) {
			stored, err := readAccounts(ctx, tx, accounts)
			if err != nil {
				return false, err
			}
			kept, err := readUses(ctx, tx, accounts)
			if err != nil {
				return false, err
			}
			for _, account := range accounts {
				for _, name := range slices.Sorted(maps.Keys(wanted[account])) {
					key := [2]string{account, name}
					if !sameGrant(seen.Accounts[account], stored[account], name) || slices.Equal(kept[key], wanted[account][name]) {
						continue
					}
					old = append(old, account, name)
					for _, use := range wanted[account][name] {
						new = append(new, account, name, use.Period, int64(use.Covered))
					}
				}
			}
		}
		if len(old) == 0 {
			return false, nil
		}
		saved = true
		if err := removeUses(ctx, tx, old); err != nil {
			return false, err
		}
		return true, insert(ctx, tx, `INSERT INTO grant_uses (account, grant_name, period, covered) VALUES `, ``, 4, new)
	})
	return saved && err == nil, err
}

// usesByAccount sorts uses by account, grant and period.
func usesByAccount(uses []quota.GrantUse) (map[string]map[string][]quota.GrantUse, error) {
	sorted := make(map[string]map[string][]quota.GrantUse)
	for _, use := range uses {
		if err := use.Covered.Check(); err != nil {
			return nil, fmt.Errorf("what the grant %.140q of account %.140q covered in %.40q: %w", use.Grant, use.Account, use.Period, err)
		}
		if sorted[use.Account] == nil {
			sorted[use.Account] = make(map[string][]quota.GrantUse)
		}
		sorted[use.Account][use.Grant] = append(sorted[use.Account][use.Grant], use)
	}
	for _, grants := range sorted {
		for _, of := range grants {
			slices.SortFunc(of, func(a, b quota.GrantUse) int { return cmp.Compare(a.Period, b.Period) })
			for i := range of[1:] {
				if of[i].Period == of[i+1].Period {
					return nil, fmt.Errorf("what the grant %.140q of account %.140q covered in %.40q is stated twice", of[i].Grant, of[i].Account, of[i].Period)
				}
			}
		}
	}
	return sorted, nil
}

// sameGrant says whether what was worked out for a grant of one account holds
// for the other: the grant is the same but for what people say of it, and
// periods begin at the same instants.
func sameGrant(seen, stored quota.Account, name string) bool {
	a, b := findGrant(seen.Grants, name), findGrant(stored.Grants, name)
	return a != nil && b != nil &&
		a.Limit == b.Limit && a.Scope == b.Scope && a.Amount == b.Amount && a.Priority == b.Priority &&
		a.From.Equal(b.From) && a.Until.Equal(b.Until) &&
		seen.TimeZone == stored.TimeZone && seen.AnchorDay == stored.AnchorDay
}

func readAccounts(ctx context.Context, tx *sql.Tx, names []string) (map[string]quota.Account, error) {
	accounts := make(map[string]quota.Account)
	err := read(ctx, tx, `SELECT name, document FROM accounts WHERE name IN `, names, func(scan func(...any) error) error {
		var name, document string
		if err := scan(&name, &document); err != nil {
			return err
		}
		account, err := decodeAccount(name, document)
		if err != nil {
			return refused{err}
		}
		accounts[name] = account
		return nil
	})
	return accounts, err
}

// readUses reads what is kept of the grants of accounts, by account and name,
// in the order of periods.
func readUses(ctx context.Context, tx *sql.Tx, accounts []string) (map[[2]string][]quota.GrantUse, error) {
	uses := make(map[[2]string][]quota.GrantUse)
	err := read(ctx, tx, `SELECT account, grant_name, period, covered FROM grant_uses WHERE account IN `, accounts, func(scan func(...any) error) error {
		var use quota.GrantUse
		if err := scan(&use.Account, &use.Grant, &use.Period, &use.Covered); err != nil {
			return err
		}
		key := [2]string{use.Account, use.Grant}
		uses[key] = append(uses[key], use)
		return nil
	})
	for _, of := range uses {
		slices.SortFunc(of, func(a, b quota.GrantUse) int { return cmp.Compare(a.Period, b.Period) })
	}
	return uses, err
}

// read reads the rows of so many names, at most rowsAtOnce.
func read(ctx context.Context, tx *sql.Tx, query string, names []string, each func(scan func(...any) error) error) error {
	values := make([]any, len(names))
	for i, name := range names {
		values[i] = name
	}
	rows, err := tx.QueryContext(ctx, query+placeholders(1, len(values)), values...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
