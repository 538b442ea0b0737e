package simulate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/budgetd/budgetd/internal/fairness"
	"github.com/budgetd/budgetd/reservation"
)

const (
	fairRate    = 1000 // units a second, and the burst
	fairUnits   = 10   // a call
	fairSeconds = 60
	fairCame    = 20 * time.Second // of the late ones
	fairLeft    = 40 * time.Second
)

// member is an account that asks for so many units a second, at random, from an instant
// to another.
type member struct {
	name     string
	asks     float64
	from, to time.Duration
}

// crowd are accounts that use one limit of a pool.
type crowd struct {
	name    string
	short   string  // for charts
	unfair  float64 // the most that Jain's index may be without fair
	members []member
}

// ofSteady are accounts that ask for so much a second all the time.
func ofSteady(name, short string, unfair float64, asks ...float64) crowd {
	crowd := crowd{name: name, short: short, unfair: unfair}
	for i, a := range asks {
		crowd.members = append(crowd.members, member{fmt.Sprintf("%c, %.0f/s", 'a'+i, a), a, 0, fairSeconds * time.Second})
	}
	return crowd
}

var crowds = []crowd{
	ofSteady("a batch account and four steady ones", "batch and steady", 0.35, 9000, 200, 200, 200, 200),
	ofSteady("five that ask for half a share to nine times the limit", "half to nine times", 0.65, 9000, 3000, 1000, 6000, 100),
}

// lateCrowd is an account that asks for nine times the limit, and four that come when it
// has been alone for a while, ask for twice their share, and leave again.
var lateCrowd = crowd{name: "four come late", members: []member{
	{"greedy", 9000, 0, fairSeconds * time.Second},
	{"late 1", 400, fairCame, fairLeft}, {"late 2", 400, fairCame, fairLeft}, {"late 3", 400, fairCame, fairLeft}, {"late 4", 400, fairCame, fairLeft},
}}

// served is when one account asked, and when it was admitted.
type served struct{ asked, admitted []time.Duration }

// firstWait is how long its first admission took after its first call.
func (s served) firstWait() time.Duration {
	if len(s.admitted) == 0 {
		return fairSeconds * time.Second
	}
	return s.admitted[0] - s.asked[0]
}

// inSpan are the units admitted from an instant until before another.
func (s served) inSpan(from, to time.Duration) float64 {
	first, _ := slices.BinarySearch(s.admitted, from)
	end, _ := slices.BinarySearch(s.admitted, to)
	return float64((end - first) * fairUnits)
}

// until is how long after an instant a second begins in which so many units are admitted,
// and whether one does before the end.
func (s served) until(from, end time.Duration, units float64) (time.Duration, bool) {
	if s.inSpan(from, from+time.Second) >= units {
		return 0, true
	}
	for _, at := range s.admitted {
		if at >= from && at+time.Second <= end && s.inSpan(at, at+time.Second) >= units {
			return at - from, true
		}
	}
	return 0, false
}

// play has the crowd ask one limit of a pool for 60 seconds.
func (c crowd) play(seed uint64, fair bool) ([]served, error) {
	clock := newClock()
	hold := bucketOf(fairRate, time.Second)
	hold.Counter = reservation.Counter{Pool: "pool", Limit: "tokens"}
	hold.Amount, hold.Fair = fairUnits, fair
	l, err := newLimiter(clock, hold)
	if err != nil {
		return nil, err
	}
	seen := make([]served, len(c.members))
	for i, m := range c.members {
		calls := poisson(seeded(seed, uint64(i)), m.asks/fairUnits, m.to-m.from)
		for k := range calls {
			calls[k] += m.from
		}
		clock.each(calls, func() error {
			answer, err := l.store.Reserve(context.Background(), reservation.ReserveRequest{
				Account: m.name, ID: reservation.NewID(clock.now), Retention: retention, Settle: &reservation.Settlement{},
				Holds: []reservation.Hold{hold},
			})
			seen[i].asked = append(seen[i].asked, clock.elapsed())
			if answer.Verdict == reservation.Granted {
				seen[i].admitted = append(seen[i].admitted, clock.elapsed())
			}
			return err
		})
	}
	return seen, clock.run()
}

// sharing is what a limit came to, fair or not.
type sharing struct {
	accounts []served
	aSecond  []float64 // what each was admitted
	share    []float64 // and its max-min share
	index    float64   // Jain's, of the two
	all      float64   // what was admitted a second
}

func (c crowd) measure(seed uint64, fair bool) (sharing, error) {
	accounts, err := c.play(seed, fair)
	if err != nil {
		return sharing{}, err
	}
	s := sharing{accounts: accounts}
	var asked []float64
	for _, a := range accounts {
		asked = append(asked, float64(len(a.asked)*fairUnits)/fairSeconds)
		s.aSecond = append(s.aSecond, float64(len(a.admitted)*fairUnits)/fairSeconds)
	}
	s.share = fairness.MaxMin(asked, fairRate)
	for _, got := range s.aSecond {
		s.all += got
	}
	s.index = fairness.Jain(s.aSecond, s.share)
	return s, nil
}

// runFair shows what the accounts of a pool get of its limit, with fair and without.
func runFair(o Options) (*Report, error) {
	r := &Report{}
	summary := Table{
		Title:  "Jain's index of what each got of its max-min share: 1 where all are alike, 0.2 where one has all",
		Header: []string{"accounts", "fair", "not fair", "admitted, % of not fair"},
	}
	bars := Chart{Title: "How alike accounts are served: Jain's index of their max-min shares", Y: "Jain's index"}
	r.Tables = append(r.Tables, summary)
	for _, c := range crowds {
		fair, err := c.measure(o.Seed, true)
		if err != nil {
			return nil, err
		}
		without, err := c.measure(o.Seed, false)
		if err != nil {
			return nil, err
		}
		t := Table{
			Title:  fmt.Sprintf("%s: units a second of a limit of %d a second, over %d s, the first burst included", c.name, fairRate, fairSeconds),
			Header: []string{"account", "max-min share", "fair", "not fair", "first admitted after: fair", "not fair"},
		}
		for k, m := range c.members {
			t.row(m.name, fair.share[k], fair.aSecond[k], without.aSecond[k], inMillis(fair.accounts[k].firstWait()), inMillis(without.accounts[k].firstWait()))
		}
		r.Tables = append(r.Tables, t)
		r.Tables[0].row(c.name, inHundredths(fair.index), inHundredths(without.index), 100*fair.all/without.all)
		bars.Bars = append(bars.Bars, Bar{c.short + ", fair", fair.index}, Bar{c.short + ", not fair", without.index})
		r.checkAtLeast(c.name+": Jain's index, fair", fair.index, 0.95)
		r.checkAtMost(c.name+": Jain's index, not fair", without.index, c.unfair)
		r.checkAtLeast(c.name+": admitted, of what the unfair limit admits", fair.all/without.all, 0.98)
	}
	r.Charts = []Chart{bars}
	return r, showLate(r, o)
}

// showLate adds those who come late.
func showLate(r *Report, o Options) error {
	t := Table{
		Title:  fmt.Sprintf("%s: a greedy account alone for %s, then four that ask for %.0f a second each and leave after %s", lateCrowd.name, fairCame, lateCrowd.members[1].asks, fairLeft-fairCame),
		Header: []string{"limit", "greedy alone", "with the others", "each of the others", "first admitted after, latest", "has its share after, latest", "greedy alone again", "has all after"},
	}
	lines := Chart{Title: "Four accounts come at second 20 and leave at second 40", X: "second", Y: "admitted a second", Limit: fairRate}
	for _, fair := range []bool{true, false} {
		name := "not fair"
		if fair {
			name = "fair"
		}
		accounts, err := lateCrowd.play(o.Seed, fair)
		if err != nil {
			return err
		}
		greedy, late := accounts[0], accounts[1:]
		const share = float64(fairRate) / 5
		mean := func(s served, from, to time.Duration) float64 { return s.inSpan(from, to) / (to - from).Seconds() }
		var others, least float64
		var first, behind time.Duration
		has := true
		for i, s := range late {
			got := mean(s, fairCame, fairLeft)
			others += got / float64(len(late))
			if least = min(least, got); i == 0 {
				least = got
			}
			first = max(first, s.firstWait())
			wait, found := s.until(fairCame, fairLeft, 0.9*share)
			behind, has = max(behind, wait), has && found
		}
		again, all := greedy.until(fairLeft, fairSeconds*time.Second, 0.9*fairRate)
		alone := mean(greedy, time.Second, fairCame)
		t.row(name, alone, mean(greedy, fairCame, fairLeft), others, inMillis(first), orNever(behind, has), mean(greedy, fairLeft, fairSeconds*time.Second), orNever(again, all))
		aSecond := func(of ...served) (seconds []float64) {
			for second := range time.Duration(fairSeconds) {
				sum := 0.0
				for _, s := range of {
					sum += s.inSpan(second*time.Second, (second+1)*time.Second) / float64(len(of))
				}
				seconds = append(seconds, sum)
			}
			return seconds
		}
		lines.Lines = append(lines.Lines, Line{"greedy, " + name, aSecond(greedy)}, Line{"each of the four, " + name, aSecond(late...)})
		r.checkAtLeast("a greedy account alone, "+name+": admitted a second", alone, 0.99*fairRate)
		if !fair {
			r.checkAtMost("four come late, not fair: admitted a second of each", others, 0.5*share)
			continue
		}
		r.check("four come late, fair: has found its share (1: all have)", map[bool]float64{true: 1}[has], 1, 0)
		r.checkAtMost("four come late, fair: seconds until each has its share", behind.Seconds(), 1)
		r.checkAtLeast("four come late, fair: least admitted a second", least, 0.9*share)
		r.checkAtMost("four come late, fair: seconds until a first admission", first.Seconds(), 0.1)
		r.checkAtMost("four have left, fair: seconds until the greedy one has all", again.Seconds(), 1)
	}
	r.Tables, r.Charts = append(r.Tables, t), append(r.Charts, lines)
	return nil
}

func inMillis(d time.Duration) string { return d.Round(time.Millisecond).String() }

func inHundredths(f float64) string { return fmt.Sprintf("%.2f", f) }

func orNever(d time.Duration, is bool) string {
	if !is {
		return "never"
	}
	return inMillis(d)
}
