package storetest

import (
	"fmt"
	"math/big"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// bucketColumn are the books of a bucket:
//
//	level = initial + refilled + returned - taken - spilled
//
// Where the bucket is full by its own parameters it counts as new: the next hold
// finds it full at that hold's capacity, and the columns begin anew.
type bucketColumn struct {
	stretch
	params quota.Bucket
	at     int64        // of the last change; 0: it is new
	booked quota.Amount // what those have who start at the last start, while that is ahead

	initial, refilled, returned, taken, spilled *big.Rat
}

func (c *bucketColumn) String() string {
	if c.at == 0 {
		return "a full bucket"
	}
	return fmt.Sprintf("initial %s + refilled %s + returned %s - taken %s - spilled %s", c.initial.FloatString(6), c.refilled.FloatString(6),
		c.returned.FloatString(6), c.taken.FloatString(6), c.spilled.FloatString(6))
}

func (c *bucketColumn) level() *big.Rat {
	sum := new(big.Rat).Add(c.initial, c.refilled)
	sum.Add(sum, c.returned)
	sum.Sub(sum, c.taken)
	return sum.Sub(sum, c.spilled)
}

// plus adds to a column, none of which is ever changed in place.
func plus(to **big.Rat, x *big.Rat) { *to = new(big.Rat).Add(*to, x) }

// spill lets what is above a level go.
func (c *bucketColumn) spill(most *big.Rat) {
	over := c.level()
	if over.Sub(over, most).Sign() > 0 {
		plus(&c.spilled, over)
	}
}

// book says who starts at the last start, while that is ahead. What comes back fills
// the bucket beside what they have: no more than the burst starts at an instant.
func (c *bucketColumn) book(holds []bookHold) {
	c.booked = 0
	for _, h := range holds {
		c.booked += h.taken
	}
}

// refill is what time brings.
func (c *bucketColumn) refill(now int64) {
	if now > c.at {
		plus(&c.refilled, new(big.Rat).Mul(rate(c.params), whole(now-c.at)))
		c.at = now
	}
	c.spill(whole(int64(c.params.Capacity)))
}

// fullBy says that the bucket is full by its own parameters at an instant that is not
// before its last change.
func (c bucketColumn) fullBy(now int64) bool {
	if c.at == 0 || now < c.at {
		return c.at == 0
	}
	c.refill(now)
	return c.level().Cmp(whole(int64(c.params.Capacity))) == 0
}

// seenBy are the columns as parameters see them now.
func (c bucketColumn) seenBy(p quota.Bucket, now int64) bucketColumn {
	if c.fullBy(now) {
		c.at = 0
	}
	if c.at == 0 {
		zero := new(big.Rat)
		c.initial, c.refilled, c.returned, c.taken, c.spilled = whole(int64(p.Capacity)), zero, zero, zero, zero
		c.params, c.at = p, now
		return c
	}
	if c.params.PerMicros != p.PerMicros {
		// What was earned below one unit is of the old rate: it is let go.
		level := c.level()
		plus(&c.spilled, level.Sub(level, whole(int64(floor(level)))))
	}
	c.params = p
	c.refill(now)
	return c
}

func (c *bucketColumn) remaining(h reservation.Hold, at, then int64) quota.Amount {
	seen := c.seenBy(h.Bucket, at).seenBy(h.Bucket, then)
	return floor(seen.level())
}

// room is what the bucket could take back.
func (c *bucketColumn) room(at int64) quota.Amount {
	seen := c.seenBy(c.params, at)
	return max(seen.params.Capacity-c.booked-floor(seen.level()), 0)
}

func (c *bucketColumn) change(p quota.Bucket, at int64) {
	if c.params != p {
		c.begin()
	}
	*c = c.seenBy(p, at)
}

func (c *bucketColumn) take(h reservation.Hold, at, start, walked int64) (int64, error) {
	if h.Amount == 0 {
		return start, nil
	}
	c.change(h.Bucket, at)
	c.change(h.Bucket, start)
	plus(&c.taken, whole(int64(h.Amount)))
	c.add(walked, h.Amount)
	return start, c.within(c.params.Capacity, rate(c.params), walked, 0)
}

// correct counts by the parameters of the last Reserve that met the bucket, unless it
// is new.
func (c *bucketColumn) correct(h reservation.Hold, _ int64, from, to quota.Amount, at, walked int64) {
	p := h.Bucket
	if !c.fullBy(at) {
		p = c.params
	}
	c.change(p, at)
	if to > from {
		plus(&c.taken, whole(int64(to-from)))
	} else {
		most := c.level()
		if beside := whole(int64(c.params.Capacity - c.booked)); beside.Cmp(most) > 0 {
			most = beside
		}
		plus(&c.returned, whole(int64(from-to)))
		c.spill(most)
	}
	c.add(walked, to-from)
}
