package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/budgetd/budgetd/internal/fairness"
	"github.com/budgetd/budgetd/reservation"
)

// runFairness plays accounts that ask for more than there is of one fair limit. What
// each gets is the same in every engine, to the call.
func runFairness(t *testing.T, newEngine New) {
	runCases(t, newEngine, []testCase{{"many accounts leave at once", manyLeave}})
	engine, clock := begin(t, newEngine)
	for _, c := range crowds {
		t.Run(c.name, func(t *testing.T) {
			fair, err := c.check(t.Context(), engine, clock, true)
			if err != nil {
				t.Error(err)
			}
			without, err := c.check(t.Context(), engine, clock, false)
			if err != nil {
				t.Error(err)
			}
			if fair.jain() < 0.95 || without.jain() > 0.7 || fair.all()*100 < 95*without.all() {
				t.Error("a fair limit is not fair, or loses what could be given out, or one that is not fair is")
			}
			t.Logf("Jain's index %.3f, without fair %.3f; admitted %d calls, without %d", fair.jain(), without.jain(), fair.all(), without.all())
		})
	}
}

// manyLeave checks that accounts whose instants have passed count no more, also those that
// an engine has not had the time to forget.
func manyLeave(ctx context.Context, e Engine, clock *Clock) error {
	hold := aBucket("tokens", 1, 1000, time.Millisecond)
	hold.Pool, hold.Fair = "org", true
	take := func(account string, want int) error {
		answer, err := reserve(ctx, e.Store, ask(clock, account, hold), reservation.Granted)
		if got := answer.Levels[0].Sharing; err == nil && got != want {
			err = fmt.Errorf("after %s took %d accounts share, not %d", account, got, want)
		}
		return err
	}
	seen := func(want int) error {
		levels, _, err := e.Store.Levels(ctx, "fresh", []reservation.Hold{hold})
		if got := levels[0].Sharing; err == nil && got != want {
			err = fmt.Errorf("%s after the beginning %d accounts share, not %d", clock.Now().Sub(Epoch), got, want)
		}
		return err
	}
	// The first has its share for 1 ms, the second for 2 ms, and so on.
	const many = 300
	for i := range many {
		if err := take(fmt.Sprint("account-", i), i+1); err != nil {
			return err
		}
	}
	clock.Add(many / 2 * time.Millisecond)
	if err := errors.Join(seen(many/2), take("fresh", many/2+1)); err != nil {
		return err
	}
	clock.Add(many * time.Millisecond)
	err := seen(0)
	for i := range 10 {
		err = errors.Join(err, take(fmt.Sprint("later-", i), i+1))
	}
	return errors.Join(err, seen(10))
}

// The limit of a crowd: a burst of as much as refills in a second, and calls of a
// hundredth of it.
const (
	crowdSeconds = 20
	crowdRate    = 1000 // units a second
	crowdUnits   = 10   // a call
)

// crowd are accounts that ask so many calls a second for [crowdSeconds].
type crowd struct {
	name    string
	asks    []float64
	fair    []int // the calls that each gets of a fair limit
	without []int // and of one that is not
}

var crowds = []crowd{
	{"one asks nine times as often as four that ask for a fifth each", []float64{180, 20, 20, 20, 20}, []int{643, 357, 350, 364, 360}, []int{1507, 146, 150, 150, 146}},
	{"all ask for half of it to nine times of it", []float64{180, 60, 20, 120, 10}, []int{550, 482, 346, 495, 201}, []int{979, 310, 92, 667, 51}},
}

// outcome is how many calls each account of a crowd asked for, and was admitted.
type outcome struct{ asked, got []int }

// check plays the crowd and says what is not as it should be.
func (c *crowd) check(ctx context.Context, engine Engine, clock *Clock, fair bool) (outcome, error) {
	clock.Set(Epoch)
	engine.LoseData()
	seen, err := c.play(ctx, engine.Store, clock, fair)
	want := c.without
	if fair {
		want = c.fair
	}
	if err == nil && !slices.Equal(seen.got, want) {
		err = fmt.Errorf("fair: %v: of %v calls %v were admitted, and %v should be", fair, seen.asked, seen.got, want)
	}
	return seen, err
}

// play has the accounts ask at random.
func (c *crowd) play(ctx context.Context, s reservation.Store, clock *Clock, fair bool) (outcome, error) {
	const ticks = 1000 // a second
	random := rand.New(rand.NewPCG(1, 2))
	hold := aBucket("tokens", crowdUnits, crowdRate, time.Second/crowdRate)
	hold.Pool, hold.Fair = "org", fair
	seen := outcome{make([]int, len(c.asks)), make([]int, len(c.asks))}
	for range crowdSeconds * ticks {
		for _, i := range random.Perm(len(c.asks)) {
			if random.Float64() >= c.asks[i]/ticks {
				continue
			}
			q := ask(clock, fmt.Sprint("account-", i), hold)
			q.Lease, q.Settle, q.Retention = 0, &reservation.Settlement{}, time.Second
			seen.asked[i]++
			switch answer, err := s.Reserve(ctx, q); {
			case err != nil:
				return seen, err
			case answer.Verdict == reservation.Granted:
				seen.got[i]++
			case answer.Verdict != reservation.Refused:
				return seen, fmt.Errorf("Reserve answered %s", nameIn(reserveNames, answer.Verdict))
			}
		}
		clock.Add(time.Second / ticks)
	}
	return seen, nil
}

// jain is Jain's index of what accounts got, the first burst included, of their max-min
// shares of the rate.
func (o outcome) jain() float64 {
	var asked, got []float64
	for i := range o.asked {
		asked, got = append(asked, float64(o.asked[i])), append(got, float64(o.got[i]))
	}
	return fairness.Jain(got, fairness.MaxMin(asked, crowdRate*crowdSeconds/crowdUnits))
}

// all is how many calls were admitted.
func (o outcome) all() int {
	sum := 0
	for _, calls := range o.got {
		sum += calls
	}
	return sum
}
