package rpc

import (
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
		out = append(out, refusalOut(refused, refused.Retryable() && !refused.Now.IsZero()))
	}
	return out
}
