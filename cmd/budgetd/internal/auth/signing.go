package auth

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// signingKeyBytes is the length of a signing key: that of the output of the
// hash, as RFC 2104 section 3 advises for HMAC.
const signingKeyBytes = 32

// maxSigningKeyID bounds the ids, which have 16 bits in a reservation id.
const maxSigningKeyID = 1<<16 - 1

// Defaults and bounds of [SigningConfig].
const (
	defaultRefreshEvery = 5 * time.Second
	defaultSignAfter    = 30 * time.Second
	defaultVerifyFor    = 400 * 24 * time.Hour
	minStrangeEvery     = time.Second
)

// SigningConfig is how [SigningKeys] follows its store. Zero means the default.
type SigningConfig struct {
	// Clock is time.Now unless set.
	Clock func() time.Time
	// RefreshEvery is how often Run reads the store: 5 s by default.
	RefreshEvery time.Duration
	// SignAfter is how long after a rotation the new key signs: 30 s by
	// default, at least twice RefreshEvery, so that every node can verify with
	// a key before any node signs with it.
	SignAfter time.Duration
	// VerifyFor is how long a retired key verifies: 400 days by default. A
	// reservation whose key is gone can't be refunded, so it should be as long
	// as the ledger keeps its closings.
	VerifyFor time.Duration
	// Wait is how long ByID waits for the store when it meets an id that it
	// does not know: 25 ms by default.
	Wait time.Duration
	// Registerer takes the metrics; nil: they are not exported.
	Registerer prometheus.Registerer
	// Log takes changes of the store's state; nil: slog.Default().
	Log *slog.Logger
}

// SigningKeys are the keys that authenticate reservation ids: HMAC-SHA-256
// keys of 32 bytes in the table mac_keys, the same for every node of a store.
// It is safe for concurrent use, and Current and ByID take no lock.
//
// A key signs from a while after it was made until its successor does, and
// verifies until VerifyFor after that. Nodes that read the store late go on
// signing with the old key, which everyone verifies.
type SigningKeys struct {
	db      *sql.DB
	config  SigningConfig
	metrics *signingMetrics

	keys atomic.Pointer[keyRing]

	mu         sync.Mutex
	strangerAt time.Time // when an unknown id last made us ask
	asking     *asking
	storeAway  bool

	running sync.WaitGroup
}

// asking is one read of the store on behalf of unknown ids.
type asking struct {
	done chan struct{}
}

// signingKey is one row.
type signingKey struct {
	id        uint16
	secret    []byte
	signsFrom time.Time
	retiredAt time.Time // when its successor begins to sign; zero: it has none
}

// keyRing is what was read at once. It is immutable.
type keyRing struct {
	byID  map[uint16]*signingKey
	order []*signingKey // by signsFrom, then id
}

// OpenSigningKeys reads the keys from db, which it does not close, and makes
// the first one if there is none. However many nodes do so at once, all have
// the same key. The error wraps [ErrUnavailable], or names the field of the
// config that is out of its bounds.
func OpenSigningKeys(ctx context.Context, db *sql.DB, config SigningConfig) (*SigningKeys, error) {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	setDefault(&config.RefreshEvery, defaultRefreshEvery)
	setDefault(&config.SignAfter, max(defaultSignAfter, 2*config.RefreshEvery))
	setDefault(&config.VerifyFor, defaultVerifyFor)
	setDefault(&config.Wait, defaultWait)
	switch {
	case config.RefreshEvery < time.Millisecond || config.RefreshEvery > time.Hour:
		return nil, fmt.Errorf("RefreshEvery: %v is not between 1 ms and 1 h", config.RefreshEvery)
	case config.SignAfter < 2*config.RefreshEvery:
		return nil, fmt.Errorf("SignAfter: %v is below twice RefreshEvery (%v): nodes would meet keys that they have not read yet", config.SignAfter, config.RefreshEvery)
	case config.VerifyFor < 24*time.Hour:
		return nil, fmt.Errorf("VerifyFor: %v is below 24 h, the longest lease: reservations could not be refunded", config.VerifyFor)
	case config.Wait < time.Millisecond || config.Wait > storeTimeout:
		return nil, fmt.Errorf("wait: %v is not between 1 ms and %v", config.Wait, storeTimeout)
	}
	s := &SigningKeys{db: db, config: config, metrics: newSigningMetrics()}
	if err := s.ensure(ctx); err != nil {
		return nil, err
	}
	if err := s.Refresh(ctx); err != nil {
		return nil, err
	}
	if len(s.keys.Load().order) == 0 {
		return nil, errors.New("read the signing keys: there are none although one was made")
	}
	// Last, so that a start that failed can be tried again.
	if err := register(config.Registerer, s.metrics.refreshes, s.metrics.keys); err != nil {
		return nil, err
	}
	return s, nil
}

// Close waits for the reads under way, at most 2 s.
func (s *SigningKeys) Close() error {
	s.running.Wait()
	return nil
}

// ensure makes the first key.
func (s *SigningKeys) ensure(ctx context.Context) error {
	const any = `SELECT count(*) FROM mac_keys`
	var n int64
	if err := s.db.QueryRowContext(ctx, any).Scan(&n); err != nil || n > 0 {
		return unavailable(ctx, "read the signing keys", err)
	}
	err := inVersion(ctx, s.db, "mac_keys", func(tx *sql.Tx) error {
		// Ask again: another node may have been first.
		if err := tx.QueryRowContext(ctx, any).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return errNothingToDo
		}
		now := s.config.Clock()
		return insertSigningKey(ctx, tx, 1, now, now)
	})
	if errors.Is(err, errNothingToDo) {
		return nil
	}
	return unavailable(ctx, "make the first signing key", err)
}

func insertSigningKey(ctx context.Context, tx *sql.Tx, id int64, now, signsFrom time.Time) error {
	secret := make([]byte, signingKeyBytes)
	rand.Read(secret) // never fails, see crypto/rand
	_, err := tx.ExecContext(ctx, `INSERT INTO mac_keys (id, secret, created_at_us, signs_from_us) VALUES ($1, $2, $3, $4)`,
		id, secret, now.UnixMicro(), signsFrom.UnixMicro())
	return err
}

// Rotate makes a new key, which signs from SignAfter on, retires the others at
// that instant, deletes those that no longer verify, and returns the new key's
// id. The error wraps [ErrUnavailable].
func (s *SigningKeys) Rotate(ctx context.Context) (id uint16, err error) {
	var last int64
	err = inVersion(ctx, s.db, "mac_keys", func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(max(id), 0) FROM mac_keys`).Scan(&last); err != nil {
			return err
		}
		if last >= maxSigningKeyID {
			return errSigningIDsUsed
		}
		now := s.config.Clock()
		signsFrom := now.Add(s.config.SignAfter)
		if _, err := tx.ExecContext(ctx, `DELETE FROM mac_keys WHERE retired_at_us < $1`,
			now.Add(-s.config.VerifyFor).UnixMicro()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE mac_keys SET retired_at_us = $1 WHERE retired_at_us IS NULL`,
			signsFrom.UnixMicro()); err != nil {
			return err
		}
		return insertSigningKey(ctx, tx, last+1, now, signsFrom)
	})
	if errors.Is(err, errSigningIDsUsed) {
		return 0, err
	}
	if err != nil {
		return 0, unavailable(ctx, "rotate the signing keys", err)
	}
	return uint16(last + 1), s.Refresh(ctx)
}

var errSigningIDsUsed = fmt.Errorf("rotate the signing keys: all %d ids are used", maxSigningKeyID)

// Refresh reads the keys from the store. When that fails, the keys that were
// read before stay. The error wraps [ErrUnavailable] or is the context's.
func (s *SigningKeys) Refresh(ctx context.Context) error {
	ring, err := readSigningKeys(ctx, s.db)
	if err == nil && len(ring.order) == 0 && s.keys.Load() != nil {
		err = errors.New("the table mac_keys was emptied; reservations made before cannot be refunded without its rows")
	}
	s.note(err)
	if err != nil {
		return unavailable(ctx, "read the signing keys", err)
	}
	s.keys.Store(ring)
	s.metrics.keys.Set(float64(len(ring.order)))
	return nil
}

// note counts a refresh, and logs when the store goes away or comes back.
func (s *SigningKeys) note(err error) {
	if err != nil {
		s.metrics.refreshes.WithLabelValues("error").Inc()
	} else {
		s.metrics.refreshes.WithLabelValues("ok").Inc()
	}
	s.mu.Lock()
	changed := s.storeAway != (err != nil)
	s.storeAway = err != nil
	s.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		s.config.Log.Warn("the signing keys cannot be read; those read before go on working", "error", err)
	default:
		s.config.Log.Info("the signing keys can be read again")
	}
}

func readSigningKeys(ctx context.Context, db *sql.DB) (*keyRing, error) {
	rows, err := db.QueryContext(ctx, `SELECT id, secret, signs_from_us, retired_at_us FROM mac_keys ORDER BY signs_from_us, id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ring := &keyRing{byID: make(map[uint16]*signingKey)}
	for rows.Next() {
		var id, signsFrom int64
		var secret []byte
		var retired sql.NullInt64
		if err := rows.Scan(&id, &secret, &signsFrom, &retired); err != nil {
			return nil, err
		}
		if id < 1 || id > maxSigningKeyID || len(secret) < signingKeyBytes {
			return nil, fmt.Errorf("signing key %d with %d bytes is out of bounds", id, len(secret))
		}
		key := &signingKey{id: uint16(id), secret: secret, signsFrom: fromMicros(signsFrom), retiredAt: fromNullMicros(retired)}
		ring.byID[key.id] = key
		ring.order = append(ring.order, key)
	}
	return ring, rows.Err()
}

// Run refreshes the keys until the context ends, and returns its error.
func (s *SigningKeys) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.config.RefreshEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			ctx, cancel := context.WithTimeout(ctx, storeTimeout)
			_ = s.Refresh(ctx) // counted and logged there; the next tick tries again
			cancel()
		}
	}
}

// Current returns the key to sign with, and its id: 32 bytes that must not be
// changed.
func (s *SigningKeys) Current() (id uint16, key []byte) {
	now := s.config.Clock()
	order := s.keys.Load().order
	current := order[0]
	for _, k := range order[1:] {
		if !k.signsFrom.After(now) {
			current = k
		}
	}
	return current.id, current.secret
}

// ByID returns the key to verify with, which must not be changed; ok is false
// when there is no such key or it was retired too long ago. An id that was not
// read yet is looked for in the store, at most once a second whatever callers
// send, and ByID waits for that at most Wait.
func (s *SigningKeys) ByID(id uint16) (key []byte, ok bool) {
	now := s.config.Clock()
	if key, known := s.keys.Load().verifies(id, now, s.config.VerifyFor); known || id == 0 {
		return key, key != nil
	}
	if !s.lookForStrangers(now) {
		return nil, false
	}
	key, _ = s.keys.Load().verifies(id, now, s.config.VerifyFor)
	return key, key != nil
}

// verifies returns the key if it verifies, and whether the id is known.
func (r *keyRing) verifies(id uint16, now time.Time, verifyFor time.Duration) (key []byte, known bool) {
	k, known := r.byID[id]
	if !known || !k.retiredAt.IsZero() && now.After(k.retiredAt.Add(verifyFor)) {
		return nil, known
	}
	return k.secret, true
}

// lookForStrangers reads the store on behalf of an unknown id, unless that was
// done less than a second ago, and says whether it has been read since the
// call. Calls at the same time share one read.
func (s *SigningKeys) lookForStrangers(now time.Time) bool {
	s.mu.Lock()
	a := s.asking
	if a == nil {
		age := now.Sub(s.strangerAt)
		if !s.strangerAt.IsZero() && age >= 0 && age < minStrangeEvery {
			s.mu.Unlock()
			return false
		}
		s.strangerAt = now
		a = &asking{done: make(chan struct{})}
		s.asking = a
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
			defer cancel()
			_ = s.Refresh(ctx) // counted and logged there; ByID says no
			s.mu.Lock()
			s.asking = nil
			s.mu.Unlock()
			close(a.done)
		}()
	}
	s.mu.Unlock()
	timer := time.NewTimer(s.config.Wait)
	defer timer.Stop()
	select {
	case <-a.done:
		return true
	case <-timer.C:
		return false
	}
}

// String tells how many keys there are and hides them.
func (s *SigningKeys) String() string {
	return fmt.Sprintf("%d signing keys", len(s.keys.Load().order))
}
