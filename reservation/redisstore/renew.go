package redisstore

import (
	"context"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Renew is one script call, and two more and one for each pool where pools on a
// Cluster are held; with Peek it is one more for each pool to show.
func (s *Store) Renew(ctx context.Context, r reservation.RenewRequest) (reservation.RenewAnswer, error) {
	if err := r.Validate(); err != nil {
		return reservation.RenewAnswer{}, err
	}
	p := s.account(r.Account)
	answer, states, plan, err := s.renew(ctx, p, &r, s.cluster != nil)
	if err != nil {
		return answer, err
	}
	if len(plan) > 0 {
		holds, err := planned(plan)
		if err != nil {
			return reservation.RenewAnswer{}, err
		}
		if ok, err := s.renewPools(ctx, holds, r.ID, r.Lease); err != nil || !ok {
			answer.State = reservation.StateExpired
			return answer, err
		}
		reclaimed := answer.Reclaimed
		answer, states, _, err = s.renew(ctx, p, &r, false)
		if answer.Reclaimed += reclaimed; err != nil {
			return answer, err
		}
	}
	if states == nil {
		return answer, nil
	}
	now := answer.Now.UnixMicro()
	for _, l := range s.legs(r.Peek) {
		there, _, err := s.levels(ctx, s.pool(l.pool), r.Account, l.holds, true)
		if err != nil {
			return reservation.RenewAnswer{}, err // renewed; the same call again shows it
		}
		l.spread(there, states, now)
	}
	for i := range states {
		answer.Standing[i].Level = states[i].show(&r.Peek[i], now)
	}
	return answer, nil
}

// renew runs the script in one key space. With poolsFirst a reservation that
// holds from pools elsewhere is not renewed; its plan is returned. The states are
// those of the counters to show, whose levels the answer lacks.
func (s *Store) renew(ctx context.Context, p space, r *reservation.RenewRequest, poolsFirst bool) (reservation.RenewAnswer, []counterState, []byte, error) {
	a := make(args, 0, 128)
	a.int(s.now())
	a.str(p.name)
	a.bytes(r.ID[:])
	a.int(r.Lease.Microseconds())
	a.int(s.idle)
	a.bool(poolsFirst)
	if used := (args)(nil); len(r.Used) > 0 {
		for _, amount := range r.Used {
			used.int(int64(amount))
		}
		a.bytes(used)
	} else {
		a.str("")
	}
	keys := []string{p.hash(), p.dues(), p.index(), p.closings(r.ID)}
	keys = s.appendPlan(&a, keys, p, r.ID, r.Peek, false)
	out, err := s.run(ctx, scriptRenew, keys, a)
	if err != nil {
		return reservation.RenewAnswer{}, nil, nil, err
	}
	code := out.int()
	if code == 4 {
		if err := r.Matches(int(out.int())); err != nil {
			return reservation.RenewAnswer{}, nil, nil, err
		}
		return reservation.RenewAnswer{}, nil, nil, unknownCode(scriptRenew, code)
	}
	answer := reservation.RenewAnswer{State: reservation.State(code), Now: instant(out.int()), Reclaimed: s.reclaimed(out.int())}
	if ends := out.int(); ends != 0 {
		answer.ExpiresAt = instant(ends)
	}
	plan := out.bytes()
	if answer.State != reservation.StateHeld || len(r.Peek) == 0 || len(plan) > 0 {
		return answer, nil, plan, out.err
	}
	answer.Envelope, answer.Company = out.int() == 1, out.int() == 1
	answer.Standing = make([]reservation.Standing, len(r.Peek))
	for i := range answer.Standing {
		st := &answer.Standing[i]
		st.Granted, st.Left, st.Used, st.Room = quota.Amount(out.int()), quota.Amount(out.int()), quota.Amount(out.int()), quota.Amount(out.int())
		if st.Funded = st.Room >= 0; !st.Funded {
			st.Room = 0
		}
	}
	states := out.levels(r.Peek)
	return answer, states, nil, out.err
}
