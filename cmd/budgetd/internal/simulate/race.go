package simulate

import (
	"fmt"
	"time"

	"github.com/budgetd/budgetd/quota"
)

const (
	raceLimit   = 100 // a second
	raceSeconds = 60
)

// race is one limit in a store that is a round trip away.
type race struct {
	calls     float64 // a second
	roundTrip time.Duration
	published float64 // admitted a second, read and then written, in windows; 0: not known
}

var races = []race{
	{1000, time.Millisecond, 198},
	{1000, 5 * time.Millisecond, 604},
	{2000, 2 * time.Millisecond, 500},
}

// A way counts the calls of a race: it decides about one, now, and tells of an
// admission when it comes to know of it.
type way func(c *clock, roundTrip time.Duration, admitted func()) (call func() error, err error)

// runRace returns how many calls a second are admitted, the first second left
// out: a bucket begins full.
func runRace(seed uint64, r race, w way) (aSecond float64, err error) {
	c, admitted := newClock(), 0
	call, err := w(c, r.roundTrip, func() {
		if c.elapsed() >= time.Second {
			admitted++
		}
	})
	if err != nil {
		return 0, err
	}
	c.each(poisson(seeded(seed, uint64(r.calls*r.roundTrip.Seconds())), r.calls, raceSeconds*time.Second), call)
	err = c.run()
	return float64(admitted) / (raceSeconds - 1), err
}

// windowReadThenWritten reads the count of the present second and writes one
// more a round trip later, over what others wrote meanwhile.
func windowReadThenWritten(c *clock, roundTrip time.Duration, admitted func()) (func() error, error) {
	counts := map[time.Duration]int{}
	return func() error {
		second := c.elapsed().Truncate(time.Second)
		read := counts[second]
		if read >= raceLimit {
			return nil
		}
		admitted()
		c.after(roundTrip, func() error {
			counts[second] = read + 1
			return nil
		})
		return nil
	}, nil
}

// bucketReadThenWritten does the same with the level of a bucket. The arithmetic
// is the product's; that two steps are not one is what is shown.
func bucketReadThenWritten(c *clock, roundTrip time.Duration, admitted func()) (func() error, error) {
	bucket := bucketOf(raceLimit, time.Second).Bucket
	type state struct {
		level     quota.Amount
		remainder int64
		at        time.Time
	}
	stored := state{bucket.Capacity, 0, c.now}
	return func() error {
		level, remainder := bucket.Advance(stored.level, stored.remainder, c.now.Sub(stored.at).Microseconds())
		if level < 1 {
			return nil
		}
		admitted()
		written := state{bucket.Take(level, 1), remainder, c.now}
		c.after(roundTrip, func() error {
			stored = written
			return nil
		})
		return nil
	}, nil
}

// checkedThenCounted asks the engine what is left, and counts in a second call.
func checkedThenCounted(limit aSecond) way {
	return func(c *clock, roundTrip time.Duration, admitted func()) (func() error, error) {
		l, err := newLimiter(c, limit(raceLimit))
		if err != nil {
			return nil, err
		}
		return func() error {
			left, err := l.remaining()
			if err != nil || left < 1 {
				return err
			}
			admitted()
			c.after(roundTrip, func() error { return l.charge(1) })
			return nil
		}, nil
	}
}

// atomically asks and counts in one step of the engine.
func atomically(limit aSecond) way {
	return func(c *clock, _ time.Duration, admitted func()) (func() error, error) {
		l, err := newLimiter(c, limit(raceLimit))
		if err != nil {
			return nil, err
		}
		return func() error {
			granted, err := l.take()
			if granted {
				admitted()
			}
			return err
		}, nil
	}
}

// runRaces shows what each way admits, by windows and by a bucket.
func runRaces(o Options) (*Report, error) {
	r := &Report{}
	t := Table{
		Title:  fmt.Sprintf("admitted a second of a limit of %d a second, over %d s", raceLimit, raceSeconds-1),
		Header: []string{"calls/s", "round trip", "algorithm", "read, then written", "checked, then counted", "one atomic step"},
	}
	chart := Chart{Title: "Check-then-act: the count of a second, read and written in two steps", X: "calls a second, round trip", Y: "admitted a second", Limit: raceLimit}
	for _, race := range races {
		traffic := fmt.Sprintf("%.0f calls/s and a round trip of %s", race.calls, race.roundTrip)
		for i, algorithm := range limitsASecond {
			readThenWritten := []way{windowReadThenWritten, bucketReadThenWritten}[i]
			cells := []any{int(race.calls), race.roundTrip.String(), algorithm.name}
			for _, w := range []way{readThenWritten, checkedThenCounted(algorithm.limit), atomically(algorithm.limit)} {
				admitted, err := runRace(o.Seed, race, w)
				if err != nil {
					return nil, err
				}
				cells = append(cells, admitted)
			}
			t.row(cells...)
			if i > 0 {
				continue
			}
			lost, atomic := cells[3].(float64), cells[5].(float64)
			chart.Bars = append(chart.Bars, Bar{fmt.Sprintf("%.0f, %s", race.calls, race.roundTrip), lost})
			r.check("check-then-act, admitted a second at "+traffic, lost, race.published, 0.03)
			r.check("atomic, admitted a second at "+traffic, atomic, raceLimit, 0)
		}
	}
	r.Tables, r.Charts = []Table{t}, []Chart{chart}
	return r, nil
}
