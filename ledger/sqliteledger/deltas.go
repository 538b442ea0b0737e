package sqliteledger

import (
	"context"
	"sync"

	"github.com/budgetd/budgetd/ledger/internal/posting"
)

// maxLabelSets bounds how many sets of labels are remembered: 16 bytes each,
// and the map around them.
const maxLabelSets = 1 << 17

// labelSets knows sets of labels that the file has. It may know too few: they
// are written again, which changes nothing.
type labelSets struct {
	mu    sync.Mutex
	known map[posting.LabelSetID]struct{}
}

func (s *labelSets) has(id posting.LabelSetID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.known[id]
	return known
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

// writeDeltas adds what a transaction adds to the reports. Call learn with
// deltas.LabelSets once it has been committed.
func (s *labelSets) writeDeltas(ctx context.Context, use statements, deltas *posting.Deltas) (err error) {
	some := false
	deltas.All(func(delta *posting.Delta) {
		some = true
		hour := delta.Hour.Unix() / 3600
		sums := []any{hour, delta.Account, delta.Labels[:], string(delta.Meter), int64(delta.Used), int64(delta.Held), delta.Calls}
		if err == nil {
			_, err = use.addToHour.ExecContext(ctx, sums...)
		}
		if err == nil {
			sums[0] = hour / 24
			_, err = use.addToDay.ExecContext(ctx, sums...)
		}
	})
	if err != nil || !some {
		return err
	}
	for _, set := range deltas.LabelSets() {
		if s.has(set.ID) {
			continue
		}
		for name, value := range set.Labels {
			if _, err := use.insertLabel.ExecContext(ctx, set.ID[:], name, value); err != nil {
				return err
			}
		}
	}
	return nil
}
