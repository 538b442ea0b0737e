package auth

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds on what a key says of itself and on lists of keys.
const (
	MaxKeyNameBytes = 128  // bytes of a key's name, and of who makes or revokes one
	MaxListKeys     = 1000 // keys that one List returns
)

// ErrKeyNotFound says that there is no API key with that id.
var ErrKeyNotFound = errors.New("API key not found")

// Key is what is known of an API key, without the key itself.
type Key struct {
	ID        string    // 16 characters; part of the key
	Name      string    // what its maker calls it
	Role      Role      // caller or admin
	Accounts  []string  // sorted names, or only EveryAccount
	Last4     string    // the key's last 4 characters
	CreatedAt time.Time // UTC, to the microsecond
	ExpiresAt time.Time // first instant at which it no longer works; zero: never
	RevokedAt time.Time // when it was revoked; zero: it was not
	CreatedBy string    // who made it; "" when it is older than this field
	RevokedBy string    // who revoked it; "" when it was not, or before there was this field
}

// usable says whether the key works at that instant, and if not, why.
func (k Key) usable(now time.Time) error {
	switch {
	case !k.RevokedAt.IsZero():
		return ErrKeyRevoked
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return ErrKeyExpired
	}
	return nil
}

// NewKey is what the maker of a key decides.
type NewKey struct {
	Name      string    // 1 to MaxKeyNameBytes of UTF-8 without control characters; need not be unique
	Role      Role      // caller or admin
	Accounts  []string  // caller: 1 to MaxAccounts names, or only EveryAccount; admin: empty or only EveryAccount
	ExpiresAt time.Time // zero: never; else after now
	By        string    // who makes it, bounded as Name: an admin key's name, a user
}

// Defaults and bounds of [KeysConfig].
const (
	// MaxKeyTTL bounds KeysConfig.TTL, since a revoked key works for so long.
	MaxKeyTTL = time.Second

	defaultStaleFor   = time.Hour
	defaultWait       = 25 * time.Millisecond
	defaultMaxKnown   = 10_000
	defaultMaxUnknown = 10_000

	// storeTimeout bounds one lookup in the store, which goes on after its
	// caller gave up, so that the next caller finds the answer.
	storeTimeout = 2 * time.Second

	// maxStrangers bounds the lookups under way of ids that are not in the
	// cache, so that made-up keys cannot take all connections from known ones.
	maxStrangers = 64
)

// KeysConfig is how [Keys] remembers what it read. Zero means the default.
type KeysConfig struct {
	// Clock is time.Now unless set.
	Clock func() time.Time
	// TTL is how long what was read of a key is taken as true: at most
	// MaxKeyTTL, which is the default. While the store answers, a key works at
	// most so long after it was revoked.
	TTL time.Duration
	// StaleFor is how long what was read of a key is taken as true while the
	// store does not answer, so that its outage stops no call whose key is
	// known here. 1 h by default; negative: not at all.
	StaleFor time.Duration
	// Wait is how long a call waits for the store before StaleFor applies or,
	// for a key that is not known here, the answer is ErrUnavailable. 25 ms by
	// default.
	Wait time.Duration
	// MaxKnown and MaxUnknown bound how many keys, and how many ids that the
	// store does not have, are remembered: 10,000 each by default. Those that
	// were not used for longest go first.
	MaxKnown, MaxUnknown int
	// Registerer takes the metrics; nil: they are not exported.
	Registerer prometheus.Registerer
	// Log takes changes of the store's state; nil: slog.Default().
	Log *slog.Logger
}

// Keys keeps the API keys in the tables of migration 2, in PostgreSQL or
// SQLite alike, and remembers for a short while what it read. It is safe for
// concurrent use.
type Keys struct {
	db      *sql.DB
	config  KeysConfig
	metrics *keyMetrics

	mu        sync.Mutex
	known     *recent[keyRecord]
	unknown   *recent[time.Time] // when the store was asked
	lookups   map[string]*lookup
	strangers int
	storeAway bool // the last lookup failed
	closed    bool

	running sync.WaitGroup // lookups under way
}

// NewKeys returns the keys in db, which it does not close. The error names the
// field of the config that is out of its bounds, or says that the metrics are
// registered already.
func NewKeys(db *sql.DB, config KeysConfig) (*Keys, error) {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	setDefault(&config.TTL, MaxKeyTTL)
	setDefault(&config.StaleFor, defaultStaleFor)
	setDefault(&config.Wait, defaultWait)
	setDefault(&config.MaxKnown, defaultMaxKnown)
	setDefault(&config.MaxUnknown, defaultMaxUnknown)
	switch {
	case config.TTL < time.Millisecond || config.TTL > MaxKeyTTL:
		return nil, fmt.Errorf("TTL: %v is not between 1 ms and %v", config.TTL, MaxKeyTTL)
	case config.Wait < time.Millisecond || config.Wait > storeTimeout:
		return nil, fmt.Errorf("wait: %v is not between 1 ms and %v", config.Wait, storeTimeout)
	case config.MaxKnown < 1 || config.MaxUnknown < 1:
		return nil, fmt.Errorf("MaxKnown and MaxUnknown: %d and %d are stated, both must be at least 1", config.MaxKnown, config.MaxUnknown)
	}
	metrics, err := newKeyMetrics(config.Registerer)
	if err != nil {
		return nil, err
	}
	return &Keys{
		db:      db,
		config:  config,
		metrics: metrics,
		known:   newRecent[keyRecord](config.MaxKnown),
		unknown: newRecent[time.Time](config.MaxUnknown),
		lookups: make(map[string]*lookup),
	}, nil
}

func setDefault[T time.Duration | int](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Close waits for the lookups under way, at most 2 s; later ones fail with
// [ErrUnavailable].
func (k *Keys) Close() error {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.running.Wait()
	return nil
}

// Create makes a key. The secret is in the answer and nowhere else: it can't be
// asked for again. The error is an [*InvalidError] or wraps [ErrUnavailable].
func (k *Keys) Create(ctx context.Context, n NewKey) (Key, Secret, error) {
	key, secret, err := k.compose(n)
	if err != nil {
		return Key{}, Secret{}, err
	}
	err = k.change(ctx, func(tx *sql.Tx) error { return insertKey(ctx, tx, key, secret) })
	if err != nil {
		return Key{}, Secret{}, err
	}
	return key, secret, nil
}

// EnsureAdminKey makes an admin key that does not expire, named "first admin
// key", unless there is an admin key that works. However many nodes call it at
// once, one of them makes a key; the others return false.
//
// keep gets the key before it is stored, since it can't be shown later: its error
// is returned, and then no key is made.
//
// A broker whose last admin key was revoked or expired thereby gets a new one
// at its next start: who may start it owns its store anyway.
func (k *Keys) EnsureAdminKey(ctx context.Context, keep func(Secret) error) (created bool, err error) {
	key, made, err := k.compose(NewKey{Name: "first admin key", Role: RoleAdmin, By: "budgetd"})
	if err != nil {
		return false, err
	}
	if exists, err := hasAdminKey(ctx, k.db, k.config.Clock()); err != nil || exists {
		return false, unavailable(ctx, "look for an admin key", err)
	}
	var kept error
	err = k.change(ctx, func(tx *sql.Tx) error {
		// Ask again: another node may have been first.
		exists, err := hasAdminKey(ctx, tx, k.config.Clock())
		if err != nil {
			return err
		}
		if exists {
			return errNothingToDo
		}
		if kept = keep(made); kept != nil {
			return errNothingToDo
		}
		return insertKey(ctx, tx, key, made)
	})
	switch {
	case errors.Is(err, errNothingToDo):
		return false, kept
	case err != nil:
		return false, err
	}
	return true, nil
}

// errNothingToDo rolls a transaction back that found its work done.
var errNothingToDo = errors.New("nothing to do")

func (k *Keys) compose(n NewKey) (Key, Secret, error) {
	accounts, err := normalAccounts(n.Role, n.Accounts)
	if err != nil {
		return Key{}, Secret{}, err
	}
	for _, text := range []struct{ field, value string }{{"name", n.Name}, {"by", n.By}} {
		if err := validateKeyText(text.field, text.value); err != nil {
			return Key{}, Secret{}, err
		}
	}
	now := toMicros(k.config.Clock())
	if !n.ExpiresAt.IsZero() && !n.ExpiresAt.After(now) {
		return Key{}, Secret{}, invalid("expires_at", "%s has passed; state a later instant, or leave it out for a key that does not expire", n.ExpiresAt.UTC().Format(time.RFC3339))
	}
	id, secret := newKey()
	return Key{
		ID:        id,
		Name:      n.Name,
		Role:      n.Role,
		Accounts:  accounts,
		Last4:     last4(secret),
		CreatedAt: now,
		ExpiresAt: toMicros(n.ExpiresAt),
		CreatedBy: n.By,
	}, secret, nil
}

// validateKeyText checks what a key is called, or who makes or revokes it.
func validateKeyText(field, text string) error {
	switch {
	case text == "":
		return invalid(field, "it is empty; say %s", map[string]string{"name": "what the key is for", "by": "who it is"}[field])
	case len(text) > MaxKeyNameBytes:
		return invalid(field, "it has %d bytes, at most %d are accepted; shorten it", len(text), MaxKeyNameBytes)
	case !utf8.ValidString(text):
		return invalid(field, "it is not valid UTF-8; encode it as UTF-8")
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		return invalid(field, "it contains a control or invisible formatting character; remove it")
	case strings.Contains(text, keyPrefix):
		return invalid(field, "it contains %q, as a pasted API key would; call it by what it is for", keyPrefix)
	}
	return nil
}

// change runs one transaction that begins by counting the version of api_keys
// up, which makes writers wait for each other.
func (k *Keys) change(ctx context.Context, do func(*sql.Tx) error) error {
	err := inVersion(ctx, k.db, "api_keys", do)
	if errors.Is(err, errNothingToDo) || errors.Is(err, ErrKeyNotFound) {
		return err
	}
	return unavailable(ctx, "write the API keys", err)
}

// inVersion runs one transaction that first counts the subject's version up:
// in both databases that statement waits for every other writer of the
// subject, and what follows it sees what they wrote.
func inVersion(ctx context.Context, db *sql.DB, subject string, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	result, err := tx.ExecContext(ctx, `UPDATE versions SET version = version + 1 WHERE subject = $1`, subject)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(fmt.Errorf("the table versions has %d rows for %q instead of 1", n, subject), err)
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func hasAdminKey(ctx context.Context, q querier, now time.Time) (bool, error) {
	var n int64
	err := q.QueryRowContext(ctx, `SELECT count(*) FROM api_keys
		WHERE role = 'admin' AND revoked_at_us IS NULL AND (expires_at_us IS NULL OR expires_at_us > $1)`,
		now.UnixMicro()).Scan(&n)
	return n > 0, err
}

func insertKey(ctx context.Context, tx *sql.Tx, key Key, secret Secret) error {
	accounts, err := json.Marshal(key.Accounts)
	if err != nil {
		return err
	}
	hash := hashKey(secret.Reveal())
	_, err = tx.ExecContext(ctx, `INSERT INTO api_keys
		(id, name, role, accounts, key_sha256, last4, created_at_us, expires_at_us, created_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		key.ID, key.Name, string(key.Role), string(accounts), hash[:], key.Last4, key.CreatedAt.UnixMicro(), nullMicros(key.ExpiresAt), key.CreatedBy)
	return err
}

// Revoke ends a key for good on behalf of by (bounded as a key's name), and
// returns what is known of it. Revoking it again changes nothing. On this node the key stops working before Revoke
// returns, on every other within a second. The error is an [*InvalidError] or
// [ErrKeyNotFound], or wraps [ErrUnavailable].
func (k *Keys) Revoke(ctx context.Context, id, by string) (Key, error) {
	if err := validateKeyText("by", by); err != nil {
		return Key{}, err
	}
	if len(id) != idChars || !isBase32(id) {
		return Key{}, fmt.Errorf("%w: %s is not an id; \"budgetd key list\" shows them", ErrKeyNotFound, quoteShort(id))
	}
	var record keyRecord
	err := k.change(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE api_keys SET revoked_at_us = $1, revoked_by = $3 WHERE id = $2 AND revoked_at_us IS NULL`,
			k.config.Clock().UnixMicro(), id, by)
		if err != nil {
			return err
		}
		record, err = scanKey(tx.QueryRowContext(ctx, selectKeys+` WHERE id = $1`, id))
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: %s", ErrKeyNotFound, id)
		}
		return err
	})
	// Also when the outcome of the commit is unknown: the next call asks.
	k.forget(id)
	if err != nil {
		return Key{}, err
	}
	return record.Key, nil
}

// List returns keys, revoked and expired ones included, in the order in which
// they were made: at most limit (1 to MaxListKeys) of those made after the key
// with the id "after", or the first ones when after is "". The error is
// [ErrKeyNotFound] when there is no such key, or wraps [ErrUnavailable].
func (k *Keys) List(ctx context.Context, after string, limit int) ([]Key, error) {
	if limit < 1 || limit > MaxListKeys {
		return nil, fmt.Errorf("limit: %d is not between 1 and %d", limit, MaxListKeys)
	}
	var createdAt int64
	if after != "" {
		err := k.db.QueryRowContext(ctx, `SELECT created_at_us FROM api_keys WHERE id = $1`, after).Scan(&createdAt)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, fmt.Errorf("after: %w: %s", ErrKeyNotFound, quoteShort(after))
		}
		if err != nil {
			return nil, unavailable(ctx, "list the API keys", err)
		}
	}
	rows, err := k.db.QueryContext(ctx, selectKeys+`
		WHERE $1 = '' OR (created_at_us, id) > ($2, $1)
		ORDER BY created_at_us, id LIMIT $3`, after, createdAt, limit)
	if err != nil {
		return nil, unavailable(ctx, "list the API keys", err)
	}
	defer rows.Close()
	var keys []Key
	for rows.Next() {
		record, err := scanKey(rows)
		if err != nil {
			return nil, unavailable(ctx, "list the API keys", err)
		}
		keys = append(keys, record.Key)
	}
	return keys, unavailable(ctx, "list the API keys", rows.Err())
}

const selectKeys = `SELECT id, name, role, accounts, key_sha256, last4, created_at_us, expires_at_us, revoked_at_us, created_by, revoked_by FROM api_keys`

func scanKey(row interface{ Scan(...any) error }) (keyRecord, error) {
	var r keyRecord
	var role, accounts string
	var hash []byte
	var created int64
	var expires, revoked sql.NullInt64
	var createdBy, revokedBy sql.NullString
	if err := row.Scan(&r.ID, &r.Name, &role, &accounts, &hash, &r.Last4, &created, &expires, &revoked, &createdBy, &revokedBy); err != nil {
		return keyRecord{}, err
	}
	r.Role = Role(role)
	if err := json.Unmarshal([]byte(accounts), &r.Accounts); err != nil {
		return keyRecord{}, fmt.Errorf("API key %s %w: accounts: %w", r.ID, errUnreadable, err)
	}
	// What another version of budgetd wrote must not widen what a key may do.
	normal, err := normalAccounts(r.Role, r.Accounts)
	if err != nil {
		return keyRecord{}, fmt.Errorf("API key %s %w: %w", r.ID, errUnreadable, err)
	}
	r.Accounts = normal
	if len(hash) != len(r.hash) {
		return keyRecord{}, fmt.Errorf("API key %s %w: key_sha256 has %d bytes instead of %d", r.ID, errUnreadable, len(hash), len(r.hash))
	}
	copy(r.hash[:], hash)
	r.CreatedAt = fromMicros(created)
	r.ExpiresAt = fromNullMicros(expires)
	r.RevokedAt = fromNullMicros(revoked)
	r.CreatedBy, r.RevokedBy = createdBy.String, revokedBy.String
	return r, nil
}

func toMicros(at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	return fromMicros(at.UnixMicro())
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

func fromNullMicros(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return fromMicros(us.Int64)
}

func nullMicros(at time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: at.UnixMicro(), Valid: !at.IsZero()}
}

// unavailable says what could not be done. A context's own error stays what it
// is, so that a caller who hung up is not counted as an outage.
func unavailable(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	case errors.Is(err, errUnreadable):
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}
