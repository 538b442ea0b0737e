package storetest

import (
	"context"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Faults of refusals that count.
func init() {
	asIf := func(change func(h *reservation.Hold)) func(f *faulty) {
		return func(f *faulty) {
			f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
				for i := range q.Holds {
					change(&q.Holds[i])
				}
				return m.Reserve(context.Background(), q)
			}
		}
	}
	// afterRefusal changes what is remembered of the counters that refused.
	afterRefusal := func(change func(m *Model, b *modelBan, h reservation.Hold, a *reservation.ReserveAnswer)) func(f *faulty) {
		return afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
			for _, h := range q.Holds {
				if h.Ban.Refusals > 0 && a.Verdict == reservation.Refused {
					change(m, m.banOf(q.Account, h), h, a)
				}
			}
		})
	}
	first := len(mutants)
	mutants = append(mutants,
		mutant{"refusals take nothing", true, asIf(func(h *reservation.Hold) { h.CountRefusals = false })},
		mutant{"nobody is banned", true, asIf(func(h *reservation.Hold) { h.Ban = quota.Ban{} })},
		mutant{"shadow limits count no refusals", true, asIf(func(h *reservation.Hold) {
			if h.Shadow {
				h.CountRefusals, h.Ban = false, quota.Ban{}
			}
		})},
		mutant{"a refusal too many bans", true, asIf(func(h *reservation.Hold) {
			if h.Ban.Refusals > 1 {
				h.Ban.Refusals--
			}
		})},
		mutant{"refusals that have left the span count", false, asIf(func(h *reservation.Hold) {
			if h.Ban.Refusals > 0 {
				h.Ban.Within = quota.MaxBanSpan
			}
		})},
		mutant{"a ban ends early", true, asIf(func(h *reservation.Hold) { h.Ban.For /= 2 })},
		mutant{"refusals during the ban prolong it", true, afterRefusal(func(m *Model, b *modelBan, h reservation.Hold, a *reservation.ReserveAnswer) {
			if b.ends > m.now() && a.Refusal.Reason == reservation.Banned {
				b.ends = m.now() + h.Ban.For.Microseconds()
			}
		})},
		mutant{"refusals are remembered over the ban", false, afterRefusal(func(m *Model, b *modelBan, h reservation.Hold, a *reservation.ReserveAnswer) {
			if b.ends > m.now() && b.counted.Empty() {
				b.counted, _ = h.Ban.Count(b.counted, b.ends)
			}
		})},
		mutant{"what can never fit is counted", true, afterRefusal(func(m *Model, b *modelBan, h reservation.Hold, a *reservation.ReserveAnswer) {
			if b.ends == 0 && h.Amount > 0 && a.Refusal.Reason == reservation.ExceedsCapacity {
				b.counted, _ = h.Ban.Count(b.counted, m.now())
			}
		})},
		mutant{"a call that is sent again is counted once", false, func(f *faulty) {
			refused := map[reservation.ID]bool{}
			f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
				if refused[q.ID] {
					for i := range q.Holds {
						q.Holds[i].CountRefusals, q.Holds[i].Ban = false, quota.Ban{}
					}
				}
				answer, err := m.Reserve(context.Background(), q)
				refused[q.ID] = answer.Verdict == reservation.Refused
				return answer, err
			}
		}},
		mutant{"what is taken of a refusal is not bounded", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
			for _, h := range q.Holds {
				left := m.level(q.Account, h).Remaining
				if h.CountRefusals && h.Kind == quota.KindBucket && a.Verdict == reservation.Refused && a.Refusal.Reason == reservation.RateLimited && !q.DryRun && left == 0 && h.Amount > 0 && q.Output == nil {
					m.change(nameOf(q.Account, h.Counter), h.Bucket, 1)
				}
			}
		})},
		mutant{"a dry run is counted", true, func(f *faulty) {
			f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
				answer, err := m.Reserve(context.Background(), q)
				if q.DryRun && answer.Verdict == reservation.Refused {
					q.DryRun = false
					again, againErr := m.Reserve(context.Background(), q)
					_, _ = again, againErr
				}
				return answer, err
			}
		}},
	)
	for _, m := range mutants[first:] {
		likelyWorlds[m.name] = "Refusals"
	}
}
