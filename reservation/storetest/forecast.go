package storetest

import (
	"context"
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// runForecast checks holds whose amount the engine chooses.
func runForecast(t *testing.T, newEngine New) {
	runCases(t, newEngine, forecastCases)
	t.Run("WithinTolerance", func(t *testing.T) {
		engine, clock := begin(t, newEngine)
		check(t, engine.Checks, func(rt *rapid.T) { withinTolerance(rt, engine, clock) })
	})
}

var forecastCases = []testCase{
	{"the largest grant that every limit takes", largestGrant},
	{"the maximum where the tolerance is used up", toleranceUsedUp},
	{"an open sum outlives a full bucket", riskOutlivesFullBucket},
	{"a lease that ends by charging charges the maximum", chargedMaximum},
	{"a restored forecast counts", restoredForecast},
	{"accounts share a pool's tolerance and the smallest grant", pooledForecast},
}

// perToken is a slope of one unit a token.
func perToken(tolerance quota.Amount) reservation.Slope {
	return reservation.Slope{PerToken: 1, Per: 1, Weight: 1, Tolerance: tolerance}
}

// call is a Reserve of fixed units and up to most tokens on each hold.
func call(clock *Clock, fixed quota.Amount, o reservation.Output, holds ...reservation.Hold) reservation.ReserveRequest {
	for i := range holds {
		if s := o.Slopes[i]; s.PerToken > 0 {
			holds[i].Amount = fixed + s.Weight*quota.Amount((s.Rest+s.PerToken*o.Asked)/s.Per)
		}
	}
	q := ask(clock, "acme", holds...)
	q.Output = &o
	return q
}

func largestGrant(ctx context.Context, e Engine, clock *Clock) error {
	tokens, money := aBucket("tokens", 0, 1000, time.Hour), aBucket("money", 0, 5000, time.Hour)
	// 2.5 units of money a token, rounded up once: 1 + 2.5 n.
	price := reservation.Slope{PerToken: 2_500_000, Per: 1_000_000, Weight: 1}
	o := reservation.Output{Asked: 3000, Least: 10, Forecast: 3000, Slopes: []reservation.Slope{perToken(0), price, {}}}
	q := call(clock, 1, o, tokens, money, aSlot("slow", 9))
	q.Lease = 24 * time.Hour
	answer, err := reserve(ctx, e.Store, q, reservation.Granted)
	if err != nil {
		return err
	}
	if answer.Decided.Tokens != 999 || answer.Levels[0].Remaining != 0 || answer.Levels[1].Remaining != 2501 {
		// 999 tokens of 1000; money 1 + ceil(2497.5).
		return fmt.Errorf("granted %d tokens, left %d and %d", answer.Decided.Tokens, answer.Levels[0].Remaining, answer.Levels[1].Remaining)
	}
	// The least does not fit any more, and nothing is taken.
	q = call(clock, 1, o, tokens, money, aSlot("slow", 9))
	refused, err := reserve(ctx, e.Store, q, reservation.Refused)
	if err != nil {
		return err
	}
	if r := refused.Refusal; r.Hold != 0 || r.Asked != 11 || r.Reason != reservation.RateLimited || !r.RetryAt.Equal(clock.Now().Add(11*time.Hour)) {
		return fmt.Errorf("refused %+v", r)
	}
	if err := remaining(ctx, e.Store, "acme", []reservation.Hold{tokens, money}, 0, 2501); err != nil {
		return err
	}
	clock.Add(11 * time.Hour)
	q.ID = reservation.NewID(clock.Now())
	answer, err = reserve(ctx, e.Store, q, reservation.Granted)
	if err == nil && answer.Decided.Tokens != 10 {
		err = fmt.Errorf("granted %d tokens, not the least", answer.Decided.Tokens)
	}
	return err
}

// expecting is a call of 100 tokens at most and 10 expected.
func expecting(clock *Clock, tolerance quota.Amount, hold reservation.Hold) reservation.ReserveRequest {
	o := reservation.Output{Asked: 100, Least: 100, Forecast: 10, Slopes: []reservation.Slope{perToken(tolerance)}}
	return call(clock, 0, o, hold)
}

func toleranceUsedUp(ctx context.Context, e Engine, clock *Clock) error {
	hold := aBucket("tokens", 0, 200, time.Hour)
	first := expecting(clock, 100, hold)
	for i, want := range []struct {
		forecast  bool
		left, sum quota.Amount
	}{{true, 190, 90}, {false, 90, 90}} {
		q := first
		q.ID = reservation.NewID(clock.Now())
		if i == 0 {
			q.ID = first.ID
		}
		answer, err := reserve(ctx, e.Store, q, reservation.Granted)
		if err != nil {
			return err
		}
		if l := answer.Levels[0]; answer.Decided.Forecast[0] != want.forecast || l.Remaining != want.left || l.Risk != want.sum {
			return fmt.Errorf("call %d: %+v, %+v", i, answer.Decided, l)
		}
	}
	// Neither fits now: the maximum is refused, and needs 10 more units.
	q := expecting(clock, 100, hold)
	answer, err := reserve(ctx, e.Store, q, reservation.Refused)
	if err != nil {
		return err
	}
	if r := answer.Refusal; r.Asked != 100 || !r.RetryAt.Equal(clock.Now().Add(10*time.Hour)) {
		return fmt.Errorf("refused %+v", r)
	}
	// The sum falls with the Refund, which charges what it was short by.
	if _, err := e.Store.Refund(ctx, closing(first, "used", 100)); err != nil {
		return err
	}
	q.ID = reservation.NewID(clock.Now())
	if answer, err = reserve(ctx, e.Store, q, reservation.Refused); err != nil {
		return err
	}
	if r := answer.Refusal; r.Asked != 10 || r.Remaining != 0 || answer.Levels[0].Risk != 0 {
		return fmt.Errorf("refused %+v with an open sum of %d", r, answer.Levels[0].Risk)
	}
	return nil
}

func riskOutlivesFullBucket(ctx context.Context, e Engine, clock *Clock) error {
	hold := aBucket("tokens", 0, 200, time.Millisecond)
	hold.Scope = "user=7"
	q := expecting(clock, 90, hold)
	q.Lease = 2 * time.Hour
	if _, err := reserve(ctx, e.Store, q, reservation.Granted); err != nil {
		return err
	}
	clock.Add(time.Hour)
	next := expecting(clock, 90, hold)
	answer, err := reserve(ctx, e.Store, next, reservation.Granted)
	if err != nil {
		return err
	}
	if answer.Decided.Forecast[0] || answer.Levels[0].Risk != 90 {
		return fmt.Errorf("%+v with an open sum of %d", answer.Decided, answer.Levels[0].Risk)
	}
	clock.Add(2 * time.Hour) // both leases end
	answer, err = reserve(ctx, e.Store, expecting(clock, 90, hold), reservation.Granted)
	if err == nil && (!answer.Decided.Forecast[0] || answer.Levels[0].Risk != 90) {
		err = fmt.Errorf("after the leases: %+v with an open sum of %d", answer.Decided, answer.Levels[0].Risk)
	}
	return err
}

func chargedMaximum(ctx context.Context, e Engine, clock *Clock) error {
	hold := aBucket("tokens", 0, 200, 24*time.Hour)
	hold.OnExpiry = quota.ExpiryCharge
	q := expecting(clock, 100, hold)
	if _, err := reserve(ctx, e.Store, q, reservation.Granted); err != nil {
		return err
	}
	clock.Add(q.Lease)
	answer, err := e.Store.Sweep(ctx, 10)
	if err != nil {
		return err
	}
	if len(answer.Pending) != 1 || answer.Pending[0].Record.Actual[0] != 100 {
		return fmt.Errorf("swept %+v", answer.Pending)
	}
	levels, _, err := e.Store.Levels(ctx, "acme", []reservation.Hold{hold})
	if err == nil && (levels[0].Remaining != 100 || levels[0].Risk != 0) {
		err = fmt.Errorf("the bucket shows %+v", levels[0])
	}
	return err
}

func restoredForecast(ctx context.Context, e Engine, clock *Clock) error {
	hold := aBucket("tokens", 0, 200, time.Hour)
	q := expecting(clock, 100, hold)
	if _, err := reserve(ctx, e.Store, q, reservation.Granted); err != nil {
		return err
	}
	e.LoseData()
	hold.Amount, hold.Risk = 10, 90
	verdict, err := e.Store.Restore(ctx, reservation.RestoreRequest{
		Account: "acme", ID: q.ID, Holds: []reservation.Hold{hold}, ExpiresAt: clock.Now().Add(time.Minute), Body: q.Body, Token: q.Token,
	})
	if err != nil || verdict != reservation.Restored {
		return fmt.Errorf("restored: %s, %w", nameIn(restoreNames, verdict), err)
	}
	answer, err := reserve(ctx, e.Store, expecting(clock, 100, aBucket("tokens", 0, 200, time.Hour)), reservation.Granted)
	if err != nil {
		return err
	}
	if l := answer.Levels[0]; answer.Decided.Forecast[0] || l.Remaining != 90 || l.Risk != 90 {
		return fmt.Errorf("%+v, %+v", answer.Decided, l)
	}
	if _, err := e.Store.Refund(ctx, closing(q, "used", 10)); err != nil {
		return err
	}
	levels, _, err := e.Store.Levels(ctx, "acme", []reservation.Hold{hold})
	if err == nil && levels[0].Risk != 0 {
		err = fmt.Errorf("the open sum is %d after the Refund", levels[0].Risk)
	}
	return err
}

func pooledForecast(ctx context.Context, e Engine, clock *Clock) error {
	shared, own := aBucket("tokens", 0, 1000, time.Hour), aBucket("calls", 0, 60, time.Hour)
	shared.Pool = "openai"
	o := reservation.Output{Asked: 100, Least: 20, Forecast: 10, Slopes: []reservation.Slope{perToken(80), perToken(0)}}
	for _, want := range []struct {
		account     string
		forecast    bool
		pool, limit quota.Amount
	}{{"acme", true, 990, 0}, {"globex", false, 930, 0}} {
		q := call(clock, 0, o, shared, own)
		q.Account = want.account
		answer, err := reserve(ctx, e.Store, q, reservation.Granted)
		if err != nil {
			return err
		}
		d, levels := answer.Decided, answer.Levels
		// On a Cluster the pool decides before the account is known to have less.
		if d.Tokens != 60 || !e.SplitPools && (d.Forecast[0] != want.forecast || levels[0].Remaining != want.pool) || levels[1].Remaining != want.limit {
			return fmt.Errorf("account %q: %+v, left %d and %d", want.account, d, levels[0].Remaining, levels[1].Remaining)
		}
		if levels[0].Risk > 80 {
			return fmt.Errorf("account %q: the open sum is %d", want.account, levels[0].Risk)
		}
	}
	return nil
}

// withinTolerance checks that calls which use up to their maximum, whatever was
// forecast for them, pass in any span at most C + r*T + the tolerance, and that the
// open sum is never above it.
func withinTolerance(t *rapid.T, engine Engine, clock *Clock) {
	ctx := context.Background()
	clock.Set(Epoch)
	engine.LoseData()
	capacity := quota.Amount(rapid.Int64Range(1, 1000).Draw(t, "capacity"))
	tolerance := quota.Amount(rapid.Int64Range(1, 4*int64(capacity)).Draw(t, "tolerance"))
	hold := reservation.Hold{
		Counter: reservation.Counter{Limit: "tokens", Scope: rapid.SampledFrom([]string{"", "user=7"}).Draw(t, "scope")},
		Kind:    quota.KindBucket, OnExpiry: quota.ExpiryGiveBack, Bucket: bucketOf(capacity, 10, time.Second),
	}
	perMicro := big.NewRat(10, 1_000_000)
	var flows []flow
	flowed := func(amount quota.Amount) { flows = append(flows, flow{clock.Now().UnixMicro(), amount}) }
	type held struct {
		reservation.ReserveRequest
		reservation.Taken
	}
	var open []held
	t.Repeat(map[string]func(*rapid.T){
		"": func(t *rapid.T) {
			levels, _, err := engine.Store.Levels(ctx, "acme", []reservation.Hold{hold})
			if err != nil {
				t.Fatalf("Levels: %v", err)
			}
			var sum quota.Amount
			for _, o := range open {
				sum += o.Risk
			}
			if l := levels[0]; l.Risk != sum || sum > tolerance || l.Remaining < -tolerance {
				t.Fatalf("the open sum is %d, of the calls %d, the tolerance %d, the level %d", l.Risk, sum, tolerance, l.Remaining)
			}
		},
		"time": func(t *rapid.T) {
			clock.Add(time.Duration(rapid.Int64Range(1, 3_000_000).Draw(t, "micros")) * time.Microsecond)
		},
		"reserve": func(t *rapid.T) {
			o := reservation.Output{Asked: rapid.Int64Range(0, 2*int64(capacity)).Draw(t, "asked")}
			o.Least = rapid.Int64Range(0, o.Asked).Draw(t, "least")
			o.Forecast = rapid.OneOf(rapid.Int64Range(0, o.Asked), rapid.Int64Range(0, min(3, o.Asked))).Draw(t, "forecast")
			o.Slopes = []reservation.Slope{{PerToken: rapid.Int64Range(1, 3).Draw(t, "per token"), Per: 2, Rest: 1, Weight: 1, Tolerance: tolerance}}
			q := call(clock, quota.Amount(rapid.Int64Range(0, 5).Draw(t, "input")), o, hold)
			q.Lease = 24 * time.Hour
			answer, err := engine.Store.Reserve(ctx, q)
			if err != nil {
				t.Fatalf("Reserve: %v", err)
			}
			if answer.Verdict == reservation.Granted {
				taken := o.Taken(q.Holds, answer.Decided)[0]
				open = append(open, held{q, taken})
				flowed(taken.Amount)
			}
		},
		"refund": func(t *rapid.T) {
			if len(open) == 0 {
				return
			}
			i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			o := open[i]
			open = append(open[:i:i], open[i+1:]...)
			most := int64(o.Amount + o.Risk)
			actual := quota.Amount(rapid.OneOf(rapid.Int64Range(0, most), rapid.Just(most)).Draw(t, "actual"))
			if _, err := engine.Store.Refund(ctx, closing(o.ReserveRequest, "used", actual)); err != nil {
				t.Fatalf("Refund: %v", err)
			}
			flowed(actual - o.Amount)
		},
	})
	if err := spans(flows, hold.Bucket.Capacity+tolerance, perMicro); err != nil {
		t.Fatal(err)
	}
}
