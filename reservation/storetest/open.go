package storetest

import (
	"context"
	"slices"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Open sorts everything, and shows what comes after the cursor.
func (m *Model) Open(ctx context.Context, account, cursor string, most int) (reservation.OpenPage, error) {
	place, err := reservation.ParseOpen(account, cursor, most)
	if err != nil {
		return reservation.OpenPage{}, err
	}
	page := reservation.OpenPage{Now: instant(m.now())}
	var open []*modelRecord
	for _, r := range m.records {
		if r.account == account && r.state == reservation.StateHeld && r.expires > m.now() && place.Before(r.expires, r.id) {
			open = append(open, r)
		}
	}
	slices.SortFunc(open, func(a, b *modelRecord) int {
		if (reservation.OpenPlace{Ends: a.expires, ID: a.id}).Before(b.expires, b.id) {
			return -1
		}
		return 1
	})
	if len(open) > most {
		open = open[:most]
		page.Cursor = reservation.OpenPlace{Ends: open[most-1].expires, ID: open[most-1].id}.Cursor()
	}
	for _, r := range open {
		page.Open = append(page.Open, reservation.OpenReservation{ID: r.id, ExpiresAt: instant(r.expires), Token: r.token})
	}
	return page, nil
}

// Push takes over values of counters that are seeded, unless they are older.
func (m *Model) Push(ctx context.Context, account string, usage []reservation.CounterUsage) error {
	m.reclaim(account, reservation.ReclaimBatch)
	m.dropPastPeriods()
	for _, u := range usage {
		c := m.quotaOf(nameOf(account, u.Counter), u.Period.Key)
		if c != nil && c.incarnation == m.incarnation && u.Version >= c.version {
			c.used, c.version = u.Used, u.Version
		}
	}
	return nil
}

// GiveBack fills buckets that are not full, each by its own parameters.
func (m *Model) GiveBack(ctx context.Context, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error) {
	m.reclaim(account, reservation.ReclaimBatch)
	answer := reservation.GiveBackAnswer{Now: instant(m.now())}
	for _, h := range holds {
		name, given := nameOf(account, h.Counter), quota.Amount(0)
		at := m.at(name, quota.KindBucket)
		if b := m.bucket(name); b != nil && !b.fullBy(at) {
			p := b.params
			booked := m.rebook(name, h.Kind, 0, 0)
			given = min(h.Amount, p.Capacity-quota.Amount(booked)-floor(m.levelAt(name, p, at)))
			if given = max(given, 0); given > 0 {
				m.passStart(name, h.Kind)
				m.giveBeside(name, p, given, booked)
			}
		}
		answer.Given = append(answer.Given, given)
	}
	answer.Levels = m.levels(account, unshared(holds))
	return answer, nil
}
