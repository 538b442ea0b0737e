package storetest

import (
	"context"
	"slices"

	"github.com/budgetd/budgetd/reservation"
)

// beforeReserve changes the state that a Reserve finds.
func beforeReserve(change func(m *Model, q reservation.ReserveRequest)) func(f *faulty) {
	return func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			change(m, q)
			return m.Reserve(context.Background(), q)
		}
	}
}

// Faults of lines.
func init() {
	mutants = append(mutants,
		mutant{"who does not wait passes those who do", true, beforeReserve(func(m *Model, q reservation.ReserveRequest) {
			if q.Line == nil {
				m.line = nil
			}
		})},
		mutant{"who comes last is served first", true, beforeReserve(func(m *Model, q reservation.ReserveRequest) {
			slices.Reverse(m.line)
		})},
		mutant{"asking again loses the place", true, beforeReserve(func(m *Model, q reservation.ReserveRequest) {
			if q.Line != nil && !q.DryRun {
				m.leave(q.Account, q.Holds, q.Line.Waiter)
			}
		})},
		mutant{"a place of who is silent stands", true, beforeReserve(func(m *Model, q reservation.ReserveRequest) {
			for i := range m.line {
				m.line[i].until = max(m.line[i].until, m.now()+1)
			}
		})},
		mutant{"a grant keeps its place", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
			if a.Verdict == reservation.Granted && q.Line != nil && !q.DryRun {
				for _, h := range q.Holds {
					if h.Waits() {
						m.line = append(m.line, modelPlace{nameOf(q.Account, h.Counter), q.Line.Waiter, h.Keep, m.now() + q.Line.Keep.Microseconds()})
					}
				}
			}
		})},
		mutant{"who must leave something stands before who may take it", false, beforeReserve(func(m *Model, q reservation.ReserveRequest) {
			for i := range m.line {
				m.line[i].keep = 0
			}
		})},
	)
}
