package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// How a reserve script ends, as in lua/reserve.lua.
type reserveMode int64

const (
	commit reserveMode = 0
	dryRun reserveMode = 1
	probe  reserveMode = 2 // as dryRun, but a missing quota gets its ticket
)

// Reserve is one script call where no pool on a Cluster is involved.
func (s *Store) Reserve(ctx context.Context, r reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	if err := r.Validate(); err != nil {
		return reservation.ReserveAnswer{}, err
	}
	mode := commit
	if r.DryRun {
		mode = dryRun
	}
	if legs := s.legs(r.Holds); len(legs) > 0 {
		return s.reserveWithPools(ctx, &r, mode, legs)
	}
	answer, _, err := s.reserve(ctx, s.account(r.Account), &r, mode, wholeChoice(r.Output))
	return answer, err
}

// choice is what is settled of an Output, and of where the script runs, before it
// chooses.
type choice struct {
	leg    bool   // a pool's own key space on a Cluster
	most   int64  // tokens that may be granted
	taken  []bool // for each hold: a pool elsewhere took its forecast
	missed []bool // likewise: a shadow hold of a pool elsewhere was missed; nil for none
	atOnce bool   // it starts now or not at all
}

// wholeChoice leaves all of it to the account's script.
func wholeChoice(o *reservation.Output) choice {
	if o == nil {
		return choice{}
	}
	return choice{most: o.Asked}
}

// reserveCall is the keys and the argument of the script.
func (s *Store) reserveCall(p space, r *reservation.ReserveRequest, mode reserveMode, c choice) (keys []string, arg []byte) {
	plan, own := s.plan(p, r.Holds, 0, c.leg)
	keys = make([]string, 0, 5+len(own))
	keys = append(keys, p.hash(), p.dues(), p.index(), p.closings(r.ID), p.idempotency(r.Key))
	keys = append(keys, own...)

	a := make(args, 0, 256+len(plan)+len(r.Token))
	a.int(s.now())
	a.str(p.name)
	a.bytes(r.ID[:])
	a.int(r.ID.Minted().UnixMicro())
	a.int(r.Lease.Microseconds())
	a.int(r.Retention.Microseconds())
	a.bytes(r.Body[:])
	a.bytes(r.Token)
	a.int(int64(mode))
	a.int(newTickets())
	a.int(s.idle)
	a.bool(r.Settle != nil)
	if r.Settle != nil {
		a.bytes(r.Settle.Body[:])
		a.bytes(r.Settle.Outcome)
	} else {
		a.str("")
		a.str("")
	}
	a.bytes(plan)
	a.bytes(packOutput(r.Output, c.most, c.taken))
	a.bytes(packShadows(r, c.missed))
	a.parent(r.Parent)
	a.set(r.Spill, len(r.Holds))
	a.int(waitOf(r, c.atOnce))
	a.bytes(packKeeps(r.Account, r.Holds))
	a.line(r.Line, r.DryRun)
	refusals, bans := s.packRefusals(p, r.Holds)
	a.bytes(refusals)
	return append(keys, bans...), a
}

// reserve runs the script in one key space and returns the counters' states
// beside the answer.
func (s *Store) reserve(ctx context.Context, p space, r *reservation.ReserveRequest, mode reserveMode, c choice) (reservation.ReserveAnswer, []counterState, error) {
	keys, a := s.reserveCall(p, r, mode, c)
	out, err := s.run(ctx, scriptReserve, keys, a)
	if err != nil {
		return reservation.ReserveAnswer{}, nil, err
	}
	code, now := out.int(), out.int()
	answer := reservation.ReserveAnswer{Verdict: reservation.ReserveVerdict(code), Now: instant(now), Reclaimed: s.reclaimed(out.int())}
	var states []counterState
	switch answer.Verdict {
	case reservation.Granted:
		ends, start := out.intAndStart()
		answer.StartAt, answer.ExpiresAt = instant(max(now, start)), instant(ends)
		states = out.levels(r.Holds)
		if r.Decides() {
			answer.Decided = out.decided()
		}
		if r.CountsRefusals() {
			out.bans(states)
		}
		s.readShares(out, r.Holds, states, c.leg)
		answer.Levels = showAll(r.Holds, states, now)
		if r.Decides() {
			answer.Shadow = shadowRefusals(r, answer.Decided, states, answer.StartAt.UnixMicro(), now)
		}
	case reservation.Replayed:
		answer.Record = out.record()
	case reservation.KeyReused, reservation.Closed, reservation.Stale, reservation.ParentEnded, reservation.ParentFull:
	case reservation.Unseeded:
		for n := out.list(); n > 0; n -= 2 {
			answer.Tickets = append(answer.Tickets, reservation.Ticket{Hold: int(out.int()), Ticket: out.int()})
		}
	case reservation.Refused:
		answer.Place = int(out.int())
		lines := out.lines()
		states = out.levels(r.Holds)
		for _, l := range lines {
			if l.hold < len(states) {
				states[l.hold].ahead, states[l.hold].placeEnds = l.ahead, l.placeEnds
			}
		}
		if r.Parent != (reservation.ID{}) {
			for i := range states {
				states[i].room = quota.Amount(out.int())
				states[i].funded = states[i].room >= 0
			}
		}
		if r.CountsRefusals() {
			out.bans(states)
		}
		s.readShares(out, r.Holds, states, c.leg)
		answer.Levels = showAll(r.Holds, states, now)
		refusal, found := strictest(r, states, now, startUntil(r, states, waitOf(r, c.atOnce), now))
		if !found && out.err == nil {
			return reservation.ReserveAnswer{}, nil, errors.New("redis script reserve refused holds that fit")
		}
		answer.Refusal = refusal
	default:
		return reservation.ReserveAnswer{}, nil, unknownCode(scriptReserve, code)
	}
	if out.err != nil {
		return reservation.ReserveAnswer{}, nil, out.err
	}
	return answer, states, nil
}

func (s *Store) reclaimed(n int64) int {
	s.metrics.reclaimed.Add(float64(n))
	return int(n)
}

func unknownCode(what script, code int64) error {
	return fmt.Errorf("redis script %s answered code %d, which is not known", what, code)
}

// Levels is one script call, and one more for each pool on a Cluster.
func (s *Store) Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error) {
	if err := errors.Join(reservation.ValidateAccount(account), reservation.ValidateHolds(holds)); err != nil {
		return nil, time.Time{}, err
	}
	states, now, err := s.levels(ctx, s.account(account), account, holds, false)
	if err != nil {
		return nil, time.Time{}, err
	}
	for _, l := range s.legs(holds) {
		there, _, err := s.levels(ctx, s.pool(l.pool), account, l.holds, true)
		if err != nil {
			return nil, time.Time{}, err
		}
		l.spread(there, states, now)
	}
	return showAll(holds, states, now), instant(now), nil
}

// levels asks for the counters of holds in one key space; account is whose shares of
// fair ones it shows.
func (s *Store) levels(ctx context.Context, p space, account string, holds []reservation.Hold, leg bool) ([]counterState, int64, error) {
	plan, own := s.plan(p, holds, 0, leg)
	refusals, bans := s.packRefusals(p, holds)
	a := make(args, 0, 64+len(plan)+len(refusals))
	a.int(s.now())
	a.str(p.name)
	a.bytes(plan)
	a.bytes(refusals)
	if hasFair(holds) {
		a.bytes(packKeeps(account, holds))
	} else {
		a.str("")
	}
	keys := append([]string{p.hash(), p.dues(), p.index()}, own...)
	out, err := s.run(ctx, scriptLevels, append(keys, bans...), a)
	if err != nil {
		return nil, 0, err
	}
	now := out.int()
	states := out.levels(holds)
	if len(refusals) > 0 {
		out.bans(states)
	}
	s.readShares(out, holds, states, leg)
	return states, now, out.err
}

// Seed is one script call.
func (s *Store) Seed(ctx context.Context, r reservation.SeedRequest) (bool, error) {
	if err := r.Validate(); err != nil {
		return false, err
	}
	p := s.account(r.Account)
	where, ref := s.place(p, quota.KindQuota, r.Counter)
	keys := []string{p.hash(), p.dues(), p.index()}
	if where == inKey {
		keys = append(keys, ref)
	}
	a := make(args, 0, 128)
	a.int(s.now())
	a.str(p.name)
	a.str(ref)
	a.int(int64(where))
	a.str(r.Period.Key)
	a.int(r.Ticket)
	a.int(int64(r.Used))
	a.int(r.Version)
	a.int(s.idle)
	out, err := s.run(ctx, scriptSeed, keys, a)
	if err != nil {
		return false, err
	}
	stored := out.int() == 1
	out.int()
	s.reclaimed(out.int())
	return stored, out.err
}
