package redisstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// Each primary has a marker: a key that says in which incarnation of the server
// it was written, and a name that was never used before. FLUSHALL takes it
// away; a restart, a failover or a restored dump leave one of another
// incarnation. The first sweep that meets either writes a new one, and every
// broker reads the same. On a Cluster a primary's marker lies in the lowest
// shard that it serves, so a slot that moves counts as a loss too, as it does for
// the quotas in it.

// epochs remembers the last marker of each primary, by its lowest shard.
type epochs struct {
	mu   sync.Mutex
	seen map[int]string
}

// marker is the key of a primary's marker.
func (s *Store) marker(shard int) string { return s.tag('s', shard) + "epoch" }

// primaries returns the lowest shard of each primary that the client knows.
func (s *Store) primaries(ctx context.Context) (map[*node]int, error) {
	if s.cluster == nil {
		return map[*node]int{s.single: 0}, nil
	}
	lowest := map[*node]int{}
	for shard := range shards {
		n, err := s.nodeFor(ctx, s.tag('s', shard))
		if err != nil {
			return nil, err
		}
		if _, known := lowest[n]; !known {
			lowest[n] = shard
		}
	}
	return lowest, nil
}

// readEpoch asks every primary for its marker and its clock. It returns the
// clock that is ahead: an account that is visited too early by its own node's
// clock waits there. A primary that is away keeps the marker that it had, and
// is in away; the epoch is "" as long as one was never seen. The error is
// that of all being away.
func (s *Store) readEpoch(ctx context.Context) (epoch string, now time.Time, away map[*node]bool, err error) {
	primaries, err := s.primaries(ctx)
	if err != nil {
		return "", time.Time{}, nil, err
	}
	type found struct {
		node   *node
		shard  int
		now    int64
		marker string
		err    error
	}
	results := make(chan found, len(primaries))
	for n, shard := range primaries {
		go func() {
			f := found{node: n, shard: shard}
			f.now, f.marker, f.err = s.askMarker(ctx, shard)
			results <- f
		}()
	}
	ahead := int64(math.MinInt64)
	var failures []error
	away = map[*node]bool{}
	seen := make(map[int]string, len(primaries))
	for range primaries {
		f := <-results
		if f.err != nil {
			away[f.node] = true
			failures = append(failures, f.err)
		} else {
			ahead = max(ahead, f.now)
		}
		seen[f.shard] = f.marker
	}
	if len(failures) == len(primaries) {
		return "", time.Time{}, away, errors.Join(failures...)
	}
	return s.epochs.learn(seen), instant(ahead), away, nil
}

// learn takes over what was seen, with the last known marker where there is
// none now, and returns the epoch.
func (e *epochs) learn(seen map[int]string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for shard, marker := range seen {
		if marker == "" {
			seen[shard] = e.seen[shard]
		}
	}
	e.seen = seen
	return epochOf(seen)
}

func (s *Store) askMarker(ctx context.Context, shard int) (now int64, marker string, err error) {
	var fresh [8]byte
	rand.Read(fresh[:]) // never fails, see crypto/rand
	var a args
	a.int(s.now())
	a.str(hex.EncodeToString(fresh[:]))
	out, err := s.run(ctx, scriptEpoch, []string{s.marker(shard)}, a)
	if err != nil {
		return 0, "", err
	}
	now, marker = out.int(), string(out.bytes())
	return now, marker, out.err
}

// epochOf is one name for all markers, "" when one is not known.
func epochOf(seen map[int]string) string {
	sum := sha256.New()
	for _, shard := range slices.Sorted(maps.Keys(seen)) {
		if seen[shard] == "" {
			return ""
		}
		fmt.Fprintf(sum, "%d %s\n", shard, seen[shard])
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}
