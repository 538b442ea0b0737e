package storetest

import (
	"context"
	"errors"

	"github.com/budgetd/budgetd/reservation"
)

var errUnbuilt = errors.New("not built")

func (m *Model) Open(context.Context, string, string, int) (reservation.OpenPage, error) {
	return reservation.OpenPage{}, errUnbuilt
}

func (m *Model) Push(context.Context, string, []reservation.CounterUsage) error { return errUnbuilt }

func (m *Model) Audit(context.Context, reservation.AuditRequest) (reservation.AuditAnswer, error) {
	return reservation.AuditAnswer{}, errUnbuilt
}
