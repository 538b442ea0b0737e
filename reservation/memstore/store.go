package memstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Config configures a [Store]. The zero value is valid.
type Config struct {
	// Clock is the engine's clock; nil is time.Now. It is read once a call, to
	// the microsecond, and must be safe for concurrent use.
	Clock func() time.Time
	// QuotaIdle is how long a quota's counter is kept in which nothing is open;
	// it is seeded from the ledger when it is met again. 1 h unless set.
	QuotaIdle time.Duration
	// Registerer takes the engine's metrics; nil for none.
	Registerer prometheus.Registerer
}

// Store is an engine in memory. It is safe for concurrent use.
type Store struct {
	clock     func() time.Time
	quotaIdle int64 // microseconds

	mu          sync.Mutex
	closed      bool
	incarnation int64  // counts losses of data; a quota seeded in another is unseeded
	name        string // of this engine and its incarnation, never used before
	accounts    map[string]*space
	pools       map[string]*space
	due         spaceHeap // accounts and pools by the instant of their next work
	counters    int       // in all accounts and pools
	open        int       // records by state
	waiting     int
	kept        int

	watches watches

	looks [reservation.MaxHolds]look // scratch of Reserve
	free  []*record                  // records to be used again
}

var _ reservation.Store = (*Store)(nil)

// New makes an empty engine. It fails only when a metric cannot be registered.
func New(config Config) (*Store, error) {
	s := &Store{clock: config.Clock, quotaIdle: config.QuotaIdle.Microseconds(), watches: watches{}}
	if s.quotaIdle <= 0 {
		s.quotaIdle = time.Hour.Microseconds()
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	s.clear()
	s.begin()
	if config.Registerer != nil {
		if err := config.Registerer.Register(newCollector(s)); err != nil {
			return nil, fmt.Errorf("memstore metrics: %w", err)
		}
	}
	return s, nil
}

func (s *Store) clear() {
	s.accounts, s.pools, s.due = map[string]*space{}, map[string]*space{}, nil
	s.counters, s.open, s.waiting, s.kept = 0, 0, 0, 0
	s.free = nil
}

// loseData forgets everything, as the end of the process would.
func (s *Store) loseData() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.begin()
}

// incarnate makes every quota unseeded.
func (s *Store) incarnate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
}

// begin begins another incarnation.
func (s *Store) begin() {
	s.incarnation++
	s.name = rand.Text()
}

// enter locks the engine for one call and returns the present, in
// microseconds since 1970. On an error it is not locked.
func (s *Store) enter(ctx context.Context) (now int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("memstore: %w", err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return 0, fmt.Errorf("memstore is closed: %w", reservation.ErrUnavailable)
	}
	return s.clock().UnixMicro(), nil
}

// Ping answers nil until Close.
func (s *Store) Ping(ctx context.Context) error {
	if _, err := s.enter(ctx); err != nil {
		return err
	}
	s.mu.Unlock()
	return nil
}

// Close drops all state. Calls that follow answer reservation.ErrUnavailable;
// closing again does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.clear()
	return nil
}

// Lookup implements reservation.Store.
func (s *Store) Lookup(ctx context.Context, account string, id reservation.ID) (reservation.Record, error) {
	if err := reservation.ValidateAccount(account); err != nil {
		return reservation.Record{}, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return reservation.Record{}, err
	}
	defer s.mu.Unlock()
	if a := s.accounts[account]; a != nil {
		if r := a.records[id]; r != nil && !r.forgotten(now) {
			return r.show(now), nil
		}
	}
	return reservation.Record{}, nil
}

// Levels implements reservation.Store.
func (s *Store) Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error) {
	if err := reservation.ValidateAccount(account); err != nil {
		return nil, time.Time{}, err
	}
	if err := reservation.ValidateHolds(holds); err != nil {
		return nil, time.Time{}, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer s.mu.Unlock()
	levels := make([]reservation.Level, len(holds))
	a := s.accounts[account]
	for i := range holds {
		l := s.look(s.lookup(a, &holds[i]), &holds[i], now)
		l.bannedUntil = s.bannedUntil(a, &holds[i], now)
		l.shareOf(account, &holds[i], now)
		levels[i] = l.level(&holds[i], now)
	}
	return levels, at(now), nil
}

// at shows an instant as the contract does.
func at(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// maxMicros is the latest instant that an answer names, in June 2255: engines
// that count in IEEE doubles stop there.
const maxMicros = int64(quota.MaxAmount)

// later is now + wait, at most maxMicros.
func later(now, wait int64) int64 {
	if now > maxMicros || wait > maxMicros-now {
		return maxMicros
	}
	return now + wait
}
