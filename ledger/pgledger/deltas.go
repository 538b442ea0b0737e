package pgledger

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/budgetd/budgetd/ledger/internal/posting"
)

// maxLabelSets bounds how many sets of labels a node remembers: 16 bytes each,
// and the map around them.
const maxLabelSets = 1 << 17

// forgetEvery is how often a node doubts what sets of labels the database has.
const forgetEvery = time.Minute

// labelSets knows sets of labels that the database has. It may know too few:
// they are written again, which changes nothing.
type labelSets struct {
	mu        sync.Mutex
	known     map[posting.LabelSetID]struct{}
	forgotten time.Time // when all were
}

// unknown returns those that may be missing, in the order of their ids.
func (s *labelSets) unknown(sets []posting.LabelSet) []posting.LabelSet {
	var missing []posting.LabelSet
	s.mu.Lock()
	for _, set := range sets {
		if _, known := s.known[set.ID]; !known {
			missing = append(missing, set)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(missing, func(a, b posting.LabelSet) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return missing
}

// learn notes sets whose transaction was committed.
func (s *labelSets) learn(sets []posting.LabelSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known)+len(sets) > maxLabelSets {
		s.known = make(map[posting.LabelSetID]struct{}, len(sets))
	}
	for _, set := range sets {
		s.known[set.ID] = struct{}{}
	}
}

// forgetAt makes the node write every set once more, at most once in
// forgetEvery, so that a database that was restored from an older backup behind
// our back gets them again.
func (s *labelSets) forgetAt(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.forgotten).Abs() >= forgetEvery {
		s.known, s.forgotten = nil, now
	}
}

// queueDeltas queues what a transaction adds to the reports, and returns how
// many statements that takes; none of them returns rows. They belong after
// those that lock closings and before those that lock usage rows. Call learn
// with deltas.LabelSets once the transaction has been committed.
func (s *labelSets) queueDeltas(batch *pgx.Batch, deltas *posting.Deltas) int {
	var columns deltaColumns
	deltas.All(columns.add)
	if len(columns.hour) == 0 {
		return 0
	}
	statements := 1
	if missing := s.unknown(deltas.LabelSets()); len(missing) > 0 {
		var (
			id   pgtype.FlatArray[pgtype.UUID]
			text pgtype.FlatArray[string]
		)
		for _, set := range missing {
			id, text = append(id, uuid(set.ID)), append(text, set.Text)
		}
		batch.Queue(insertLabelSets, id, text)
		statements++
	}
	batch.Queue(insertDeltas, columns.arguments()...)
	return statements
}

// deltaColumns are the arguments of insertDeltas.
type deltaColumns struct {
	hour              pgtype.FlatArray[time.Time]
	used, held, calls pgtype.FlatArray[int64]
	labels            pgtype.FlatArray[pgtype.UUID]
	account, meter    pgtype.FlatArray[string]
}

func (c *deltaColumns) add(delta *posting.Delta) {
	c.hour = append(c.hour, delta.Hour)
	c.used = append(c.used, int64(delta.Used))
	c.held = append(c.held, int64(delta.Held))
	c.calls = append(c.calls, delta.Calls)
	c.labels = append(c.labels, uuid(delta.Labels))
	c.account = append(c.account, delta.Account)
	c.meter = append(c.meter, string(delta.Meter))
}

func (c *deltaColumns) arguments() []any {
	return []any{c.hour, c.used, c.held, c.calls, c.labels, c.account, c.meter}
}
