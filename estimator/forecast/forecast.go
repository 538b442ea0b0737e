// Package forecast learns from settled calls how much output the next one will
// use. It is pure: time is passed in, and the same observations in the same order
// give the same forecasts. Brokers may put together what they learned, in a
// [Store]; whether forecasts were long enough each finds out for itself.
//
// Calls are alike when they share account, model, route and the power of two of
// their output bound: a [Key]. Of each key it keeps the last [Samples] lengths. A
// forecast is the conformal rank of what was seen: of n lengths that count, the
// ceil((n+1) q)-th smallest, so that the next of an exchangeable row is at most
// that with a probability of at least q (Vovk, Gammerman and Shafer, "Algorithmic
// Learning in a Random World", 2005, section 2.2). A length at the bound was cut
// there: it says "at least". It counts as the bound that the next call has, which
// is the highest that it can be.
//
// Nothing is forecast for a key with fewer than [Enough] lengths that are not
// older than [HalfLives] half-lives, nor while coverage has slipped: of the last
// 64 forecasts that were followed by a length, so few were long enough that at
// the stated quantile it would be seen less than about once in a thousand windows
// (three standard deviations of a binomial).
package forecast

import (
	"container/list"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// Bounds of what is kept.
const (
	Samples   = 128 // lengths of a key
	Enough    = 16  // weighed lengths before anything is forecast
	HalfLives = 4   // after which a length no longer counts
	window    = 64  // forecasts in the rolling coverage

	// DefaultQuantile is the median. What a forecast is short by is bounded by the
	// limit's tolerance, so a low quantile costs safety nothing; a high one holds
	// what is not used: docs/holds.md has the measurement.
	DefaultQuantile = 0.5
	// DefaultHalfLife is the age at which a length counts half.
	DefaultHalfLife = time.Hour
	// DefaultKeys takes up to about 120 MB when every key has all its lengths.
	DefaultKeys = 50_000
)

// Key says which calls are alike.
type Key struct {
	Account, Model, Route string
	Bound                 uint8 // from Bound
}

// Bound is the class of an output bound: its length in bits.
func Bound(most int64) uint8 { return uint8(bits.Len64(uint64(max(most, 0)))) }

// Config configures a Learner. The zero value is ready.
type Config struct {
	Quantile float64       // above 0, below 1; DefaultQuantile unless set
	HalfLife time.Duration // DefaultHalfLife unless set
	Keys     int           // the most that are kept; the least recently used go. DefaultKeys unless set
	Shared   bool          // Share is called now and then
}

// Learner is safe for concurrent use.
type Learner struct {
	config Config

	mu    sync.Mutex
	cells map[Key]*list.Element
	used  *list.List // of *cell, the most recently used first

	waiting map[Key]struct{} // to be merged with the store; at most Keys and maxAsked
}

type cell struct {
	key     Key
	lengths []Length // a ring once it has Samples
	next    int
	covered uint64 // rolling coverage, one bit a forecast, the latest lowest
	tried   int    // bits in covered, to window
	merged  int64  // when what others learned was taken over, in microseconds since 1970; 0 never
}

// New makes a Learner without memories.
func New(config Config) *Learner {
	if config.Quantile <= 0 || config.Quantile >= 1 {
		config.Quantile = DefaultQuantile
	}
	if config.HalfLife <= 0 {
		config.HalfLife = DefaultHalfLife
	}
	if config.Keys <= 0 {
		config.Keys = DefaultKeys
	}
	return &Learner{config: config, cells: map[Key]*list.Element{}, used: list.New(), waiting: map[Key]struct{}{}}
}

// Forecast is how many output tokens a call with the bound most is expected to
// use, at most most. ok is false when most is all that can be said.
func (l *Learner) Forecast(key Key, most int64, now time.Time) (tokens int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	element := l.cells[key]
	if element == nil {
		l.due(key)
		return most, false
	}
	l.used.MoveToFront(element)
	c := element.Value.(*cell)
	if c.merged < now.Add(-ShareAge).UnixMicro() {
		l.due(key)
	}
	if c.slipped(l.config.Quantile) {
		return most, false
	}
	return c.rank(l.config, most, now)
}

// Observe takes the length of a settled call. cut says that it ended at its bound.
func (l *Learner) Observe(key Key, tokens int64, cut bool, now time.Time) {
	if tokens < 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cell(key)
	// Coverage is of what would have been forecast, whether or not it was used: a
	// key that fell back can recover.
	if forecast, ok := c.rank(l.config, math.MaxInt64, now); ok {
		c.covered <<= 1
		if tokens <= forecast {
			c.covered |= 1
		}
		c.tried = min(c.tried+1, window)
	}
	next := Length{tokens, cut, now.UnixMicro()}
	if len(c.lengths) < Samples {
		c.lengths = append(c.lengths, next)
	} else {
		c.lengths[c.next] = next
	}
	c.next = (c.next + 1) % Samples
	l.due(key)
}

// cell returns the cell of a key, the most recently used one now. l.mu is held.
func (l *Learner) cell(key Key) *cell {
	if element := l.cells[key]; element != nil {
		l.used.MoveToFront(element)
		return element.Value.(*cell)
	}
	c := &cell{key: key}
	l.cells[key] = l.used.PushFront(c)
	if l.used.Len() > l.config.Keys {
		oldest := l.used.Back()
		last := oldest.Value.(*cell).key
		delete(l.cells, last)
		delete(l.waiting, last)
		l.used.Remove(oldest)
	}
	return c
}

// slipped says that coverage is more than three standard deviations below q.
func (c *cell) slipped(q float64) bool {
	if c.tried < window {
		return false
	}
	hits := float64(bits.OnesCount64(c.covered))
	return hits < window*q-3*math.Sqrt(window*q*(1-q))
}

// rank is the conformal rank of the lengths, each weighed by its age.
func (c *cell) rank(config Config, most int64, now time.Time) (int64, bool) {
	type weighed struct {
		tokens int64
		weight float64
	}
	var seen [Samples]weighed
	n, total := 0, 0.0
	oldest := now.Add(-HalfLives * config.HalfLife).UnixMicro()
	for _, length := range c.lengths {
		if length.At < oldest {
			continue
		}
		age := max(now.UnixMicro()-length.At, 0)
		w := weighed{length.Tokens, math.Exp2(-float64(age) / float64(config.HalfLife.Microseconds()))}
		if length.Cut {
			w.tokens = most
		}
		seen[n], total = w, total+w.weight
		n++
	}
	if total < Enough {
		return most, false
	}
	slices.SortFunc(seen[:n], func(a, b weighed) int {
		switch {
		case a.tokens < b.tokens:
			return -1
		case a.tokens > b.tokens:
			return 1
		}
		return 0
	})
	// The next call counts as one more length, above all.
	want, sum := config.Quantile*(total+1), 0.0
	for _, w := range seen[:n] {
		// A little less than exact, so that equal weights give the rank itself.
		if sum += w.weight; sum >= want-1e-9 {
			return min(w.tokens, most), w.tokens < most
		}
	}
	return most, false
}

// Len is how many keys are kept.
func (l *Learner) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used.Len()
}
