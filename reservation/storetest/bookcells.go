package storetest

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// ceil is x/y rounded up, of numbers that are not negative.
func ceil(x, y *big.Int) int64 {
	up := new(big.Int).Add(x, new(big.Int).Sub(y, big.NewInt(1)))
	return up.Div(up, y).Int64()
}

// cost is how long an amount takes to refill, rounded up to a microsecond.
func cost(p quota.Bucket, n quota.Amount) int64 {
	return ceil(new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(p.PerMicros)), big.NewInt(int64(p.Refill)))
}

// costBack is the same rounded down: what is given back in parts must not be more than
// was taken as a whole.
func costBack(p quota.Bucket, n quota.Amount) int64 {
	down := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(p.PerMicros))
	return down.Div(down, big.NewInt(int64(p.Refill))).Int64()
}

// roomFor is what fits where the limit is whole again in so many microseconds, rounded
// down, a debt as well.
func roomFor(p quota.Bucket, wait int64) quota.Amount {
	room := cost(p, p.Capacity) - max(wait, 0)
	refills := new(big.Int).Mul(big.NewInt(room), big.NewInt(int64(p.Refill)))
	return min(floor(new(big.Rat).SetFrac(refills, big.NewInt(p.PerMicros))), p.Capacity)
}

// gcraColumn are the books of a GCRA: the instant at which it is whole again.
type gcraColumn struct {
	stretch
	params quota.Bucket
	whole  int64
	booked int64 // what those cost who start at the last start, while that is ahead
}

// book is as that of a bucket.
func (c *gcraColumn) book(holds []bookHold) {
	c.booked = 0
	for _, h := range holds {
		c.booked += cost(h.Bucket, h.taken)
	}
}

func (c *gcraColumn) String() string { return fmt.Sprintf("whole again at %d", c.whole) }

func (c *gcraColumn) remaining(h reservation.Hold, _, then int64) quota.Amount {
	return roomFor(h.Bucket, c.whole-then)
}

// move brings the instant nearer or further, not before at.
func (c *gcraColumn) move(p quota.Bucket, by int64, amount quota.Amount, at, walked int64) {
	if c.params != p {
		c.begin()
		c.params = p
	}
	wait := max(c.whole-at, 0)
	if c.whole = at + max(wait+by, 0); by < 0 {
		c.whole = max(c.whole, at+min(wait, c.booked))
	}
	c.add(walked, amount)
}

func (c *gcraColumn) take(h reservation.Hold, _, start, walked int64) (int64, error) {
	if h.Amount == 0 {
		return start, nil
	}
	c.move(h.Bucket, cost(h.Bucket, h.Amount), h.Amount, start, walked)
	return start, c.within(h.Bucket.Capacity, rate(h.Bucket), walked, 1)
}

func (c *gcraColumn) correct(h reservation.Hold, _ int64, from, to quota.Amount, at, walked int64) {
	c.move(h.Bucket, cost(h.Bucket, to)-cost(h.Bucket, from), to-from, at, walked)
}

// shift is correct for a hold that goes in parts.
func (c *gcraColumn) shift(h reservation.Hold, by quota.Amount, at, walked int64) {
	if by > 0 {
		c.move(h.Bucket, cost(h.Bucket, by), by, at, walked)
	} else if by < 0 {
		c.move(h.Bucket, -costBack(h.Bucket, -by), by, at, walked)
	}
}

// queueColumn are the books of a leaky queue: when it is empty, and the calls that
// went through it, one after the other.
type queueColumn struct {
	params quota.Bucket
	empty  int64
	calls  []flow // while the parameters were the same: their starts, and what they used
}

func (c *queueColumn) String() string { return fmt.Sprintf("empty at %d", c.empty) }

func (c *queueColumn) remaining(h reservation.Hold, _, then int64) quota.Amount {
	return roomFor(h.Bucket, c.empty-then)
}

// take lets a call go when those before it have gone: the start of one that waits, and
// the place that a queue in shadow gives one that does not.
func (c *queueColumn) take(h reservation.Hold, _, start, _ int64) (int64, error) {
	if h.Amount == 0 {
		return start, nil
	}
	if c.params != h.Bucket {
		c.params, c.calls = h.Bucket, nil
	}
	var err error
	if h.Shadow {
		start = max(start, c.empty)
	}
	if n := len(c.calls); n > 0 {
		last := c.calls[n-1]
		if gone := last.at + cost(c.params, last.amount); start < gone {
			err = fmt.Errorf("a start %d us before the call ahead of it has gone", gone-start)
		}
	}
	c.calls = append(c.calls, flow{start, h.Amount})
	c.empty = max(c.empty, start) + cost(h.Bucket, h.Amount)
	return start, err
}

// correct delays those who come next where more was used. Less helps them only where
// nobody was given a start behind it.
func (c *queueColumn) correct(h reservation.Hold, counted int64, from, to quota.Amount, at, walked int64) {
	p := h.Bucket
	switch {
	case to > from:
		c.empty = max(c.empty, at) + cost(p, to) - cost(p, from)
	case c.empty > at && c.empty == counted+cost(p, from):
		c.empty = max(counted+cost(p, to), at)
	default:
		return
	}
	for i := len(c.calls) - 1; i >= 0; i-- {
		if c.calls[i].at != counted {
			continue
		}
		if c.calls[i].amount += to - from; c.calls[i].amount <= 0 {
			c.calls = slices.Delete(c.calls, i, i+1) // it used nothing: nobody waits for it
		}
		break
	}
}

// shift is correct for a hold that goes in parts: nobody knows what stands behind it.
func (c *queueColumn) shift(h reservation.Hold, by quota.Amount, at, _ int64) {
	if by > 0 {
		c.empty = max(c.empty, at) + cost(h.Bucket, by)
	}
}
