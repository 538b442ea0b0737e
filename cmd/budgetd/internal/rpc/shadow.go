package rpc

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

var modesOut = map[quota.Mode]budgetv1.LimitMode{
	"":                budgetv1.LimitMode_LIMIT_MODE_ENFORCE,
	quota.ModeEnforce: budgetv1.LimitMode_LIMIT_MODE_ENFORCE,
	quota.ModeShadow:  budgetv1.LimitMode_LIMIT_MODE_SHADOW,
	quota.ModeOff:     budgetv1.LimitMode_LIMIT_MODE_OFF,
}

// shadowsOut is what shadow limits would have refused. What is left and when to
// come back is known only at the decision itself.
func shadowsOut(limits []reservation.RefusedLimit) []*budgetv1.Refusal {
	var out []*budgetv1.Refusal
	for i := range limits {
		refused := &limits[i]
		detail := &budgetv1.Refusal{
			Reason:      reasons[refused.Reason],
			Limit:       refused.Limit,
			Pool:        refused.Pool,
			Scope:       refused.Scope,
			Meter:       string(refused.Meter),
			Asked:       int64(refused.Asked),
			Remaining:   int64(refused.Remaining),
			LimitAmount: int64(refused.Max),
			Retryable:   refused.Retryable() && !refused.Now.IsZero(),
			ResetsAt:    timeOut(refused.ResetsAt),
		}
		if detail.Retryable {
			detail.RetryAt = timestamppb.New(refused.RetryAt)
		}
		out = append(out, detail)
	}
	return out
}
