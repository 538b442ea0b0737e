package policystore

import (
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
// the new one has none, or another.
func goneGrants(account, old, new string) []any {
	before, _ := grantsIn(account, old)
	after, _ := grantsIn(account, new)
	var gone []any
	for _, g := range before {
		if now := findGrant(after, g.Name); now == nil || another(&g, now) {
			gone = append(gone, account, g.Name)
		}
	}
	return gone
}

// another says whether two grants of one name are not the same one: they add to
// other counters or begin at other instants.
func another(a, b *quota.Grant) bool {
	return a.Limit != b.Limit || a.Scope != b.Scope || !a.From.Equal(b.From)
}

// openUses returns the first periods of the grants that the new document has and
// the old one has not, or another. What can't be read has its uses already.
func openUses(first []quota.GrantUse, account, old, new string) []any {
	before, readable := grantsIn(account, old)
	if !readable {
		return nil
	}
	after, _ := grantsIn(account, new)
	var rows []any
	for _, use := range first {
		was, now := findGrant(before, use.Grant), findGrant(after, use.Grant)
		if now != nil && (was == nil || another(was, now)) {
			rows = append(rows, rowOf(use)...)
		}
	}
	return rows
}

// useColumns are the columns of grant_uses in the order of a storedUse.
const (
	useColumns     = `account, grant_name, period, covered, limit_id, meter, start_us, end_us, own, state`
	useColumnCount = 10
	insertUses     = `INSERT INTO grant_uses (account, grant_name, period, covered, limit_id, meter, start_us, end_us, own, state) VALUES `
)

// storedUse is a row of grant_uses.
type storedUse struct {
	account, grant, period string
	covered                int64
	limit, meter           string
	start, end             int64 // microseconds
	own                    int64
	state                  string
}

func (s *storedUse) into() []any {
	return []any{&s.account, &s.grant, &s.period, &s.covered, &s.limit, &s.meter, &s.start, &s.end, &s.own, &s.state}
}

func (s *storedUse) use() quota.GrantUse {
	use := quota.GrantUse{Account: s.account, Grant: s.grant, Period: s.period, Covered: quota.Amount(s.covered)}
	if s.period != "" {
		use.Limit, use.Meter, use.Own, use.State = s.limit, quota.Meter(s.meter), quota.Amount(s.own), quota.UseState(s.state)
		use.Start, use.End = fromMicros(s.start), fromMicros(s.end)
	}
	return use
}

func rowOf(use quota.GrantUse) []any {
	var start, end int64
	if use.Period != "" {
		start, end = use.Start.UnixMicro(), use.End.UnixMicro()
	}
	return []any{use.Account, use.Grant, use.Period, int64(use.Covered), use.Limit, string(use.Meter), start, end, int64(use.Own), string(use.State)}
}

// removeUses removes what grants covered, given as account and name of each.
func removeUses(ctx context.Context, tx *sql.Tx, grants []any) error {
	return insert(ctx, tx, `DELETE FROM grant_uses WHERE (account, grant_name) IN (VALUES `, `)`, 2, grants)
}

// SaveGrantUses keeps uses in place of all that is kept of each grant that they
// name, unless the grant, its account, its quota or what is known of its uses is
// another now than in the policy from which they were worked out. It reports
// whether anything changed: then the version counts up by one, so that every
// node reads them. Any number of nodes may save the same. The error names the
// use that is out of its bounds, or wraps [ErrBroken] or [ErrUnavailable];
// nothing is written then.
func (s *Store) SaveGrantUses(ctx context.Context, uses []quota.GrantUse, seen *quota.Policy) (saved bool, err error) {
	wanted, err := usesByAccount(uses)
	if err != nil || len(wanted) == 0 {
		return false, err
	}
	err = s.inVersion(ctx, "keep what grants covered", func(tx *sql.Tx, _ int64) (bool, error) {
		var gone, new []any
		for accounts := range slices.Chunk(slices.Sorted(maps.Keys(wanted)), rowsAtOnce) {
			kept, err := readUses(ctx, tx, accounts)
			if err != nil {
				return false, err
			}
			stored, err := readPolicies(ctx, tx, accounts, kept)
			if err != nil {
				return false, err
			}
			for _, account := range accounts {
				if stored[account] == nil {
					continue
				}
				for _, name := range slices.Sorted(maps.Keys(wanted[account])) {
					if quota.SameGrant(seen, stored[account], account, name) {
						was, is := kept[account][name], wanted[account][name]
						for _, use := range without(was, is) {
							gone = append(gone, use.Account, use.Grant, use.Limit, use.Period)
						}
						for _, use := range without(is, was) {
							new = append(new, rowOf(use)...)
						}
					}
				}
			}
		}
		if len(gone)+len(new) == 0 {
			return false, nil
		}
		saved = true
		if err := insert(ctx, tx, `DELETE FROM grant_uses WHERE (account, grant_name, limit_id, period) IN (VALUES `, `)`, 4, gone); err != nil {
			return false, err
		}
		return true, insert(ctx, tx, insertUses, ``, useColumnCount, new)
	})
	return saved && err == nil, err
}

// without returns the uses that are not among the others.
func without(uses, others []quota.GrantUse) []quota.GrantUse {
	return slices.DeleteFunc(slices.Clone(uses), func(u quota.GrantUse) bool {
		return slices.ContainsFunc(others, u.Equal)
	})
}

// grantsUses are uses by account and grant.
type grantsUses map[string]map[string][]quota.GrantUse

func (of grantsUses) add(use quota.GrantUse) {
	if of[use.Account] == nil {
		of[use.Account] = make(map[string][]quota.GrantUse)
	}
	of[use.Account][use.Grant] = append(of[use.Account][use.Grant], use)
}

// usesByAccount sorts uses by account and grant, and checks them.
func usesByAccount(uses []quota.GrantUse) (grantsUses, error) {
	sorted := make(grantsUses)
	for _, use := range uses {
		if err := use.Validate(); err != nil {
			return nil, fmt.Errorf("what the grant %.140q of account %.140q covered in %.40q: %w", use.Grant, use.Account, use.Period, err)
		}
		twice := func(u quota.GrantUse) bool { return u.Limit == use.Limit && u.Period == use.Period }
		if slices.ContainsFunc(sorted[use.Account][use.Grant], twice) {
			return nil, fmt.Errorf("what the grant %.140q of account %.140q covered in %.40q is stated twice", use.Grant, use.Account, use.Period)
		}
		sorted.add(use)
	}
	return sorted, nil
}

// readPolicies returns for each of the accounts, at most rowsAtOnce, a policy of
// it alone, as it is stored. One that is gone or can't be read has none.
func readPolicies(ctx context.Context, tx *sql.Tx, names []string, kept grantsUses) (map[string]*quota.Policy, error) {
	accounts := make(map[string]quota.Account)
	plans := make(map[string][]quota.Plan)
	err := read(ctx, tx, `SELECT name, document FROM accounts WHERE name IN `, names, func(scan func(...any) error) error {
		var name, document string
		if err := scan(&name, &document); err != nil {
			return err
		}
		if account, err := decodeAccount(name, document); err == nil {
			accounts[name], plans[account.Plan] = account, nil
		}
		return nil
	})
	if err != nil || len(accounts) == 0 {
		return nil, err
	}
	err = read(ctx, tx, `SELECT name, document FROM plans WHERE name IN `, slices.Sorted(maps.Keys(plans)), func(scan func(...any) error) error {
		var name, document string
		if err := scan(&name, &document); err != nil {
			return err
		}
		if plan, err := decodePlan(name, document); err == nil {
			plans[name] = []quota.Plan{plan}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	policies := make(map[string]*quota.Policy, len(accounts))
	for name, account := range accounts {
		policy, err := quota.NewPolicy(plans[account.Plan], nil, []quota.Account{account}, 0)
		if err != nil {
			continue
		}
		if policy, err = policy.With(nil, slices.Concat(slices.Collect(maps.Values(kept[name]))...)); err == nil {
			policies[name] = policy
		}
	}
	return policies, nil
}

// readUses reads what is kept of the grants of accounts.
func readUses(ctx context.Context, tx *sql.Tx, accounts []string) (grantsUses, error) {
	uses := make(grantsUses)
	err := read(ctx, tx, `SELECT `+useColumns+` FROM grant_uses WHERE account IN `, accounts, func(scan func(...any) error) error {
		var row storedUse
		if err := scan(row.into()...); err != nil {
			return err
		}
		uses.add(row.use())
		return nil
	})
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
