package memstore

import (
	"context"
	"slices"

	"github.com/budgetd/budgetd/reservation"
)

// Open implements reservation.Store. It looks at every open reservation of the
// account, with the engine locked: it is for operators.
func (s *Store) Open(ctx context.Context, account, cursor string, most int) (reservation.OpenPage, error) {
	place, err := reservation.ParseOpen(account, cursor, most)
	if err != nil {
		return reservation.OpenPage{}, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return reservation.OpenPage{}, err
	}
	defer s.mu.Unlock()
	page := reservation.OpenPage{Now: at(now)}
	a := s.accounts[account]
	if a == nil {
		return page, nil
	}
	// The page is the first most+1 in order, the greatest of them last.
	var first recordHeap
	for _, r := range a.open {
		if r.expires <= now || !place.Before(r.expires, r.id) {
			continue
		}
		if full := len(first) > most; full && !r.endsBefore(first[most]) {
			continue
		} else if full {
			first = first[:most]
		}
		i, _ := slices.BinarySearchFunc(first, r, func(other, r *record) int {
			if other.endsBefore(r) {
				return -1
			}
			return 1
		})
		first = slices.Insert(first, i, r)
	}
	if len(first) > most {
		first = first[:most]
		last := first[most-1]
		page.Cursor = reservation.OpenPlace{Ends: last.expires, ID: last.id}.Cursor()
	}
	for _, r := range first {
		page.Open = append(page.Open, reservation.OpenReservation{ID: r.id, ExpiresAt: at(r.expires), Token: slices.Clone(r.token)})
	}
	return page, nil
}

// endsBefore is the order of Open.
func (r *record) endsBefore(other *record) bool {
	return reservation.OpenPlace{Ends: r.expires, ID: r.id}.Before(other.expires, other.id)
}
