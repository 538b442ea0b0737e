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
	at     int64 // of the last change; 0: it is new

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

// spill lets what is above the capacity go.
func (c *bucketColumn) spill() {
	over := c.level()
	if over.Sub(over, whole(int64(c.params.Capacity))).Sign() > 0 {
		plus(&c.spilled, over)
	}
}

// refill is what time brings.
func (c *bucketColumn) refill(now int64) {
	if now > c.at {
		plus(&c.refilled, new(big.Rat).Mul(rate(c.params), whole(now-c.at)))
		c.at = now
	}
	c.spill()
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

func (c *bucketColumn) remaining(h reservation.Hold, now int64) quota.Amount {
	seen := c.seenBy(h.Bucket, now)
	return floor(seen.level())
}

// room is what the bucket could take back.
func (c *bucketColumn) room(now int64) quota.Amount {
	seen := c.seenBy(c.params, now)
	return seen.params.Capacity - floor(seen.level())
}

func (c *bucketColumn) change(p quota.Bucket, now int64) {
	if c.params != p {
		c.begin()
	}
	*c = c.seenBy(p, now)
}

func (c *bucketColumn) take(h reservation.Hold, now, walked int64) (int64, error) {
	if h.Amount == 0 {
		return now, nil
	}
	c.change(h.Bucket, now)
	plus(&c.taken, whole(int64(h.Amount)))
	c.add(walked, h.Amount)
	return now, c.within(c.params.Capacity, rate(c.params), walked, 0)
}

// correct counts by the parameters of the last Reserve that met the bucket, unless it
// is new.
func (c *bucketColumn) correct(h reservation.Hold, _ int64, from, to quota.Amount, now, walked int64) {
	p := h.Bucket
	if !c.fullBy(now) {
		p = c.params
	}
	c.change(p, now)
	if to > from {
		plus(&c.taken, whole(int64(to-from)))
	} else {
		plus(&c.returned, whole(int64(from-to)))
		c.spill()
	}
	c.add(walked, to-from)
}

// gcraColumn are the books of a GCRA: the instant at which it is whole again.
type gcraColumn struct {
	stretch
	params quota.Bucket
	whole  int64
}

// ceil is x/y rounded up, of numbers that are not negative.
func ceil(x, y *big.Int) int64 {
	up := new(big.Int).Add(x, new(big.Int).Sub(y, big.NewInt(1)))
	return up.Div(up, y).Int64()
}

// cost is how long an amount takes to refill, rounded up to a microsecond.
func cost(p quota.Bucket, n quota.Amount) int64 {
	return ceil(new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(p.PerMicros)), big.NewInt(int64(p.Refill)))
}

func (c *gcraColumn) remaining(h reservation.Hold, now int64) quota.Amount {
	p := h.Bucket
	room := cost(p, p.Capacity) - max(c.whole-now, 0)
	refills := new(big.Int).Mul(big.NewInt(room), big.NewInt(int64(p.Refill)))
	// Rounded down, a debt as well.
	return min(floor(new(big.Rat).SetFrac(refills, big.NewInt(p.PerMicros))), p.Capacity)
}

func (c *gcraColumn) move(p quota.Bucket, from, to quota.Amount, now, walked int64) {
	if c.params != p {
		c.begin()
		c.params = p
	}
	c.whole = now + max(max(c.whole-now, 0)+cost(p, to)-cost(p, from), 0)
	c.add(walked, to-from)
}

func (c *gcraColumn) take(h reservation.Hold, now, walked int64) (int64, error) {
	if h.Amount == 0 {
		return now, nil
	}
	c.move(h.Bucket, 0, h.Amount, now, walked)
	return now, c.within(h.Bucket.Capacity, rate(h.Bucket), walked, 1)
}

func (c *gcraColumn) correct(h reservation.Hold, _ int64, from, to quota.Amount, now, walked int64) {
	c.move(h.Bucket, from, to, now, walked)
}
