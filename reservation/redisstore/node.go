package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// errIncarnation says that a new connection reached another incarnation of the
// server than the scripts were loaded for. Nothing was run.
var errIncarnation = errors.New("redis is another incarnation than before")

// incarnation is what a primary is as long as it has lost nothing: the process
// and, as a process may have been demoted and promoted again, the history of
// its data.
type incarnation struct{ run, history string }

// generation is 52 bits of a hash of the incarnation, never 0: what scripts
// carry as a literal and quota counters remember.
func (i incarnation) generation() uint64 {
	sum := sha256.Sum256([]byte(i.run + " " + i.history))
	return binary.BigEndian.Uint64(sum[:])>>12 | 1
}

// readIncarnation asks one connection who it is talking to.
func readIncarnation(ctx context.Context, c redis.Cmdable) (incarnation, error) {
	var server, replication *redis.StringCmd
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		server, replication = p.Info(ctx, "server"), p.Info(ctx, "replication")
		return nil
	})
	if err != nil {
		return incarnation{}, err
	}
	i := incarnation{run: infoField(server.Val(), "run_id"), history: infoField(replication.Val(), "master_replid")}
	if i.run == "" || i.history == "" {
		return incarnation{}, errors.New("redis does not say its run_id and master_replid in INFO; budgetd needs both to notice lost data")
	}
	return i, nil
}

// infoField returns the value of one line of INFO, "" if there is none.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), name+":"); ok {
			return value
		}
	}
	return ""
}

// histories knows the history that each server process was last seen with.
// Every new connection checks it, so that a process that was demoted and
// promoted again is noticed though its cached scripts still answer.
type histories struct{ known sync.Map } // run id -> history

// check is the OnConnect of the clients that this package makes.
func (h *histories) check(ctx context.Context, c *redis.Conn) error {
	seen, err := readIncarnation(ctx, c)
	if err != nil {
		return err
	}
	if h.learn(seen) {
		return errIncarnation
	}
	return nil
}

// learn reports whether the process was known with another history.
func (h *histories) learn(seen incarnation) (changed bool) {
	before, known := h.known.Swap(seen.run, seen.history)
	return known && before != seen.history
}

// current reports whether the process still has that history, as far as known.
func (h *histories) current(i incarnation) bool {
	history, known := h.known.Load(i.run)
	return !known || history == i.history
}

// node is one primary and the scripts that it has.
type node struct {
	client  *redis.Client
	address string
	loaded  atomic.Pointer[loaded]
	flight  singleflight.Group
	looking atomic.Bool // a look in the background is under way
}

// loaded is the scripts of one incarnation. It never changes.
type loaded struct {
	incarnation incarnation
	generation  uint64
	digests     [scriptCount]string
	seen        atomic.Int64 // monotonic-free wall clock, ns: when the server was last found to be this incarnation
}

// scripts returns what is loaded into the node, loading it first where needed.
// Loading goes on when ctx ends: the next call finds it done.
func (s *Store) scripts(ctx context.Context, n *node) (*loaded, error) {
	l := n.loaded.Load()
	if l != nil && s.histories.current(l.incarnation) {
		if s.verify > 0 && time.Since(time.Unix(0, l.seen.Load())) > s.verify && n.looking.CompareAndSwap(false, true) {
			s.work.Go(func() {
				defer n.looking.Store(false)
				s.look(n, l)
			})
		}
		return l, nil
	}
	result := n.flight.DoChan("load", func() (any, error) {
		ctx, cancel := context.WithTimeout(s.life, loadTimeout)
		defer cancel()
		return s.load(ctx, n)
	})
	select {
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*loaded), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// loadTimeout bounds loading all scripts into a node.
const loadTimeout = 2 * time.Second

// load reads who the server is and loads the scripts, on one connection.
func (s *Store) load(ctx context.Context, n *node) (*loaded, error) {
	conn := n.client.Conn()
	defer conn.Close()
	who, err := readIncarnation(ctx, conn)
	if err != nil {
		return nil, err
	}
	s.histories.learn(who)
	l := &loaded{incarnation: who, generation: who.generation()}
	var texts [scriptCount]string
	for i := range texts {
		texts[i] = compose(script(i), l.generation, s.modules)
		l.digests[i] = digest(texts[i])
	}
	if _, err := conn.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, text := range texts {
			p.ScriptLoad(ctx, text)
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("load the scripts into %s: %w", n.address, err)
	}
	l.seen.Store(time.Now().UnixNano())
	n.loaded.Store(l)
	s.metrics.loads.Inc()
	return l, nil
}

// look makes sure that a node is still the incarnation that l is for.
func (s *Store) look(n *node, l *loaded) {
	ctx, cancel := context.WithTimeout(s.life, loadTimeout)
	defer cancel()
	conn := n.client.Conn()
	defer conn.Close()
	who, err := readIncarnation(ctx, conn)
	if err != nil {
		return // calls meet the same fault and say so
	}
	s.histories.learn(who)
	if who == l.incarnation {
		l.seen.Store(time.Now().UnixNano())
		return
	}
	n.loaded.CompareAndSwap(l, nil)
}

// forget makes the next call load again.
func (n *node) forget(l *loaded) { n.loaded.CompareAndSwap(l, nil) }

// nodeFor returns the primary that serves a key.
func (s *Store) nodeFor(ctx context.Context, key string) (*node, error) {
	if s.cluster == nil {
		return s.single, nil
	}
	client, err := s.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.nodeOf(client), nil
}

// nodeOf keeps one node a client; a Cluster client makes one client an address.
func (s *Store) nodeOf(client *redis.Client) *node {
	if n, known := s.nodes.Load(client); known {
		return n.(*node)
	}
	n, _ := s.nodes.LoadOrStore(client, &node{client: client, address: client.Options().Addr})
	return n.(*node)
}

// nodeAt returns the Cluster's node with an address, nil if the client does not
// know it yet.
func (s *Store) nodeAt(ctx context.Context, address string) *node {
	if s.cluster == nil {
		return nil
	}
	var found atomic.Pointer[node]
	_ = s.cluster.ForEachShard(ctx, func(_ context.Context, c *redis.Client) error {
		if c.Options().Addr == address {
			found.Store(s.nodeOf(c))
		}
		return nil
	})
	return found.Load()
}
