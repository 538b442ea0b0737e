package forecast

import (
	"context"
	"time"
)

// Cell is what was learned of one kind of calls.
type Cell struct {
	Key
	Lengths []Length // as Union has them
}

// Store keeps what brokers learned for all of them. Implementations are safe for
// concurrent use.
type Store interface {
	// Merge adds the lengths of each cell, at most MaxShare and each key once, to
	// those that are kept of its key, and returns all of the key's, in order of the
	// cells: the Union. A cell without lengths only asks.
	Merge(ctx context.Context, cells []Cell, now time.Time) ([]Cell, error)
}

// Bounds of sharing.
const (
	// MaxShare is how many keys one Share merges.
	MaxShare = 500
	// ShareAge is after what time a key in use is merged again, so that what other
	// brokers learned is known here.
	ShareAge = 10 * time.Second
	// maxAsked bounds the keys that wait to be merged and of which nothing is known
	// here.
	maxAsked = 10_000
)

// due notes that a key is to be merged. l.mu is held.
func (l *Learner) due(key Key) {
	if !l.config.Shared {
		return
	}
	if _, waits := l.waiting[key]; !waits && (l.cells[key] != nil || len(l.waiting) < maxAsked) {
		l.waiting[key] = struct{}{}
	}
}

// Share merges with the store what was learned here since the last Share, and
// asks it of keys in use that were not merged for ShareAge: at most MaxShare of
// them. It reports whether more wait. What fails waits for the next Share. One
// Share at a time.
func (l *Learner) Share(ctx context.Context, store Store, now time.Time) (more bool, err error) {
	cells, more := l.take()
	if len(cells) == 0 {
		return false, nil
	}
	merged, err := store.Merge(ctx, cells, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		for i := range cells {
			l.due(cells[i].Key)
		}
		return false, err
	}
	for i := range merged {
		l.learnt(&merged[i], now)
	}
	return more, nil
}

// take returns keys that wait, with what is known of them.
func (l *Learner) take() (cells []Cell, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.waiting {
		if len(cells) == MaxShare {
			return cells, true
		}
		delete(l.waiting, key)
		next := Cell{Key: key}
		if element := l.cells[key]; element != nil {
			next.Lengths = Union(element.Value.(*cell).lengths, nil)
		}
		cells = append(cells, next)
	}
	return cells, false
}

// learnt takes over what all brokers learned of a key. l.mu is held.
func (l *Learner) learnt(merged *Cell, now time.Time) {
	c := l.cell(merged.Key)
	c.merged = now.UnixMicro()
	// What was observed meanwhile is in the cell alone.
	c.lengths = Union(c.lengths, merged.Lengths)
	c.next = len(c.lengths) % Samples
}
