package redisstore

import (
	"context"
	"errors"

	"github.com/budgetd/budgetd/reservation"
)

var errUnbuilt = errors.New("not built")

func (s *Store) Open(context.Context, string, string, int) (reservation.OpenPage, error) {
	return reservation.OpenPage{}, errUnbuilt
}

func (s *Store) Push(context.Context, string, []reservation.CounterUsage) error { return errUnbuilt }

func (s *Store) Audit(context.Context, reservation.AuditRequest) (reservation.AuditAnswer, error) {
	return reservation.AuditAnswer{}, errUnbuilt
}
