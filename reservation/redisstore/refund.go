package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Refund is one script call, and one more for each pool on a Cluster.
func (s *Store) Refund(ctx context.Context, r reservation.RefundRequest) (reservation.RefundAnswer, error) {
	if err := errors.Join(
		checkClosing(r.Lease, r.Retention, r.Actual, r.Outcome, r.Token),
		checkHolds(r.Holds),
	); err != nil {
		return reservation.RefundAnswer{}, err
	}
	p := s.account(r.Account)
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
	keys := []string{p.hash(), p.dues(), p.index(), p.closings(r.ID)}
	keys = s.appendPlan(&a, keys, p, r.Holds)
	a.int(s.idle)

	out, err := s.run(ctx, scriptRefund, keys, a)
	if err != nil {
		return reservation.RefundAnswer{}, err
	}
	code, now := out.int(), out.int()
	answer := reservation.RefundAnswer{Verdict: reservation.RefundVerdict(code), Now: instant(now), Reclaimed: s.reclaimed(out.int())}
	switch {
	case answer.Verdict == reservation.RefundSettled:
		answer.Record = out.record()
		// The levels are those of the record's own holds, which come last.
		counters := *out
		out.skip()
		holds, err := planned(out.bytes())
		if err != nil {
			return reservation.RefundAnswer{}, err
		}
		answer.Levels = showAll(holds, counters.levels(holds), now)
		if counters.err != nil {
			return reservation.RefundAnswer{}, counters.err
		}
	case answer.Verdict == reservation.RefundSame, answer.Verdict == reservation.RefundConflict:
		answer.Record = out.record()
	case answer.Verdict == reservation.RefundUnknown, answer.Verdict == reservation.RefundForgotten:
	case code == 6:
		return reservation.RefundAnswer{}, countMismatch(len(r.Actual), out.int())
	default:
		return reservation.RefundAnswer{}, unknownCode(scriptRefund, code)
	}
	return answer, out.err
}

// appendPlan adds holds to the argument, or "" if there are none, and the keys
// that their counters have of their own.
func (s *Store) appendPlan(a *args, keys []string, p space, holds []reservation.Hold) []string {
	if len(holds) == 0 {
		a.str("")
		return keys
	}
	plan, own := s.plan(p, holds, false)
	a.bytes(plan)
	return append(keys, own...)
}

func countMismatch(given int, want int64) error {
	return fmt.Errorf("actual: %d amounts are given, the reservation has %d holds", given, want)
}

func checkClosing(lease, retention time.Duration, actual []quota.Amount, outcome, token []byte) error {
	if len(actual) > reservation.MaxHolds {
		return fmt.Errorf("actual: %d amounts are given, at most %d are accepted", len(actual), reservation.MaxHolds)
	}
	for i, n := range actual {
		if err := n.Check(); err != nil {
			return fmt.Errorf("actual[%d]: %w", i, err)
		}
	}
	return errors.Join(
		checkSpan("lease", lease, 0, longestLease),
		checkSpan("retention", retention, 0, longestRetention),
		checkSize("outcome", len(outcome), reservation.MaxOutcomeBytes),
		checkSize("token", len(token), reservation.MaxTokenBytes),
	)
}

// Renew is one script call, and one before it for each pool on a Cluster.
func (s *Store) Renew(ctx context.Context, r reservation.RenewRequest) (reservation.RenewAnswer, error) {
	if err := checkSpan("lease", r.Lease, time.Millisecond, longestLease); err != nil {
		return reservation.RenewAnswer{}, err
	}
	p := s.account(r.Account)
	a := make(args, 0, 128)
	a.int(s.now())
	a.str(p.name)
	a.bytes(r.ID[:])
	a.int(r.Lease.Microseconds())
	a.int(s.idle)
	out, err := s.run(ctx, scriptRenew, []string{p.hash(), p.dues(), p.index(), p.closings(r.ID)}, a)
	if err != nil {
		return reservation.RenewAnswer{}, err
	}
	answer := reservation.RenewAnswer{State: reservation.State(out.int()), Now: instant(out.int()), Reclaimed: s.reclaimed(out.int())}
	if ends := out.int(); ends != 0 {
		answer.ExpiresAt = instant(ends)
	}
	return answer, out.err
}

// Confirm is one script call, and one more for each pool on a Cluster.
func (s *Store) Confirm(ctx context.Context, r reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	if err := errors.Join(
		checkClosing(r.Lease, r.Retention, r.Actual, r.Outcome, r.Token),
		checkHolds(r.Holds),
	); err != nil {
		return 0, err
	}
	if r.Rank != ledger.RankExpired && r.Rank != ledger.RankRefunded {
		return 0, fmt.Errorf("rank is %d, %d and %d are known", r.Rank, ledger.RankExpired, ledger.RankRefunded)
	}
	if len(r.Usage) > reservation.MaxHolds {
		return 0, fmt.Errorf("usage: %d counters are given, at most %d are accepted", len(r.Usage), reservation.MaxHolds)
	}
	p := s.account(r.Account)
	a := make(args, 0, 256+len(r.Outcome)+len(r.Token))
	a.int(s.now())
	a.str(p.name)
	a.bytes(r.ID[:])
	a.int(r.ID.Minted().UnixMicro())
	a.int(r.Lease.Microseconds())
	a.int(r.Retention.Microseconds())
	a.int(int64(r.Rank))
	a.bytes(r.Body[:])
	a.bytes(r.Outcome)
	a.bytes(amounts(r.Actual))
	a.int(int64(len(r.Actual)))
	a.bool(r.Late)
	a.int(r.ClosedAt.UnixMicro())
	a.bytes(r.Token)
	keys := []string{p.hash(), p.dues(), p.index(), p.closings(r.ID)}
	keys = s.appendPlan(&a, keys, p, r.Holds)
	var usage args
	usage.list(6 * len(r.Usage))
	for i := range r.Usage {
		u := &r.Usage[i]
		where, ref := s.place(p, quota.KindQuota, u.Counter)
		if where == inKey {
			keys = append(keys, ref)
		}
		usage.str(ref)
		usage.int(int64(where))
		usage.str(u.Period.Key)
		usage.int(u.Period.End.UnixMicro())
		usage.int(int64(u.Used))
		usage.int(u.Version)
	}
	a.bytes(usage)
	a.int(s.idle)

	out, err := s.run(ctx, scriptConfirm, keys, a)
	if err != nil {
		return 0, err
	}
	code := out.int()
	out.int()
	s.reclaimed(out.int())
	verdict := reservation.ConfirmVerdict(code)
	switch {
	case verdict == reservation.ConfirmAdopted:
		out.bytes()
	case verdict == reservation.ConfirmStopped, verdict == reservation.ConfirmUnknown, verdict == reservation.ConfirmOld:
	case code == 5:
		return 0, countMismatch(len(r.Actual), out.int())
	default:
		return 0, unknownCode(scriptConfirm, code)
	}
	return verdict, out.err
}

// Lookup is one script call.
func (s *Store) Lookup(ctx context.Context, account string, id reservation.ID) (reservation.Record, error) {
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
