package estimator

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"

	"github.com/budgetd/budgetd/estimator/encoding"
)

// counting is how an estimator counts texts: few at a time, and those that were
// counted a moment ago not again.
type counting struct {
	short, long chan struct{} // a place for each worker
	known       countCache
}

// longText is the shortest text, in bytes, that must wait for a place among the
// long ones, so that a queue of those does not keep short texts waiting.
const longText = 32 << 10

// newCounting makes room for as many workers as Go uses processors, and half as
// many more for long texts.
func newCounting() *counting {
	workers := runtime.GOMAXPROCS(0)
	c := &counting{short: make(chan struct{}, workers), long: make(chan struct{}, max(1, workers/2))}
	c.known.init()
	return c
}

// figures returns what count says of a text, or what it said before of the same
// text, encoding and rule. It waits for a place until the context ends; then, or
// when count gives up with the context's error, the error is ErrBusy.
func (c *counting) figures(ctx context.Context, by counter, text string) (Figures, error) {
	key, keep := c.known.key(by, text)
	if keep {
		if f, ok := c.known.get(key); ok {
			return f, nil
		}
	}
	places := c.short
	if len(text) >= longText {
		places = c.long
	}
	select {
	case places <- struct{}{}:
	default:
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return Figures{}, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
		}
	}
	f, err := by.count(ctx, text)
	<-places
	if err != nil {
		return Figures{}, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if keep {
		c.known.put(key, f)
	}
	return f, nil
}

const (
	// minKnownBytes is the shortest text that is remembered: below, counting it
	// takes about as long as looking it up (BenchmarkKnownText).
	minKnownBytes = 128
	// maxKnown bounds the texts that are remembered. Each is a key and three
	// figures, about 150 bytes with the map's own: 5 MB in all.
	maxKnown = 32 << 10
)

// countCache remembers the figures of texts by a hash of 128 bits with a secret
// key of this process, so that nobody can make two texts that are taken for each
// other. No text is kept. It is two maps: when the young one has its half, it
// becomes the old one, and what was last asked for before that is forgotten.
type countCache struct {
	seeds [2]maphash.Seed

	mu         sync.Mutex
	young, old map[countKey]Figures
}

type countKey struct {
	text     [2]uint64
	encoding *encoding.Counter
	family   string // of the rule
}

func (c *countCache) init() {
	c.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	c.young, c.old = map[countKey]Figures{}, map[countKey]Figures{}
}

// key returns what a text is remembered by, or false when it is too short.
func (c *countCache) key(by counter, text string) (countKey, bool) {
	if len(text) < minKnownBytes {
		return countKey{}, false
	}
	return countKey{[2]uint64{maphash.String(c.seeds[0], text), maphash.String(c.seeds[1], text)}, by.encoding, by.rule.Family}, true
}

func (c *countCache) get(key countKey) (Figures, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.young[key]
	if !ok {
		if f, ok = c.old[key]; ok {
			c.add(key, f)
		}
	}
	return f, ok
}

func (c *countCache) put(key countKey, f Figures) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(key, f)
}

func (c *countCache) add(key countKey, f Figures) {
	if len(c.young) >= maxKnown/2 {
		clear(c.old)
		c.young, c.old = c.old, c.young
	}
	c.young[key] = f
}
