package redisstore

import (
	"context"

	"github.com/budgetd/budgetd/reservation"
)

// Open is one script call, whose work is bounded by most and the logarithm of
// the account's reservations.
func (s *Store) Open(ctx context.Context, account, cursor string, most int) (reservation.OpenPage, error) {
	place, err := reservation.ParseOpen(account, cursor, most)
	if err != nil {
		return reservation.OpenPage{}, err
	}
	p := s.account(account)
	a := make(args, 0, 128)
	a.int(s.now())
	a.str(p.name)
	a.int(place.Ends)
	a.bytes(place.ID[:])
	a.int(int64(most))
	out, err := s.run(ctx, scriptOpen, []string{p.hash(), p.dues(), p.index()}, a)
	if err != nil {
		return reservation.OpenPage{}, err
	}
	page := reservation.OpenPage{Now: instant(out.int())}
	next := reservation.OpenPlace{Ends: out.int()}
	copy(next.ID[:], out.bytes())
	if next.Ends != 0 {
		page.Cursor = next.Cursor()
	}
	for n := out.list(); n > 0 && out.err == nil; n -= 3 {
		var open reservation.OpenReservation
		copy(open.ID[:], out.bytes())
		open.ExpiresAt, open.Token = instant(out.int()), clone(out.bytes())
		page.Open = append(page.Open, open)
	}
	return page, out.err
}
