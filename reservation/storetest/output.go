package storetest

import (
	"math"
	"math/big"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// risks is the open sum of a bucket's counter: what held records took less than
// their maximum.
func (m *Model) risks(name counterName) quota.Amount {
	var sum quota.Amount
	for _, r := range m.records {
		for _, h := range r.holds {
			if r.state == reservation.StateHeld && h.Kind == quota.KindBucket && nameOf(r.account, h.Counter) == name {
				sum += h.Risk
			}
		}
	}
	return sum
}

// amountFor is what hold i takes for n tokens.
func amountFor(o *reservation.Output, i int, h reservation.Hold, n int64) quota.Amount {
	s := o.Slopes[i]
	if s.PerToken == 0 {
		return h.Amount
	}
	less := new(big.Int).Mul(big.NewInt(s.PerToken), big.NewInt(o.Asked-n))
	less.Add(less, big.NewInt(s.Rest))
	less.Div(less, big.NewInt(s.Per))
	less.Mul(less, big.NewInt(int64(s.Weight)))
	return h.Amount - quota.Amount(less.Int64())
}

// forTokens is the plan for n tokens as the counters stand: with forecasts where
// their risk is tolerated and they fit.
func (m *Model) forTokens(q *reservation.ReserveRequest, n int64) []reservation.Hold {
	holds := make([]reservation.Hold, len(q.Holds))
	for i, h := range q.Holds {
		holds[i] = h
		holds[i].Amount = amountFor(q.Output, i, h, n)
		held := amountFor(q.Output, i, h, min(n, q.Output.Forecast))
		if risk := holds[i].Amount - held; risk > 0 && m.funds[i] == nil && m.tolerated(q, i, risk) && m.level(q.Account, h).Remaining-h.Keep-m.reserve(q.Account, h) >= held {
			holds[i].Amount, holds[i].Risk = held, risk
		}
	}
	return holds
}

func (m *Model) tolerated(q *reservation.ReserveRequest, i int, risk quota.Amount) bool {
	return m.risks(nameOf(q.Account, q.Holds[i].Counter))+risk <= q.Output.Slopes[i].Tolerance
}

// fits says that every hold does.
func (m *Model) fits(account string, holds []reservation.Hold) bool {
	for i, h := range holds {
		if h.Shadow {
			continue
		}
		if _, ok := m.refusal(account, i, h); !ok {
			return false
		}
	}
	return true
}

// decide tries every number of tokens from the top. ok is false when none fits.
func (m *Model) decide(q *reservation.ReserveRequest) (holds []reservation.Hold, d reservation.Decided, ok bool) {
	for n := q.Output.Asked; n >= q.Output.Least; n-- {
		if holds = m.forTokens(q, n); m.fits(q.Account, holds) {
			d.Tokens = n
			for _, h := range holds {
				d.Forecast = append(d.Forecast, h.Risk > 0)
			}
			return holds, d, true
		}
	}
	return nil, d, false
}

// outputRefusal says why hold i does not fit for the least tokens.
func (m *Model) outputRefusal(q *reservation.ReserveRequest, i int) (reservation.Refusal, bool) {
	h := m.forTokens(q, q.Output.Least)[i]
	until := m.now()
	if h.Kind == quota.KindLeakyQueue && h.Shadow {
		until = math.MaxInt64 - 1
	}
	refusal, ok := m.refusalBy(q.Account, i, h, until)
	if m.funds[i] != nil {
		return refusal, ok
	}
	most := amountFor(q.Output, i, q.Holds[i], q.Output.Least)
	held := amountFor(q.Output, i, q.Holds[i], min(q.Output.Least, q.Output.Forecast))
	risk := most - held
	if ok || risk == 0 || risk > q.Output.Slopes[i].Tolerance {
		return refusal, ok
	}
	// A forecast would do, now or once others have closed.
	now := m.tolerated(q, i, risk)
	if !now && most <= h.Bucket.Capacity-h.Keep {
		return refusal, ok
	}
	refusal.Asked = held
	if held > h.Bucket.Capacity-h.Keep {
		refusal.Reason = reservation.ExceedsCapacity
		return refusal, ok
	}
	refusal.Reason = reservation.RateLimited
	h.Amount = held
	retry := m.retryAhead(q.Account, h, m.startFor(q.Account, h))
	if !now {
		retry = max(retry, m.now()+reservation.RiskRetry.Microseconds())
	}
	refusal.RetryAt = instant(min(retry, 2*farMicros))
	return refusal, ok
}
