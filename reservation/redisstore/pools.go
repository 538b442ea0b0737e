package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// On a Cluster a pool lives in a slot of its own, so no script sees it together
// with an account. A reservation that holds from pools then has legs: one record
// in each pool's key space, with the reservation's id, and the account's record,
// which is the single commit point.
//
//   - Reserve takes the pools' legs first, then the account's. Where the account's
//     answer is anything but a grant, the legs are voided, which leaves a tombstone:
//     a leg's script that runs late finds the id known. After an error whose
//     outcome is unknown the legs are left to their leases.
//   - A leg's lease ends poolMargin after the account's, and it ends by charging: a
//     leg that nobody settles never makes room that is in use.
//   - Refund, expiry and Confirm settle the account's record first, then the legs
//     by the id. Renew renews the legs first.
//
// With an Output each leg grants at most what the legs before it did, and the
// account at most that. A leg that was asked before a smaller grant was found keeps
// the amount of its own until the reservation ends.
//
// A reservation with legs starts at once or not at all: it does not wait, whatever its
// MaxWait and its queues, since legs would have to agree on one start.
//
// So a pool may for a round trip hold what is refused elsewhere, and refuse
// others meanwhile; it never admits more than it has.
const poolMargin = time.Second

// chargeLegLease is how long a Charge's legs stay open before its account
// settles them; a broker that dies meanwhile leaves them charged.
const chargeLegLease = 2 * time.Second

// Ranks of a leg's closings: the higher stays. A ledger's rank n is 2n when a
// call brought it and 2n+1 when the ledger confirmed it.
const (
	legExpired = 1 // its own lease ended
	legVoid    = 9 // the account did not grant
)

func legRank(rank uint8, confirmed bool) int64 {
	if confirmed {
		return 2*int64(rank) + 1
	}
	return 2 * int64(rank)
}

// leg is a reservation's share of one pool.
type leg struct {
	pool  string
	holds []reservation.Hold
	index []int // of the holds in the reservation's plan
}

// legs groups the holds from pools; none off a Cluster.
func (s *Store) legs(holds []reservation.Hold) []leg {
	if s.cluster == nil {
		return nil
	}
	var legs []leg
	for i := range holds {
		if holds[i].Pool == "" {
			continue
		}
		at := slices.IndexFunc(legs, func(l leg) bool { return l.pool == holds[i].Pool })
		if at < 0 {
			at = len(legs)
			legs = append(legs, leg{pool: holds[i].Pool})
		}
		legs[at].holds = append(legs[at].holds, holds[i])
		legs[at].index = append(legs[at].index, i)
	}
	return legs
}

// spread puts the leg's states where its holds are in the plan. Slots show the
// end of the holder's own lease, not the leg's: it is when the slot should be
// back. Where that has passed, the leg's own end is the instant to wait for.
func (l *leg) spread(states, plan []counterState, now int64) {
	margin := poolMargin.Microseconds()
	for i, at := range l.index {
		plan[at] = states[i]
		if l.holds[i].Kind == quota.KindSlots && states[i].earliest-margin > now {
			plan[at].earliest -= margin
		}
	}
}

// pick returns the leg's amounts out of the plan's.
func (l *leg) pick(plan []quota.Amount) []quota.Amount {
	own := make([]quota.Amount, len(l.index))
	for i, at := range l.index {
		if at < len(plan) {
			own[i] = plan[at]
		}
	}
	return own
}

func (s *Store) reserveWithPools(ctx context.Context, r *reservation.ReserveRequest, mode reserveMode, legs []leg) (reservation.ReserveAnswer, error) {
	var refusedLeg bool
	place := 0 // in line for a slot of a pool
	taken := 0 // legs that hold now
	found := make([][]counterState, len(legs))
	chosen := wholeChoice(r.Output)
	chosen.taken, chosen.missed, chosen.atOnce = make([]bool, len(r.Holds)), make([]bool, len(r.Holds)), true
	for i := range legs {
		legMode := mode
		if refusedLeg {
			legMode = dryRun // only to tell the strictest refusal
		}
		answer, states, err := s.reserveLeg(ctx, r, &legs[i], legMode, chosen.most)
		if err != nil {
			if taken > 0 {
				s.voidLegs(ctx, r, legs[:taken])
			}
			return reservation.ReserveAnswer{}, err
		}
		found[i] = states
		switch answer.Verdict {
		case reservation.Granted:
			if legMode == commit {
				taken = i + 1
			}
			for j, missed := range answer.Decided.Missed {
				chosen.missed[legs[i].index[j]] = missed
			}
			if r.Output != nil {
				chosen.most = answer.Decided.Tokens
				for j, forecast := range answer.Decided.Forecast {
					chosen.taken[legs[i].index[j]] = forecast
				}
			}
		case reservation.Refused:
			refusedLeg, place = true, max(place, answer.Place)
		default: // Closed, Stale
			s.voidLegs(ctx, r, legs[:taken])
			return answer, nil
		}
	}

	accountMode := mode
	if refusedLeg {
		s.voidLegs(ctx, r, legs[:taken])
		taken = 0
		if mode == commit {
			accountMode = probe
		}
	}
	answer, states, err := s.reserve(ctx, s.account(r.Account), r, accountMode, chosen)
	if err != nil {
		// Unknown whether the account holds: the legs are left to their leases.
		return reservation.ReserveAnswer{}, err
	}
	if answer.Verdict != reservation.Granted {
		s.voidLegs(ctx, r, legs[:taken])
	}
	if answer.Verdict != reservation.Granted && answer.Verdict != reservation.Refused {
		return answer, nil
	}
	if answer.Verdict == reservation.Refused && !refusedLeg && mode == commit {
		// What the voided legs had taken is back.
		for i := range legs {
			there, _, err := s.levels(ctx, s.pool(legs[i].pool), r.Account, legs[i].holds, true)
			if err == nil {
				found[i] = there
			}
		}
	}
	now := answer.Now.UnixMicro()
	for i := range legs {
		legs[i].spread(found[i], states, now)
	}
	answer.Levels = showAll(r.Holds, states, now)
	answer.Shadow = nil
	if answer.Verdict == reservation.Granted {
		answer.Shadow = shadowRefusals(r, answer.Decided, states, now, now)
	}
	switch {
	case refusedLeg || answer.Verdict == reservation.Refused:
		answer.Verdict, answer.ExpiresAt, answer.Shadow = reservation.Refused, time.Time{}, nil
		refusal, any := strictest(r, states, now, now)
		if !any {
			// The pool was refused for what was given back meanwhile.
			return reservation.ReserveAnswer{}, unavailable(errors.New("a pool changed while it was asked"))
		}
		answer.Refusal = refusal
		answer.Place = max(answer.Place, place)
		if place > 0 && !onlySlots(r, states, now) {
			// Something else refuses, which a look at one pool did not show.
			answer.Place = 0
			if err := s.Leave(ctx, reservation.LeaveRequest{Account: r.Account, Holds: r.Holds, Waiter: r.Line.Waiter}); err != nil {
				return reservation.ReserveAnswer{}, err
			}
		}
	case r.Settle != nil && mode == commit:
		actual := make([]quota.Amount, len(r.Holds))
		for i, h := range r.Holds {
			if h.Kind != quota.KindSlots && (answer.Decided.Missed == nil || !answer.Decided.Missed[i]) {
				actual[i] = h.Amount
			}
		}
		s.closeLegs(ctx, legs, &reservation.ConfirmRequest{
			ID: r.ID, Lease: chargeLegLease, Retention: r.Retention, Body: r.Settle.Body, Actual: actual, ClosedAt: answer.Now,
		}, legRank(2, false), false)
	}
	return answer, nil
}

// reserveLeg runs a pool's leg. Its record has neither key nor token.
func (s *Store) reserveLeg(ctx context.Context, r *reservation.ReserveRequest, l *leg, mode reserveMode, most int64) (reservation.ReserveAnswer, []counterState, error) {
	ask := &reservation.ReserveRequest{Account: r.Account, ID: r.ID, Holds: l.holds, Lease: r.Lease + poolMargin, Retention: r.Retention, Body: r.Body, Line: r.Line, DryRun: r.DryRun}
	if r.Settle != nil {
		ask.Lease = chargeLegLease + poolMargin
		ask.Holds = slices.Clone(l.holds)
		for i := range ask.Holds {
			if ask.Holds[i].Kind == quota.KindSlots {
				ask.Holds[i].Amount = 0 // a Charge takes no slot
			}
		}
	}
	if r.Output != nil {
		own := *r.Output
		own.Slopes = make([]reservation.Slope, len(l.index))
		for i, at := range l.index {
			own.Slopes[i] = r.Output.Slopes[at]
		}
		ask.Output = &own
	}
	return s.reserve(ctx, s.pool(l.pool), ask, mode, choice{leg: true, most: most, atOnce: true})
}

// voidLegs undoes legs of a reservation that was not granted. One that can't be
// reached ends by its lease.
func (s *Store) voidLegs(ctx context.Context, r *reservation.ReserveRequest, legs []leg) {
	if len(legs) == 0 {
		return
	}
	lease := r.Lease
	if r.Settle != nil {
		lease = chargeLegLease
	}
	s.closeLegs(ctx, legs, &reservation.ConfirmRequest{
		ID: r.ID, Lease: lease, Retention: r.Retention, Actual: make([]quota.Amount, len(r.Holds)), ClosedAt: r.ID.Minted(),
	}, legVoid, true)
}

// closeLegs gives legs a closing: absent ones are created closed. A leg that
// can't be reached is left to its lease, which charges it: the run counts the
// error.
func (s *Store) closeLegs(ctx context.Context, legs []leg, closing *reservation.ConfirmRequest, rank int64, last bool) {
	for i := range legs {
		l := &legs[i]
		own := *closing
		own.Holds, own.Actual, own.Lease = l.holds, l.pick(closing.Actual), closing.Lease+poolMargin
		own.Usage, own.Outcome, own.Token = nil, nil, nil
		if _, _, err := s.confirm(ctx, s.pool(l.pool), &own, rank, last, true); err != nil {
			s.metrics.legsLeft.Inc()
		}
	}
}

// settlePools settles the legs of a reservation after its account's Refund, and
// puts the pools' states in their places.
func (s *Store) settlePools(ctx context.Context, holds []reservation.Hold, r *reservation.RefundRequest, states []counterState) {
	legs := s.legs(holds)
	if len(legs) == 0 {
		return
	}
	s.closeLegs(ctx, legs, &reservation.ConfirmRequest{
		ID: r.ID, Lease: r.Lease, Retention: r.Retention, Body: r.Body, Actual: r.Actual, ClosedAt: r.ID.Minted(),
	}, legRank(2, false), false)
	for i := range legs {
		if there, now, err := s.levels(ctx, s.pool(legs[i].pool), r.Account, legs[i].holds, true); err == nil {
			legs[i].spread(there, states, now)
		}
	}
}

// confirmPools brings the legs of a confirmed reservation to the ledger's
// winner.
func (s *Store) confirmPools(ctx context.Context, holds []reservation.Hold, r *reservation.ConfirmRequest) {
	rank := legRank(uint8(r.Rank), true)
	s.closeLegs(ctx, s.legs(holds), r, rank, rank == legRank(2, true))
}

// renewPools renews the legs. ok is false when one has ended already, which a
// clock that runs ahead on the pool's node may cause; a leg that its node lost
// does not count.
func (s *Store) renewPools(ctx context.Context, holds []reservation.Hold, id reservation.ID, lease time.Duration) (ok bool, err error) {
	for _, l := range s.legs(holds) {
		answer, _, _, err := s.renew(ctx, s.pool(l.pool), &reservation.RenewRequest{ID: id, Lease: lease + poolMargin}, false)
		if err != nil {
			return false, err
		}
		if answer.State != reservation.StateHeld && answer.State != reservation.StateUnknown {
			return false, nil
		}
	}
	return true, nil
}

// visitPool ends the legs of a pool whose leases have ended: charged, and
// remembered as closings.
func (s *Store) visitPool(ctx context.Context, p space, most int, answer *reservation.SweepAnswer) error {
	var legs reservation.SweepAnswer
	if err := s.visit(ctx, p, min(most, sweepLeases), &legs); err != nil {
		return err
	}
	answer.More = answer.More || legs.More
	for _, pending := range legs.Pending {
		r := pending.Record
		_, _, err := s.confirm(ctx, p, &reservation.ConfirmRequest{
			ID: pending.ID, Body: r.Body, Actual: r.Actual, ClosedAt: r.ClosedAt,
		}, legExpired, false, true)
		if err != nil {
			return err // due again after OutboxRetry
		}
	}
	return nil
}
