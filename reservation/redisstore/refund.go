package redisstore

import (
	"context"
	"fmt"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/reservation"
)

// Refund is one script call, and one more for each pool on a Cluster.
func (s *Store) Refund(ctx context.Context, r reservation.RefundRequest) (reservation.RefundAnswer, error) {
	if err := r.Validate(); err != nil {
		return reservation.RefundAnswer{}, err
	}
	keys, a := s.refundCall(s.account(r.Account), &r)
	out, err := s.run(ctx, scriptRefund, keys, a)
	if err != nil {
		return reservation.RefundAnswer{}, err
	}
	code, now := out.int(), out.int()
	answer := reservation.RefundAnswer{Verdict: reservation.RefundVerdict(code), Now: instant(now), Reclaimed: s.reclaimed(out.int())}
	switch {
	case answer.Verdict == reservation.RefundSettled:
		answer.Record = out.record()
		holds, err := planned(out.bytes())
		if err != nil {
			return reservation.RefundAnswer{}, err
		}
		states := out.levels(holds)
		if out.err != nil {
			return reservation.RefundAnswer{}, out.err
		}
		s.settlePools(ctx, holds, &r, states)
		answer.Levels = showAll(holds, states, now)
	case answer.Verdict == reservation.RefundSame, answer.Verdict == reservation.RefundConflict:
		answer.Record = out.record()
	case answer.Verdict == reservation.RefundUnknown, answer.Verdict == reservation.RefundForgotten:
	case answer.Verdict == reservation.RefundEnded:
		if out.int() != 0 {
			answer.Record = out.record()
		}
	case code == 7:
		return reservation.RefundAnswer{}, countMismatch(len(r.Actual), out.int())
	default:
		return reservation.RefundAnswer{}, unknownCode(scriptRefund, code)
	}
	return answer, out.err
}

// refundCall is the keys and the argument of the script.
func (s *Store) refundCall(p space, r *reservation.RefundRequest) (keys []string, arg []byte) {
	a := make(args, 0, 256+len(r.Outcome)+len(r.Token))
	a.int(s.now())
	a.str(p.name)
	a.bytes(r.ID[:])
	a.int(r.ID.Minted().UnixMicro())
	a.int(r.Lease.Microseconds())
	a.int(r.Retention.Microseconds())
	a.bytes(r.Body[:])
	a.bytes(r.Outcome)
	a.bytes(r.Token)
	a.bytes(amounts(r.Actual))
	a.int(int64(len(r.Actual)))
	keys = []string{p.hash(), p.dues(), p.index(), p.closings(r.ID)}
	keys = s.appendPlan(&a, keys, p, r.ID, r.Holds, false)
	a.int(s.idle)
	a.bool(r.OnlyHeld)
	a.parent(r.Kin.Parent)
	a.set(r.Kin.Taken, len(r.Holds))
	return keys, a
}

// appendPlan adds holds to the argument, or "" if there are none, and the keys
// that their counters have of their own.
func (s *Store) appendPlan(a *args, keys []string, p space, id reservation.ID, holds []reservation.Hold, leg bool) []string {
	if len(holds) == 0 {
		a.str("")
		return keys
	}
	plan, own := s.plan(p, holds, id.Minted().UnixMicro(), leg)
	a.bytes(plan)
	return append(keys, own...)
}

func countMismatch(given int, want int64) error {
	return fmt.Errorf("actual: %d amounts are given, the reservation has %d holds", given, want)
}

// Confirm is one script call, and one more for each pool on a Cluster.
func (s *Store) Confirm(ctx context.Context, r reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	verdict, plan, err := s.confirm(ctx, s.account(r.Account), &r, int64(r.Rank), r.Rank == ledger.RankRefunded, false)
	if err != nil || verdict != reservation.ConfirmAdopted || s.cluster == nil {
		return verdict, err
	}
	holds, err := planned(plan)
	if err != nil {
		return 0, err
	}
	s.confirmPools(ctx, holds, &r)
	return verdict, nil
}

// confirm runs the script in one key space and, when the record adopted the
// closing, returns its plan. last says that no rank is above.
func (s *Store) confirm(ctx context.Context, p space, r *reservation.ConfirmRequest, rank int64, last, leg bool) (reservation.ConfirmVerdict, []byte, error) {
	a := make(args, 0, 256+len(r.Outcome)+len(r.Token))
	a.int(s.now())
	a.str(p.name)
	a.bytes(r.ID[:])
	a.int(r.ID.Minted().UnixMicro())
	a.int(r.Lease.Microseconds())
	a.int(r.Retention.Microseconds())
	a.int(rank)
	a.bool(last)
	a.bytes(r.Body[:])
	a.bytes(r.Outcome)
	a.bytes(amounts(r.Actual))
	a.int(int64(len(r.Actual)))
	a.bool(r.Late)
	a.int(r.ClosedAt.UnixMicro())
	a.bytes(r.Token)
	keys := []string{p.hash(), p.dues(), p.index(), p.closings(r.ID)}
	keys = s.appendPlan(&a, keys, p, r.ID, r.Holds, leg)
	usage, keys := s.packUsage(p, r.Usage, keys)
	a.bytes(usage)
	a.int(s.idle)
	a.parent(r.Kin.Parent)
	a.set(r.Kin.Taken, len(r.Holds))

	out, err := s.run(ctx, scriptConfirm, keys, a)
	if err != nil {
		return 0, nil, err
	}
	code := out.int()
	out.int()
	s.reclaimed(out.int())
	verdict := reservation.ConfirmVerdict(code)
	switch {
	case verdict == reservation.ConfirmAdopted:
		plan := out.bytes()
		return verdict, plan, out.err
	case verdict == reservation.ConfirmStopped, verdict == reservation.ConfirmUnknown, verdict == reservation.ConfirmOld:
		return verdict, nil, out.err
	case code == 5:
		return 0, nil, countMismatch(len(r.Actual), out.int())
	default:
		return 0, nil, unknownCode(scriptConfirm, code)
	}
}

// Lookup is one script call.
func (s *Store) Lookup(ctx context.Context, account string, id reservation.ID) (reservation.Record, error) {
	if err := reservation.ValidateAccount(account); err != nil {
		return reservation.Record{}, err
	}
	p := s.account(account)
	a := make(args, 0, 64)
	a.int(s.now())
	a.str(p.name)
	a.bytes(id[:])
	out, err := s.run(ctx, scriptLookup, []string{p.hash(), p.dues(), p.index(), p.closings(id)}, a)
	if err != nil || out.int() == 0 {
		return reservation.Record{}, err
	}
	record := out.record()
	return record, out.err
}
