package backtest_test

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// The forms here put a broker's own answers as the protocol does, so that they
// can be compared with what came over it.

func amounts(a quota.Amounts) map[string]int64 {
	m := map[string]int64{}
	for meter, amount := range a {
		m[string(meter)] = int64(amount)
	}
	return m
}

func stamp(at time.Time) *timestamppb.Timestamp {
	if at.IsZero() {
		return nil
	}
	return timestamppb.New(at)
}

func protoHolds(holds []reservation.HeldLimit) []*budgetv1.Hold {
	var list []*budgetv1.Hold
	for _, h := range holds {
		remaining := int64(h.Level.Remaining)
		list = append(list, &budgetv1.Hold{
			Limit: h.Limit, Pool: h.Pool, Scope: h.Scope, Meter: string(h.Meter), Amount: int64(h.Amount),
			Remaining: &remaining, ResetsAt: stamp(h.Level.ResetsAt),
		})
	}
	return list
}

func protoRefusal(r *reservation.RefusedLimit) *budgetv1.Refusal {
	refusal := &budgetv1.Refusal{
		Reason: budgetv1.RefusalReason(r.Reason), Limit: r.Limit, Pool: r.Pool, Scope: r.Scope, Meter: string(r.Meter),
		Asked: int64(r.Asked), Remaining: int64(r.Remaining), LimitAmount: int64(r.Max), ResetsAt: stamp(r.ResetsAt),
	}
	// The end of a quota's period is too far away to wait for: only resets_at says it.
	if r.Reason != reservation.QuotaExhausted {
		refusal.RetryAt = stamp(r.RetryAt)
	}
	return refusal
}
