package policystore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

// Options are how a document is applied.
type Options struct {
	// By is who asks for it, 1 to MaxByBytes bytes of UTF-8 without control
	// characters: the name of an API key, a user. Kept in the history. Diff
	// does not need it.
	By string
	// Prune also removes the objects that the document does not state, of each
	// kind of which it states any. A kind of which it states nothing is left
	// alone, so that a file of plans can't remove every account.
	Prune bool
	// IfVersion, unless nil, is the version that the policy must be at, as when
	// someone has looked at its Diff; else the error wraps ErrVersionMoved.
	IfVersion *int64
}

// Apply brings in what a document states: each plan, pool and account that it
// names becomes as stated, and the prices of each model that it names. A grant
// that states no beginning keeps the one that it has, or begins now. What it does not name stays, unless options.Prune.
// The policy that results must be valid as a whole: an account whose plan would
// go is refused. When anything differs, one transaction writes it, counts the
// version up by one and records the change; else nothing is written. Applies
// at the same time take effect one after the other.
//
// The error is that of [quota.NewPolicy] about the resulting policy, with
// nothing written; or wraps [ErrBroken] when something stored that the document
// does not state again can't be read, [ErrVersionMoved] or [ErrUnavailable].
func (s *Store) Apply(ctx context.Context, doc *policyfile.Document, options Options) (Change, error) {
	if err := validateBy(options.By); err != nil {
		return Change{}, err
	}
	return s.editWhole(ctx, options.By, func(before snapshot) (edit, error) { return s.plan(before, doc, options) })
}

// Diff returns what Apply would do now, and the same errors. Nothing is
// written.
func (s *Store) Diff(ctx context.Context, doc *policyfile.Document, options Options) (Change, error) {
	return s.preview(ctx, func(before snapshot) (edit, error) { return s.plan(before, doc, options) })
}

// CreateAccount adds an account. The error says what is wrong with it (its
// plan must exist), or wraps [ErrAccountExists], [ErrBroken] or
// [ErrUnavailable].
func (s *Store) CreateAccount(ctx context.Context, account quota.Account, by string) (Change, error) {
	return s.putAccount(ctx, account, by, false)
}

// SetAccount adds an account or replaces all that is stored of it. Setting what
// it is already changes nothing. The errors are those of CreateAccount, but for
// [ErrAccountExists].
func (s *Store) SetAccount(ctx context.Context, account quota.Account, by string) (Change, error) {
	return s.putAccount(ctx, account, by, true)
}

// ChangeAccount changes one account that exists, in one transaction: change
// gets it as it is stored, overrides included, and what it leaves alone stays.
// [ErrNotFound] when there is no such account.
func (s *Store) ChangeAccount(ctx context.Context, name string, change func(*quota.Account), by string) (Change, error) {
	return s.changeAccount(ctx, name, func(account *quota.Account) error { change(account); return nil }, by)
}

func (s *Store) changeAccount(ctx context.Context, name string, change func(*quota.Account) error, by string) (Change, error) {
	if err := validateBy(by); err != nil {
		return Change{}, err
	}
	return s.edit(ctx, by, func(tx *sql.Tx) (edit, error) {
		old, exists, err := readOne(ctx, tx, KindAccount, name)
		if err != nil {
			return edit{}, err
		}
		if !exists {
			return edit{}, refused{fmt.Errorf("account %.140q: %w", name, ErrNotFound)}
		}
		account, err := decodeAccount(name, old)
		if err != nil {
			return edit{}, refused{err}
		}
		if err := change(&account); err != nil {
			return edit{}, refused{err}
		}
		if err := account.Validate(); err != nil {
			return edit{}, refused{err}
		}
		return s.editAccount(ctx, tx, account, old)
	})
}

func (s *Store) putAccount(ctx context.Context, account quota.Account, by string, replace bool) (Change, error) {
	if err := validateBy(by); err != nil {
		return Change{}, err
	}
	if err := account.Validate(); err != nil {
		return Change{}, err
	}
	return s.edit(ctx, by, func(tx *sql.Tx) (edit, error) {
		old, exists, err := readOne(ctx, tx, KindAccount, account.Name)
		if err != nil {
			return edit{}, err
		}
		if exists && !replace {
			return edit{}, refused{fmt.Errorf("%w: %s", ErrAccountExists, account.Name)}
		}
		if !exists {
			var n int64
			if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM accounts`).Scan(&n); err != nil {
				return edit{}, err
			}
			if n >= quota.MaxAccounts {
				return edit{}, refused{fmt.Errorf("accounts: there are %d already, which is the most that a policy has", n)}
			}
		}
		return s.editAccount(ctx, tx, account, old)
	})
}

// editAccount looks only at what the account depends on, its plan: signing up
// the millionth account is no more work than the first.
func (s *Store) editAccount(ctx context.Context, tx *sql.Tx, account quota.Account, old string) (edit, error) {
	account = s.begun(account, old)
	var plans []quota.Plan
	document, exists, err := readOne(ctx, tx, KindPlan, account.Plan)
	if err != nil {
		return edit{}, err
	}
	if exists {
		plan, err := decodePlan(account.Plan, document)
		if err != nil {
			return edit{}, refused{err}
		}
		plans = append(plans, plan)
	}
	policy, err := quota.NewPolicy(plans, nil, []quota.Account{account}, 0)
	if err != nil {
		return edit{}, refused{err}
	}
	document, err = encodeAccount(policy.Accounts[account.Name])
	if err != nil {
		return edit{}, refused{err}
	}
	e := newEdit()
	e.put(KindAccount, account.Name, old, document)
	e.first = policy.FirstUses(account.Name)
	return e, nil
}

// Remove removes one plan, pool or account, or the prices of a model. A plan that accounts have is
// refused. What the ledger and the engine keep of an account stays. The error
// wraps [ErrNotFound] or is one of Apply's.
func (s *Store) Remove(ctx context.Context, kind Kind, name, by string) (Change, error) {
	if err := validateBy(by); err != nil {
		return Change{}, err
	}
	if !slices.Contains(kinds[:], kind) {
		return Change{}, fmt.Errorf("kind: %.40q is not one of %v", kind, kinds)
	}
	return s.edit(ctx, by, func(tx *sql.Tx) (edit, error) {
		before, err := readAll(ctx, tx)
		if err != nil {
			return edit{}, err
		}
		old, exists := before.documents[kind][name]
		if !exists {
			return edit{}, refused{fmt.Errorf("%s %.140q: %w", kind, name, ErrNotFound)}
		}
		delete(before.documents[kind], name)
		if _, err := before.policy(&policyfile.Document{}, nil, before.version); err != nil {
			return edit{}, refused{err}
		}
		e := newEdit()
		e.put(kind, name, old, "")
		return e, nil
	})
}

// edit is what is to be written: for each object its document before and
// after, "" for none.
type edit struct {
	old, new documents
	first    []quota.GrantUse // of grants of the accounts, new or not
	ended    []string         // pins that are over by their time: their rows go, and no history says so
	doubts   []doubt          // what may be a warning, in order; see settle
	warnings []string         // what is one
}

func newEdit() edit { return edit{old: newDocuments(), new: newDocuments()} }

func (e edit) put(kind Kind, name, old, new string) {
	e.old[kind][name], e.new[kind][name] = old, new
}

func (e edit) objects() []ObjectChange {
	var objects []ObjectChange
	for _, kind := range kinds {
		for name, new := range e.new[kind] {
			objects = append(objects, newObjectChange(kind, name, e.old[kind][name], new))
		}
	}
	sortObjects(objects)
	return objects
}

// refused is an error that says all by itself: the store did answer.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// mustBeAt refuses another version than the one that is wanted, if one is.
func (s snapshot) mustBeAt(want *int64) error {
	if want == nil || *want == s.version {
		return nil
	}
	return refused{fmt.Errorf("%w: it is at version %d and not %d; look at the difference again", ErrVersionMoved, s.version, *want)}
}

// plan works out what a document changes, and checks what results.
func (s *Store) plan(before snapshot, doc *policyfile.Document, options Options) (edit, error) {
	if err := before.mustBeAt(options.IfVersion); err != nil {
		return edit{}, err
	}
	// What is stated replaces what is stored, even if that can't be read.
	kept := newDocuments()
	for kind, byName := range before.documents {
		maps.Copy(kept[kind], byName)
	}
	names := map[Kind][]string{}
	for _, plan := range doc.Plans {
		names[KindPlan] = append(names[KindPlan], plan.Name)
	}
	for _, pool := range doc.Pools {
		names[KindPool] = append(names[KindPool], pool.Name)
	}
	stated := *doc
	stated.Accounts = slices.Clone(doc.Accounts)
	for i, account := range doc.Accounts {
		names[KindAccount] = append(names[KindAccount], account.Name)
		stated.Accounts[i] = s.begun(account, before.documents[KindAccount][account.Name])
	}
	for _, price := range doc.Prices {
		if name := price.Name(); !slices.Contains(names[KindPrice], name) {
			names[KindPrice] = append(names[KindPrice], name)
		}
	}
	e := newEdit()
	for kind, stated := range names {
		for _, name := range stated {
			delete(kept[kind], name)
		}
		if options.Prune {
			for name := range kept[kind] {
				e.put(kind, name, before.documents[kind][name], "")
			}
			kept[kind] = map[string]string{}
		}
	}
	policy, err := kept.policy(&stated, nil, before.version+1)
	if err != nil {
		return edit{}, refused{err}
	}
	for kind, stated := range names {
		for _, name := range stated {
			new, err := encodeNormal(policy, kind, name)
			if err != nil {
				return edit{}, refused{err}
			}
			e.put(kind, name, before.documents[kind][name], new)
			if kind == KindAccount {
				e.first = append(e.first, policy.FirstUses(name)...)
			}
		}
	}
	e.doubts, e.warnings = e.unwatched(before, s.above(before)), s.beneathPins(policy, before, names, "")
	return e, nil
}

// encodeNormal encodes an object as the policy has it: with every default.
func encodeNormal(policy *quota.Policy, kind Kind, name string) (string, error) {
	switch kind {
	case KindPlan:
		return encodePlan(policy.Plans[name])
	case KindPool:
		return encodePool(policy.Pools[name])
	case KindPrice:
		provider, model, _ := strings.Cut(name, "/")
		return encodePrices(policy.PricesOf(provider, model))
	default:
		return encodeAccount(policy.Accounts[name])
	}
}

// change is what the edit does to the policy at a version, before it is done.
func (e edit) change(from int64) Change {
	return Change{From: from, Version: from, Objects: e.objects(), Warnings: e.warnings}
}

// preview returns what work makes of the whole policy, and writes nothing.
func (s *Store) preview(ctx context.Context, work func(before snapshot) (edit, error)) (Change, error) {
	before, err := readAll(ctx, s.db)
	if err != nil {
		return Change{}, unavailable(ctx, "read the policy", err)
	}
	e, err := work(before)
	var said refused
	if errors.As(err, &said) {
		return Change{}, said.error
	}
	if err != nil {
		return Change{}, err
	}
	if err := e.settle(ctx, s.db); err != nil {
		return Change{}, unavailable(ctx, "read the history of the policy", err)
	}
	change := e.change(before.version)
	if change.Changes() {
		change.Version++
	}
	return change, nil
}

// editWhole is edit by what the whole policy is.
func (s *Store) editWhole(ctx context.Context, by string, work func(before snapshot) (edit, error)) (Change, error) {
	return s.edit(ctx, by, func(tx *sql.Tx) (edit, error) {
		before, err := readAll(ctx, tx)
		if err != nil {
			return edit{}, err
		}
		// The version was counted up for this transaction already.
		before.version--
		e, err := work(before)
		if err == nil {
			err = e.settle(ctx, tx)
		}
		return e, err
	})
}

// edit has work say what to write in one transaction, and writes it under a new
// version unless that is nothing.
func (s *Store) edit(ctx context.Context, by string, work func(*sql.Tx) (edit, error)) (Change, error) {
	var change Change
	err := s.inVersion(ctx, "change the policy", func(tx *sql.Tx, version int64) (bool, error) {
		e, err := work(tx)
		if err != nil {
			return false, err
		}
		change = e.change(version - 1)
		if !change.Changes() {
			return false, nil
		}
		change.Version, change.By, change.At = version, by, fromMicros(s.clock().UnixMicro())
		return true, write(ctx, tx, change, e)
	})
	if err != nil {
		return Change{}, err
	}
	return change, nil
}

// inVersion runs one transaction: it counts the version up first, which waits
// for every other writer and lets the rest of the transaction see what they
// wrote, then has work write, and rolls back when work says that it wrote
// nothing.
func (s *Store) inVersion(ctx context.Context, doing string, work func(tx *sql.Tx, version int64) (bool, error)) error {
	fail := func(err error) error {
		var said refused
		if errors.As(err, &said) {
			return said.error
		}
		return unavailable(ctx, doing, err)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fail(err)
	}
	defer tx.Rollback() // after a commit it does nothing
	var version int64
	err = tx.QueryRowContext(ctx, `UPDATE versions SET version = version + 1 WHERE subject = 'policy' RETURNING version`).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNoVersion
	}
	if err != nil {
		return fail(err)
	}
	wrote, err := work(tx, version)
	if err != nil {
		return fail(err)
	}
	if !wrote {
		return nil
	}
	if err := tx.Commit(); err != nil {
		return fail(err)
	}
	return nil
}

// write writes the rows of a change.
func write(ctx context.Context, tx *sql.Tx, change Change, e edit) error {
	puts := make(map[Kind][]any)
	var history []any
	var gone, opened []any // account and name of grants; rows of uses
	first := make(map[string][]quota.GrantUse)
	for _, use := range e.first {
		first[use.Account] = append(first[use.Account], use)
	}
	for _, name := range e.ended {
		if _, err := tx.ExecContext(ctx, `DELETE FROM `+tables[KindPin]+` WHERE name = $1`, name); err != nil {
			return err
		}
	}
	for _, object := range change.Objects {
		if object.Action == Unchanged {
			continue
		}
		old, new := e.old[object.Kind][object.Name], e.new[object.Kind][object.Name]
		if object.Kind == KindAccount {
			gone = append(gone, goneGrants(object.Name, old, new)...)
			opened = append(opened, openUses(first[object.Name], object.Name, old, new)...)
		}
		if object.Action == Removed {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+tables[object.Kind]+` WHERE name = $1`, object.Name); err != nil {
				return err
			}
		} else {
			puts[object.Kind] = append(puts[object.Kind], object.Name, new, change.Version)
		}
		seq := len(history)/historyColumns + 1
		history = append(history, change.Version, seq, change.At.UnixMicro(), change.By, string(object.Kind), object.Name, nullText(old), nullText(new))
	}
	for _, kind := range kinds {
		err := insert(ctx, tx, `INSERT INTO `+tables[kind]+` (name, document, changed_in) VALUES `,
			` ON CONFLICT (name) DO UPDATE SET document = excluded.document, changed_in = excluded.changed_in`, 3, puts[kind])
		if err != nil {
			return err
		}
	}
	if err := removeUses(ctx, tx, gone); err != nil {
		return err
	}
	if err := insert(ctx, tx, insertUses, ` ON CONFLICT DO NOTHING`, useColumnCount, opened); err != nil {
		return err
	}
	return insert(ctx, tx, `INSERT INTO policy_changes
		(version, seq, changed_at_us, changed_by, kind, name, old_document, new_document) VALUES `, ``, historyColumns, history)
}

const historyColumns = 8

var tables = map[Kind]string{KindPlan: "plans", KindPool: "pools", KindAccount: "accounts", KindPrice: "model_prices", KindPin: "limit_pins"}

// rowsAtOnce bounds the rows of a statement: times 10 columns it is well below
// both databases' bounds on parameters.
const rowsAtOnce = 500

// insert inserts rows of so many columns, many rows a statement.
func insert(ctx context.Context, tx *sql.Tx, before, after string, columns int, values []any) error {
	for len(values) > 0 {
		n := min(len(values), rowsAtOnce*columns)
		if _, err := tx.ExecContext(ctx, before+placeholders(n/columns, columns)+after, values[:n]...); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// placeholders returns "($1, $2), ($3, $4)" for 2 rows of 2 columns.
func placeholders(rows, columns int) string {
	var text strings.Builder
	for i := range rows * columns {
		switch {
		case i == 0:
			text.WriteString("(")
		case i%columns == 0:
			text.WriteString("), (")
		default:
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "$%d", i+1)
	}
	return text.String() + ")"
}

func readOne(ctx context.Context, tx *sql.Tx, kind Kind, name string) (document string, exists bool, err error) {
	err = tx.QueryRowContext(ctx, `SELECT document FROM `+tables[kind]+` WHERE name = $1`, name).Scan(&document)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return document, err == nil, err
}

func nullText(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }
