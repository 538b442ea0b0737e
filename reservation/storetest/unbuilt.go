package storetest

import (
	"context"
	"errors"

	"github.com/budgetd/budgetd/reservation"
)

var errUnbuilt = errors.New("not built")

func (m *Model) Audit(context.Context, reservation.AuditRequest) (reservation.AuditAnswer, error) {
	return reservation.AuditAnswer{}, errUnbuilt
}
