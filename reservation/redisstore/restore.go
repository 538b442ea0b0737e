package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Restore is one script call, and one more for each pool on a Cluster: first
// the account, whose record says whether and until when the pools' legs hold.
// A leg that its own node lost alone comes back the same way.
func (s *Store) Restore(ctx context.Context, r reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	answer, err := s.restore(ctx, s.account(r.Account), &r, reservation.MaxRestoredLease, false)
	if err != nil {
		return 0, err
	}
	if answer.state == reservation.StateHeld {
		if err := s.restoreLegs(ctx, &r, answer.ends); err != nil {
			return 0, err // the account's part stands; the same call again brings the rest
		}
	}
	return answer.verdict, nil
}

// restored is what the script answers: the state of the reservation and its
// lease's end, in microseconds, as they are now.
type restored struct {
	verdict reservation.RestoreVerdict
	state   reservation.State
	ends    int64
}

// restore runs the script in one key space.
func (s *Store) restore(ctx context.Context, p space, r *reservation.RestoreRequest, furthest time.Duration, leg bool) (restored, error) {
	plan, own := s.plan(p, r.Holds, r.ID.Minted().UnixMicro(), leg)
	keys := make([]string, 0, 5+len(own))
	keys = append(keys, p.hash(), p.dues(), p.index(), p.closings(r.ID), p.idempotency(r.Key))
	keys = append(keys, own...)
	ends := r.ExpiresAt.UnixMicro()
	a := make(args, 0, 256+len(plan)+len(r.Token))
	a.int(s.now())
	a.str(p.name)
	a.bytes(r.ID[:])
	a.int(ends)
	a.int(r.Retention.Microseconds())
	a.bytes(r.Body[:])
	a.bytes(r.Token)
	a.int(s.idle)
	a.int(furthest.Microseconds())
	a.bytes(plan)
	a.parent(r.Kin.Parent)
	a.set(r.Kin.Taken, len(r.Holds))
	a.int(max(0, r.StartAt.UnixMicro()))

	out, err := s.run(ctx, scriptRestore, keys, a)
	if err != nil {
		return restored{}, err
	}
	code, now := out.int(), out.int()
	s.reclaimed(out.int())
	answer := restored{verdict: reservation.RestoreVerdict(code)}
	switch {
	case answer.verdict == reservation.Restored:
		answer.state, answer.ends = reservation.StateHeld, ends
	case answer.verdict == reservation.RestoreKnown:
		answer.state, answer.ends = reservation.State(out.int()), out.int()
	case answer.verdict == reservation.RestoreEnded:
	case code == 4:
		return restored{}, reservation.LeaseTooLong(r.ExpiresAt, instant(now))
	case code == 5:
		return restored{}, fmt.Errorf("holds[%d]: %w: the counter holds more than %d together with it", out.int(), quota.ErrOverflow, quota.MaxAmount)
	default:
		return restored{}, unknownCode(scriptRestore, code)
	}
	return answer, out.err
}

// restoreLegs brings the pools' legs of a held reservation back where they are
// missing.
func (s *Store) restoreLegs(ctx context.Context, r *reservation.RestoreRequest, ends int64) error {
	for _, l := range s.legs(r.Holds) {
		own := reservation.RestoreRequest{
			ID: r.ID, Holds: l.holds, ExpiresAt: instant(ends).Add(poolMargin), Retention: r.Retention, Body: r.Body,
		}
		if _, err := s.restore(ctx, s.pool(l.pool), &own, reservation.MaxRestoredLease+poolMargin, true); err != nil {
			return err
		}
	}
	return nil
}
