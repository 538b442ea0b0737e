package redisstore

import (
	"context"
	"errors"

	"github.com/budgetd/budgetd/reservation"
)

var errUnbuilt = errors.New("not built")

func (s *Store) Audit(context.Context, reservation.AuditRequest) (reservation.AuditAnswer, error) {
	return reservation.AuditAnswer{}, errUnbuilt
}
