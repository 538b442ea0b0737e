package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/reservation"
)

// Defaults of a Config.
const (
	DefaultPrefix      = "budgetd:"
	DefaultQuotaIdle   = time.Hour
	DefaultVerifyEvery = time.Second
)

// Config is what a Store may be told. The zero value is the production setting.
type Config struct {
	// Prefix begins every key; at most 64 bytes without '{' and '}'. Stores
	// with different prefixes share nothing but the server. "" is
	// [DefaultPrefix].
	Prefix string

	// Clock replaces the server's clock, for tests. Expiries of keys stay
	// spans of real time. nil: Redis TIME.
	Clock func() time.Time

	// QuotaIdle is how long a quota's counter without open or unposted amounts
	// stays after its last use before Redis drops it and the next Reserve seeds
	// it again from the ledger. 0 is [DefaultQuotaIdle]; at least 1 s.
	QuotaIdle time.Duration

	// VerifyEvery is how often a node in use is asked, off the path of calls,
	// whether it still is the incarnation that its scripts were loaded for. 0 is
	// [DefaultVerifyEvery]; negative means never, so that only new connections
	// and error replies tell.
	VerifyEvery time.Duration

	// Registerer takes the metrics budgetd_redisstore_*. nil: none.
	Registerer prometheus.Registerer
}

// Store is the Redis engine of reservation.Store. It is safe for concurrent use.
type Store struct {
	client    redis.UniversalClient
	cluster   *redis.ClusterClient // nil off a Cluster
	single    *node                // nil on a Cluster
	nodes     sync.Map             // *redis.Client -> *node
	histories *histories
	owned     bool // Close closes the client

	prefix  string
	clock   func() time.Time
	idle    int64 // microseconds
	verify  time.Duration
	modules map[string]string // replaces script modules, in tests of layouts
	metrics *metrics
	epochs  epochs

	watchers watchers

	life context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup
}

var _ reservation.Store = (*Store)(nil)

// New makes a Store over a client of a single Redis, a Sentinel's master or a
// Cluster. It sends nothing: Redis may be away. The client stays the caller's
// to close.
//
// The client should have the options of [Options], above all MaxRetries -1: a
// call that go-redis repeats by itself could be late beyond its deadline.
// Clients that are made with [Connect] also check on every new connection that
// the server has not lost data meanwhile; others rely on Config.VerifyEvery.
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	return newStore(client, cfg, &histories{})
}

// Connect makes a client from options, as those of [Options], and a Store over
// it. Close closes both. It sends nothing: Redis may be away.
func Connect(opts *redis.UniversalOptions, cfg Config) (*Store, error) {
	h := &histories{}
	own := *opts
	before := own.OnConnect
	own.OnConnect = func(ctx context.Context, c *redis.Conn) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		return h.check(ctx, c)
	}
	client := redis.NewUniversalClient(&own)
	s, err := newStore(client, cfg, h)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.owned = true
	return s, nil
}

func newStore(client redis.UniversalClient, cfg Config, h *histories) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if len(cfg.Prefix) > 64 {
		return nil, fmt.Errorf("redisstore: Prefix has %d bytes, at most 64 are accepted", len(cfg.Prefix))
	}
	for i := range len(cfg.Prefix) {
		if c := cfg.Prefix[i]; c == '{' || c == '}' {
			return nil, fmt.Errorf("redisstore: Prefix %q contains %q, which would take the place of the hash tags; leave it out", cfg.Prefix, c)
		}
	}
	if cfg.QuotaIdle == 0 {
		cfg.QuotaIdle = DefaultQuotaIdle
	}
	if cfg.QuotaIdle < time.Second {
		return nil, fmt.Errorf("redisstore: QuotaIdle is %s, at least 1s is accepted", cfg.QuotaIdle)
	}
	if cfg.VerifyEvery == 0 {
		cfg.VerifyEvery = DefaultVerifyEvery
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("redisstore: register metrics: %w", err)
	}
	s := &Store{
		client: client, histories: h, prefix: cfg.Prefix, clock: cfg.Clock,
		idle: cfg.QuotaIdle.Microseconds(), verify: cfg.VerifyEvery, metrics: m,
	}
	switch c := client.(type) {
	case *redis.Client:
		s.single = &node{client: c, address: c.Options().Addr}
	case *redis.ClusterClient:
		s.cluster = c
	default:
		return nil, fmt.Errorf("redisstore: a client of type %T is not known; use *redis.Client or *redis.ClusterClient", client)
	}
	s.life, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Ping answers nil when every primary can serve now: it answers, with its
// scripts loaded.
func (s *Store) Ping(ctx context.Context) error {
	ping := func(ctx context.Context, n *node) error {
		if _, err := s.scripts(ctx, n); err != nil {
			return fmt.Errorf("%w: %w", reservation.ErrUnavailable, err)
		}
		if err := n.client.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("%w: %w", reservation.ErrUnavailable, err)
		}
		return nil
	}
	if s.cluster == nil {
		return ping(ctx, s.single)
	}
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		return ping(ctx, s.nodeOf(c))
	})
	if err != nil && !errors.Is(err, reservation.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", reservation.ErrUnavailable, err)
	}
	return err
}

// Close ends what runs in the background and, of a Store of [Connect], the
// client.
func (s *Store) Close() error {
	s.stop()
	s.work.Wait()
	if s.owned {
		return s.client.Close()
	}
	return nil
}

// now is the clock argument of scripts: 0 for the server's own.
func (s *Store) now() int64 {
	if s.clock == nil {
		return 0
	}
	return s.clock().UnixMicro()
}

// newTickets is the first of 64 tickets, one a hold: 46 random bits times 64,
// never 0.
func newTickets() int64 {
	var b [8]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return int64(binary.BigEndian.Uint64(b[:])>>18|1) * reservation.MaxHolds
}

// IsCluster says whether the store is on a Redis Cluster.
func (s *Store) IsCluster() bool { return s.cluster != nil }
