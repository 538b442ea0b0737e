package policystore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

// Errors of a [Store], to compare with errors.Is.
var (
	// ErrUnavailable says that the store could not be asked. A writer's change
	// may or may not have been made; making it again is safe.
	ErrUnavailable = errors.New("the policy store does not answer")
	// ErrAccountExists says that there is an account of that name already.
	ErrAccountExists = errors.New("the account exists already")
	// ErrGrantExists says that the account has a grant of that name already.
	ErrGrantExists = errors.New("the grant exists already")
	// ErrNotFound says that there is no such plan, pool, account, price or
	// grant.
	ErrNotFound = errors.New("not found")
	// ErrVersionMoved says that the policy is not at the version that the
	// caller looked at: look again.
	ErrVersionMoved = errors.New("the policy has changed meanwhile")
)

// Bounds.
const (
	MaxByBytes = 128  // bytes of the name of who changes something
	MaxPage    = 1000 // accounts or changes that one call returns
)

// Store keeps the policy. It is safe for concurrent use.
type Store struct {
	db    *sql.DB
	clock func() time.Time
}

// Open returns the store in db, which has the tables of migrations 2, 6, 10 and 12 and
// which it does not close: PostgreSQL by pgx's stdlib, or SQLite by modernc.org/sqlite
// with a busy timeout. The clock stamps changes; nil is time.Now.
func Open(db *sql.DB, clock func() time.Time) *Store {
	if clock == nil {
		clock = time.Now
	}
	return &Store{db: db, clock: clock}
}

// Version returns the version of the policy: 0 before the first change. It
// reads one row. The error wraps [ErrUnavailable] or is the context's.
func (s *Store) Version(ctx context.Context) (int64, error) {
	var version int64
	err := s.db.QueryRowContext(ctx, `SELECT version FROM versions WHERE subject = 'policy'`).Scan(&version)
	return version, unavailable(ctx, "read the version of the policy", err)
}

// Load returns the policy with its version and the pins above it. The error wraps [ErrBroken] and
// names the object and what is wrong with it, or wraps [ErrUnavailable].
func (s *Store) Load(ctx context.Context) (*quota.Policy, error) {
	stored, err := readAll(ctx, s.db)
	if err != nil {
		return nil, unavailable(ctx, "load the policy", err)
	}
	policy, err := stored.policy(&policyfile.Document{}, stored.uses, stored.version)
	if err == nil {
		policy, err = stored.pinned(policy, s.clock())
	}
	if err != nil && !errors.Is(err, ErrBroken) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return policy, err
}

// Account returns one account as it is stored, with its overrides and grants.
// The error wraps [ErrNotFound], [ErrBroken] or [ErrUnavailable].
func (s *Store) Account(ctx context.Context, name string) (quota.Account, error) {
	var document string
	err := s.db.QueryRowContext(ctx, `SELECT document FROM accounts WHERE name = $1`, name).Scan(&document)
	if errors.Is(err, sql.ErrNoRows) {
		return quota.Account{}, fmt.Errorf("%w: account %.140q", ErrNotFound, name)
	}
	if err != nil {
		return quota.Account{}, unavailable(ctx, "read an account", err)
	}
	return decodeAccount(name, document)
}

// Accounts returns at most limit (1 to MaxPage) accounts, in byte order of
// their names, of those after the name. The error wraps [ErrBroken] or
// [ErrUnavailable].
func (s *Store) Accounts(ctx context.Context, after string, limit int) ([]quota.Account, error) {
	if err := checkPage(limit); err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, `SELECT name, document FROM accounts WHERE name > $1 ORDER BY name LIMIT $2`, after, limit)
	if err != nil {
		return nil, unavailable(ctx, "list the accounts", err)
	}
	defer rows.Close()
	var accounts []quota.Account
	for rows.Next() {
		var name, document string
		if err := rows.Scan(&name, &document); err != nil {
			return nil, unavailable(ctx, "list the accounts", err)
		}
		account, err := decodeAccount(name, document)
		if err != nil {
			return nil, err
		}
		accounts = append(accounts, account)
	}
	return accounts, unavailable(ctx, "list the accounts", rows.Err())
}

// History returns at most limit (1 to MaxPage) changes, the newest first, of
// those before the version; 0 stands for after the newest. A version without a
// change is one in which only what grants covered was noted. The error wraps
// [ErrUnavailable].
func (s *Store) History(ctx context.Context, before int64, limit int) ([]Change, error) {
	if err := checkPage(limit); err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, `SELECT version, changed_at_us, changed_by, kind, name, COALESCE(old_document, ''), COALESCE(new_document, '')
		FROM policy_changes
		WHERE version IN (SELECT DISTINCT version FROM policy_changes WHERE $1 = 0 OR version < $1 ORDER BY version DESC LIMIT $2)
		ORDER BY version DESC, seq`, before, limit)
	if err != nil {
		return nil, unavailable(ctx, "read the history of the policy", err)
	}
	defer rows.Close()
	var changes []Change
	for rows.Next() {
		var version, at int64
		var by, name, old, new string
		var kind Kind
		if err := rows.Scan(&version, &at, &by, &kind, &name, &old, &new); err != nil {
			return nil, unavailable(ctx, "read the history of the policy", err)
		}
		if n := len(changes); n == 0 || changes[n-1].Version != version {
			changes = append(changes, Change{From: version - 1, Version: version, At: fromMicros(at), By: by})
		}
		last := &changes[len(changes)-1]
		last.Objects = append(last.Objects, newObjectChange(kind, name, old, new))
	}
	return changes, unavailable(ctx, "read the history of the policy", rows.Err())
}

func checkPage(limit int) error {
	if limit < 1 || limit > MaxPage {
		return fmt.Errorf("limit: %d is not between 1 and %d", limit, MaxPage)
	}
	return nil
}

// validateBy checks the name of who changes something.
func validateBy(by string) error {
	switch {
	case by == "":
		return errors.New("by: it is empty; say who makes the change")
	case len(by) > MaxByBytes:
		return fmt.Errorf("by: it has %d bytes, at most %d are accepted; shorten it", len(by), MaxByBytes)
	case !utf8.ValidString(by):
		return errors.New("by: it is not valid UTF-8; encode it as UTF-8")
	case strings.ContainsFunc(by, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		return errors.New("by: it contains a control or invisible formatting character; remove it")
	}
	return nil
}

// documents are stored objects by kind and name.
type documents map[Kind]map[string]string

func newDocuments() documents {
	return documents{KindPlan: {}, KindPool: {}, KindAccount: {}, KindPrice: {}, KindPin: {}}
}

// snapshot is everything that was stored at one instant.
type snapshot struct {
	version int64
	documents
	uses []quota.GrantUse
}

// policy decodes what is stored, adds what a document states, and validates
// the whole. The error wraps ErrBroken when an object can't be read; else it is
// that of quota.NewPolicy and Policy.With.
func (d documents) policy(added *policyfile.Document, uses []quota.GrantUse, version int64) (*quota.Policy, error) {
	plans, pools, accounts, prices := slices.Clone(added.Plans), slices.Clone(added.Pools), slices.Clone(added.Accounts), slices.Clone(added.Prices)
	var errs []error
	for _, kind := range kinds {
		for name, document := range d[kind] {
			o, err := decodeObject(kind, name, document)
			switch {
			case err != nil:
				errs = append(errs, err)
			case kind == KindPlan:
				plans = append(plans, o.plan)
			case kind == KindPool:
				pools = append(pools, o.pool)
			case kind == KindAccount:
				accounts = append(accounts, o.account)
			case kind == KindPrice:
				prices = append(prices, o.prices...)
			}
		}
	}
	if len(errs) > 0 {
		return nil, summarize(errs)
	}
	policy, err := quota.NewPolicy(plans, pools, accounts, version)
	if err != nil {
		return nil, err
	}
	return policy.With(prices, uses)
}

// summarize keeps an error about many objects short, and the same each time.
func summarize(errs []error) error {
	const most = 5
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most:most], fmt.Errorf("and %d more objects", more))
	}
	return errors.Join(errs...)
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// readAll reads everything in one statement, which sees one instant in both
// databases whatever the isolation of the transaction.
func readAll(ctx context.Context, from queryer) (snapshot, error) {
	s := snapshot{version: -1, documents: newDocuments()}
	rows, err := from.QueryContext(ctx, `
		SELECT 'version', '', '', '', version, '', '', 0, 0, 0, '' FROM versions WHERE subject = 'policy'
		UNION ALL SELECT 'plan', name, document, '', 0, '', '', 0, 0, 0, '' FROM plans
		UNION ALL SELECT 'pool', name, document, '', 0, '', '', 0, 0, 0, '' FROM pools
		UNION ALL SELECT 'account', name, document, '', 0, '', '', 0, 0, 0, '' FROM accounts
		UNION ALL SELECT 'price', name, document, '', 0, '', '', 0, 0, 0, '' FROM model_prices
		UNION ALL SELECT 'pin', name, document, '', 0, '', '', 0, 0, 0, '' FROM limit_pins
		UNION ALL SELECT 'use', `+useColumns+` FROM grant_uses`)
	if err != nil {
		return snapshot{}, err
	}
	defer rows.Close()
	for rows.Next() {
		var kind Kind
		var row storedUse
		if err := rows.Scan(append([]any{&kind}, row.into()...)...); err != nil {
			return snapshot{}, err
		}
		switch kind {
		case "version":
			s.version = row.covered
		case "use":
			s.uses = append(s.uses, row.use())
		default:
			s.documents[kind][row.account] = row.grant
		}
	}
	if err := rows.Err(); err != nil {
		return snapshot{}, err
	}
	if s.version < 0 {
		return snapshot{}, errNoVersion
	}
	return s, nil
}

var errNoVersion = errors.New("the table versions has no row for the policy; has \"budgetd migrate\" run?")

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// unavailable says what could not be done. Errors that say more than that the
// store did not answer stay what they are.
func unavailable(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	}
	return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}
