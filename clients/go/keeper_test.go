package budget

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// rhythm is a keeper with the instants at which it renews, and what it tells.
type rhythm struct {
	*keeper
	log      sync.Mutex // of what follows
	began    time.Time
	at       []time.Duration
	told     []map[string]int64 // nil: nothing, and no verdict is asked for
	answer   func(told *budgetv1.Usage) (renewed, error)
	ctx      context.Context
	verdicts []Renewal
}

// keeping runs a test of a keeper in time that passes by itself.
func keeping(t *testing.T, lease time.Duration, change func(*rhythm), test func(*rhythm)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rhythm{keeper: &keeper{id: "reservation", lease: lease}, began: time.Now()}
		r.answer = func(*budgetv1.Usage) (renewed, error) {
			return renewed{Renewal: Renewal{Verdict: Continue}, left: lease}, nil
		}
		r.ctx, r.stopCall = context.WithCancelCause(t.Context())
		r.renew = func(_ context.Context, told *budgetv1.Usage) (renewed, error) {
			r.log.Lock()
			defer r.log.Unlock()
			r.at = append(r.at, time.Since(r.began))
			if told == nil {
				r.told = append(r.told, nil)
			} else {
				r.told = append(r.told, told.Amounts)
			}
			return r.answer(told)
		}
		if change != nil {
			change(r)
		}
		r.begin(t.Context(), lease)
		test(r)
		r.stop()
	})
}

// renewals is how many there were.
func (r *rhythm) renewals() int {
	r.log.Lock()
	defer r.log.Unlock()
	return len(r.at)
}

// pass lets time pass, and then what is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func tokens(n int64) map[string]int64 { return map[string]int64{"tokens": n} }

// Without a usage a lease is renewed at thirds of it, and nothing is asked.
func TestRenewsAtThirds(t *testing.T) {
	keeping(t, 10*time.Minute, nil, func(r *rhythm) {
		pass(time.Hour - 1)
		if len(r.at) != 17 || r.at[0] != 200*time.Second || r.told[0] != nil {
			t.Errorf("in an hour renewals at %v", r.at)
		}
	})
}

// Who tells what it used hears of it within seconds, however long the lease, and
// however often it tells.
func TestTellsSoon(t *testing.T) {
	const capacity = 100_000
	answer := func(told *budgetv1.Usage) (renewed, error) {
		left := capacity - told.GetAmounts()["tokens"]
		v := Continue
		if left <= 0 {
			left, v = 0, Stop
		}
		return renewed{Renewal: Renewal{Verdict: v, Remaining: tokens(left)}, left: time.Hour}, nil
	}
	keeping(t, 10*time.Minute, func(r *rhythm) { r.answer = answer }, func(r *rhythm) {
		for i := range int64(20_000) { // 1,000 a second
			r.setUsed(tokens(i))
			time.Sleep(time.Millisecond)
		}
		// The first tells at once; then a tenth of what is left takes ten seconds.
		if n := r.renewals(); n < 2 || n > 4 {
			t.Errorf("20,000 tellings made %d renewals, at %v", n, r.at)
		}
		for used := int64(20_000); r.ctx.Err() == nil && used < 2*capacity; used += 10_000 {
			r.setUsed(tokens(used))
			pass(100 * time.Millisecond)
		}
		var stopped *StoppedError
		if !errors.As(context.Cause(r.ctx), &stopped) || stopped.Renewal.Verdict != Stop || stopped.Err != nil {
			t.Errorf("the cause is %v", context.Cause(r.ctx))
		}
		if took := time.Since(r.began); took > 22500*time.Millisecond {
			t.Errorf("STOP was heard after %v", took)
		}
		r.log.Lock()
		for i := 1; i < len(r.at); i++ {
			if apart := r.at[i] - r.at[i-1]; apart < closestRenewals {
				t.Errorf("two renewals %v apart", apart)
			}
		}
		r.log.Unlock()
		// Its lease is kept until it ends.
		before := r.renewals()
		pass(time.Hour)
		if n := r.renewals() - before; n < 17 || n > 18 {
			t.Errorf("%d renewals in an hour after STOP", n)
		}
	})
}

// What was told does not fall, and no meter too many is told.
func TestToldNeverFalls(t *testing.T) {
	keeping(t, time.Minute, nil, func(r *rhythm) {
		for _, n := range []int64{500, 300, -1, 400} {
			r.setUsed(tokens(n))
		}
		r.setUsed(map[string]int64{"seconds": -7, "\xff": 1})
		for i := range 100 {
			r.setUsed(map[string]int64{fmt.Sprintf("meter%d", i): 1})
		}
		pass(2 * time.Second)
		if len(r.told) != 1 || r.told[0]["tokens"] != 500 || r.told[0]["seconds"] != 0 || len(r.told[0]) != maxTold {
			t.Errorf("told %v", r.told)
		}
	})
}

// In an envelope a lease may end before its time, and is renewed by what is left.
func TestRenewsByWhatIsLeft(t *testing.T) {
	left := 9 * time.Second
	ends := time.Duration(0)
	keeping(t, time.Minute, func(r *rhythm) {
		r.inside = true
		r.answer = func(*budgetv1.Usage) (renewed, error) {
			ends = 30 * time.Second
			if left = ends - time.Since(r.began); left <= 0 {
				return renewed{}, fmt.Errorf("%w: by the broker", ErrEnded)
			}
			return renewed{left: left}, nil
		}
	}, func(r *rhythm) {
		pass(time.Minute)
		if len(r.at) < 4 || len(r.at) > 12 || r.at[len(r.at)-1] > ends+closestRenewals {
			t.Errorf("renewals at %v", r.at)
		}
		var stopped *StoppedError
		if !errors.As(context.Cause(r.ctx), &stopped) || !errors.Is(stopped, ErrEnded) {
			t.Errorf("the cause is %v", context.Cause(r.ctx))
		}
	})
}

// A call that is neither in an envelope nor given verdicts goes on when its lease is
// lost, as a late Refund counts.
func TestLostLeaseOfAnOrdinaryCall(t *testing.T) {
	keeping(t, time.Minute, func(r *rhythm) {
		r.answer = func(*budgetv1.Usage) (renewed, error) { return renewed{}, ErrEnded }
	}, func(r *rhythm) {
		pass(time.Hour)
		if len(r.at) != 1 || r.ctx.Err() != nil {
			t.Errorf("renewals at %v, and the context: %v", r.at, r.ctx.Err())
		}
	})
}

// A usage that the broker refuses costs the verdicts, and not the lease.
func TestUsageThatIsRefused(t *testing.T) {
	keeping(t, time.Minute, func(r *rhythm) {
		r.answer = func(told *budgetv1.Usage) (renewed, error) {
			if told != nil {
				return renewed{}, connect.NewError(connect.CodeInvalidArgument, errors.New("usage.amounts[in_flight]"))
			}
			return renewed{left: time.Minute}, nil
		}
	}, func(r *rhythm) {
		r.setUsed(map[string]int64{"in_flight": 1})
		pass(90 * time.Second)
		if len(r.at) < 5 || r.told[0] == nil || r.told[1] != nil || r.ctx.Err() != nil {
			t.Errorf("renewals at %v telling %v; the context: %v", r.at, r.told, r.ctx.Err())
		}
	})
}

// A broker that is away changes no verdict, and is not asked more often for being told.
func TestVerdictsWhileNobodyAnswers(t *testing.T) {
	var away atomic.Bool
	keeping(t, time.Minute, func(r *rhythm) {
		r.onVerdict = func(v Renewal) { r.verdicts = append(r.verdicts, v) }
		r.answer = func(told *budgetv1.Usage) (renewed, error) {
			if away.Load() {
				return renewed{}, connect.NewError(connect.CodeUnavailable, errors.New("away"))
			}
			return renewed{Renewal: Renewal{Verdict: WindDown, Remaining: tokens(10)}, left: time.Minute}, nil
		}
	}, func(r *rhythm) {
		r.setUsed(tokens(90))
		pass(2 * time.Second)
		away.Store(true)
		before := r.renewals()
		for i := range int64(60_000) {
			r.setUsed(tokens(90 + i))
			time.Sleep(time.Millisecond)
		}
		if n := r.renewals() - before; n > 60 {
			t.Errorf("%d renewals in a minute of a broker that is away", n)
		}
		if r.ctx.Err() != nil || len(r.verdicts) != 1 {
			t.Errorf("verdicts %v, and the context: %v", r.verdicts, r.ctx.Err())
		}
		away.Store(false)
		pass(10 * time.Second)
		r.stop()
		if len(r.verdicts) != 1 || r.told[len(r.told)-1]["tokens"] != 90+59_999 {
			t.Errorf("verdicts %v, told at last %v", r.verdicts, r.told[len(r.told)-1])
		}
	})
}

// OnVerdict is called once for each change, one after the other, and with the last of
// those that came while it ran. It may end the call itself.
func TestOnVerdict(t *testing.T) {
	var verdict atomic.Int32
	var busy chan struct{}
	keeping(t, time.Minute, func(r *rhythm) {
		busy = make(chan struct{})
		r.onVerdict = func(v Renewal) {
			r.verdicts = append(r.verdicts, v)
			if len(r.verdicts) == 2 {
				<-busy
			}
			if v.Verdict == Stop {
				r.stop()
			}
		}
		r.answer = func(*budgetv1.Usage) (renewed, error) {
			return renewed{Renewal: Renewal{Verdict: Verdict(verdict.Load())}, left: time.Minute}, nil
		}
	}, func(r *rhythm) {
		pass(time.Second) // beside the renewals
		for _, next := range []Verdict{Continue, WindDown, WindDown, Continue, WindDown, Stop, Continue} {
			verdict.Store(int32(next))
			pass(10 * time.Second)
			if next == Stop {
				close(busy)
				synctest.Wait()
			}
		}
		var got []Verdict
		for _, v := range r.verdicts {
			got = append(got, v.Verdict)
		}
		if want := fmt.Sprint([]Verdict{WindDown, Continue, Stop}); fmt.Sprint(got) != want {
			t.Errorf("heard %v, want %s", got, want)
		}
	})
}
