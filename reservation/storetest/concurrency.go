package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// callers is how many goroutines a concurrent case runs.
const callers = 64

// rounds is how often a concurrent case tries to meet a bad interleaving.
const rounds = 20

func runConcurrency(t *testing.T, newEngine New) { runCases(t, newEngine, concurrencyCases) }

var concurrencyCases = []testCase{
	{"ExactlyTenOfAHundred", exactlyTen},
	{"RefundsOnce", refundsOnce},
	{"OneOfConflictingRefunds", conflictingRefunds},
	{"OneKeyOneGrant", oneKey},
	{"OneIDOneGrant", oneID},
	{"SlotsNeverAbove", slotsNeverAbove},
	{"OppositePlans", oppositePlans},
	{"EndOfLeaseRaces", endOfLeaseRaces},
	{"SweepersShare", sweepersShare},
	{"SeedOnce", seedOnce},
	{"TrafficLeavesNothing", trafficLeavesNothing},
}

// together runs a function in many goroutines that start at once, and joins
// their errors.
func together(n int, run func(i int) error) error {
	var group sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, n)
	for i := range n {
		group.Go(func() {
			<-start
			errs[i] = run(i)
		})
	}
	close(start)
	group.Wait()
	return errors.Join(errs...)
}

// exactlyTen: 64 callers against a bucket of 1,000 that refills one a day.
// Whatever the interleaving, ten times 100 pass, in a scope never seen before.
func exactlyTen(ctx context.Context, engine Engine, clock *Clock) error {
	for round := range rounds {
		account := fmt.Sprintf("acme-%d", round)
		hold := aBucket("tokens", 100, 1000, 24*time.Hour)
		hold.Scope = "user=new"
		var granted atomic.Int64
		err := together(callers, func(int) error {
			answer, err := engine.Store.Reserve(ctx, ask(clock, account, hold))
			if answer.Verdict == reservation.Granted {
				granted.Add(1)
			} else if err == nil && answer.Verdict != reservation.Refused {
				err = fmt.Errorf("answered %s", nameIn(reserveNames, answer.Verdict))
			}
			return err
		})
		if err != nil {
			return err
		}
		if n := granted.Load(); n != 10 {
			return fmt.Errorf("round %d: %d of %d passed, not 10", round, n, callers)
		}
		if err := remaining(ctx, engine.Store, account, []reservation.Hold{hold}, 0); err != nil {
			return err
		}
	}
	return nil
}

// refundsOnce: one Refund sent many times at once settles once.
func refundsOnce(ctx context.Context, engine Engine, clock *Clock) error {
	hold := aBucket("tokens", 60, 100, 24*time.Hour)
	for round := range rounds {
		q := ask(clock, fmt.Sprintf("acme-%d", round), hold)
		if _, err := reserve(ctx, engine.Store, q, reservation.Granted); err != nil {
			return err
		}
		var settled atomic.Int64
		err := together(callers, func(int) error {
			answer, err := engine.Store.Refund(ctx, closing(q, "used 10", 10))
			switch {
			case err != nil:
				return err
			case answer.Verdict == reservation.RefundSettled:
				settled.Add(1)
			case answer.Verdict != reservation.RefundSame:
				return fmt.Errorf("answered %s", nameIn(refundNames, answer.Verdict))
			}
			if string(answer.Record.Outcome) != "used 10" {
				return fmt.Errorf("outcome %q", answer.Record.Outcome)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n := settled.Load(); n != 1 {
			return fmt.Errorf("round %d: %d Refunds settled, not 1", round, n)
		}
		if err := remaining(ctx, engine.Store, q.Account, q.Holds, 90); err != nil {
			return err
		}
	}
	return nil
}

// conflictingRefunds: different bodies at once; one stays, and everyone is
// told the same outcome.
func conflictingRefunds(ctx context.Context, engine Engine, clock *Clock) error {
	hold := aBucket("tokens", 60, 100, 24*time.Hour)
	for round := range rounds {
		q := ask(clock, fmt.Sprintf("acme-%d", round), hold)
		if _, err := reserve(ctx, engine.Store, q, reservation.Granted); err != nil {
			return err
		}
		outcomes := make([]string, callers)
		var settled atomic.Int64
		err := together(callers, func(i int) error {
			body := fmt.Sprintf("used %d", i%4)
			answer, err := engine.Store.Refund(ctx, closing(q, body, quota.Amount(i%4)))
			if err != nil {
				return err
			}
			outcomes[i] = string(answer.Record.Outcome)
			mine := outcomes[i] == body
			switch answer.Verdict {
			case reservation.RefundSettled:
				settled.Add(1)
			case reservation.RefundSame, reservation.RefundConflict:
				if mine != (answer.Verdict == reservation.RefundSame) {
					return fmt.Errorf("%q against %q is %s", body, outcomes[i], nameIn(refundNames, answer.Verdict))
				}
			default:
				return fmt.Errorf("answered %s", nameIn(refundNames, answer.Verdict))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n := settled.Load(); n != 1 {
			return fmt.Errorf("round %d: %d Refunds settled, not 1", round, n)
		}
		for _, outcome := range outcomes {
			if outcome != outcomes[0] {
				return fmt.Errorf("round %d: told both %q and %q", round, outcome, outcomes[0])
			}
		}
		var used quota.Amount
		if _, err := fmt.Sscanf(outcomes[0], "used %d", &used); err != nil {
			return err
		}
		if err := remaining(ctx, engine.Store, q.Account, q.Holds, 100-used); err != nil {
			return err
		}
	}
	return nil
}

// oneKey: the same key and body at once under different ids.
func oneKey(ctx context.Context, engine Engine, clock *Clock) error {
	hold := aBucket("tokens", 10, 1000, 24*time.Hour)
	for round := range rounds {
		account := fmt.Sprintf("acme-%d", round)
		var granted atomic.Int64
		err := together(callers, func(int) error {
			q := ask(clock, account, hold)
			q.Key = "key"
			answer, err := engine.Store.Reserve(ctx, q)
			switch {
			case err != nil:
				return err
			case answer.Verdict == reservation.Granted:
				granted.Add(1)
			case answer.Verdict != reservation.Replayed || answer.Record.State != reservation.StateHeld:
				return fmt.Errorf("answered %s, state %s", nameIn(reserveNames, answer.Verdict), stateName(answer.Record.State))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n := granted.Load(); n != 1 {
			return fmt.Errorf("round %d: %d were granted, not 1", round, n)
		}
		if err := remaining(ctx, engine.Store, account, []reservation.Hold{hold}, 990); err != nil {
			return err
		}
	}
	return nil
}

// oneID: the same request sent many times at once, without a key.
func oneID(ctx context.Context, engine Engine, clock *Clock) error {
	hold := aBucket("tokens", 10, 1000, 24*time.Hour)
	for round := range rounds {
		q := ask(clock, fmt.Sprintf("acme-%d", round), hold)
		var granted atomic.Int64
		err := together(callers, func(int) error {
			answer, err := engine.Store.Reserve(ctx, q)
			switch {
			case err != nil:
				return err
			case answer.Verdict == reservation.Granted:
				granted.Add(1)
			case answer.Verdict != reservation.Closed:
				return fmt.Errorf("answered %s", nameIn(reserveNames, answer.Verdict))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n := granted.Load(); n != 1 {
			return fmt.Errorf("round %d: %d were granted, not 1", round, n)
		}
		if err := remaining(ctx, engine.Store, q.Account, q.Holds, 990); err != nil {
			return err
		}
	}
	return nil
}

// slotsNeverAbove: callers come and go; the callers count who is inside.
func slotsNeverAbove(ctx context.Context, engine Engine, clock *Clock) error {
	const slots = 5
	hold := aSlot("slow", slots)
	var inside, granted atomic.Int64
	err := together(callers, func(int) error {
		for range rounds {
			q := ask(clock, "acme", hold)
			answer, err := engine.Store.Reserve(ctx, q)
			if err != nil {
				return err
			}
			if answer.Verdict != reservation.Granted {
				continue
			}
			granted.Add(1)
			if n := inside.Add(1); n > slots {
				return fmt.Errorf("%d are inside, at most %d may be", n, slots)
			}
			inside.Add(-1)
			if _, err := refund(ctx, engine.Store, closing(q, "done", 0), reservation.RefundSettled); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if granted.Load() < slots {
		return fmt.Errorf("only %d were granted", granted.Load())
	}
	return remaining(ctx, engine.Store, "acme", []reservation.Hold{hold}, slots)
}

// oppositePlans: plans that name the same counters in opposite orders neither
// lock each other out nor take parts.
func oppositePlans(ctx context.Context, engine Engine, clock *Clock) error {
	a, b := aBucket("a", 1, 100, 24*time.Hour), aBucket("b", 2, 100, 24*time.Hour)
	var granted atomic.Int64
	err := together(callers, func(i int) error {
		q := ask(clock, "acme", a, b)
		if i%2 == 1 {
			q.Holds = []reservation.Hold{b, a}
		}
		answer, err := engine.Store.Reserve(ctx, q)
		if answer.Verdict == reservation.Granted {
			granted.Add(1)
		}
		return err
	})
	if err != nil {
		return err
	}
	if n := granted.Load(); n != 50 {
		return fmt.Errorf("%d were granted, not 50", n)
	}
	return remaining(ctx, engine.Store, "acme", []reservation.Hold{a, b}, 50, 0)
}

// endOfLeaseRaces: at the lease's end a sweeper, a late Refund, a Renew and
// traffic meet. The spend is charged once, and nothing is freed twice.
func endOfLeaseRaces(ctx context.Context, engine Engine, clock *Clock) error {
	for round := range rounds {
		hold, slot := aBucket("tokens", 60, 100, 24*time.Hour), aSlot("slow", 2)
		account := fmt.Sprintf("acme-%d", round)
		q, other := ask(clock, account, hold, slot), ask(clock, account, slot)
		q.Lease, other.Lease = time.Second, time.Hour
		for _, r := range []reservation.ReserveRequest{q, other} {
			if _, err := reserve(ctx, engine.Store, r, reservation.Granted); err != nil {
				return err
			}
		}
		clock.Add(time.Second)
		var settled, reclaimed atomic.Int64
		err := together(16, func(i int) error {
			switch i % 4 {
			case 0:
				answer, err := engine.Store.Sweep(ctx, 100)
				reclaimed.Add(int64(answer.Expired))
				return err
			case 1:
				answer, err := engine.Store.Refund(ctx, closing(q, "late", 20, 0))
				reclaimed.Add(int64(answer.Reclaimed))
				if answer.Verdict == reservation.RefundSettled {
					settled.Add(1)
					if !answer.Record.Late {
						return errors.New("a Refund after the end is not late")
					}
				}
				return err
			case 2:
				answer, err := engine.Store.Renew(ctx, reservation.RenewRequest{Account: account, ID: q.ID, Lease: time.Hour})
				reclaimed.Add(int64(answer.Reclaimed))
				if answer.State == reservation.StateHeld {
					return errors.New("Renew revived an expired reservation")
				}
				return err
			default:
				answer, err := engine.Store.Reserve(ctx, ask(clock, account, aBucket("other", 1, 100, time.Second)))
				reclaimed.Add(int64(answer.Reclaimed))
				return err
			}
		})
		if err != nil {
			return err
		}
		if settled.Load() != 1 || reclaimed.Load() != 1 {
			return fmt.Errorf("round %d: %d Refunds settled and %d leases were reclaimed, not 1 and 1", round, settled.Load(), reclaimed.Load())
		}
		if err := remaining(ctx, engine.Store, account, []reservation.Hold{hold, slot}, 80, 1); err != nil {
			return err
		}
	}
	return nil
}

// sweepersShare: many sweepers at one instant hand out each closing once.
func sweepersShare(ctx context.Context, engine Engine, clock *Clock) error {
	const accounts, each = 20, 5
	hold := aBucket("tokens", 1, 100, 24*time.Hour)
	for i := range accounts * each {
		if _, err := reserve(ctx, engine.Store, ask(clock, fmt.Sprintf("acme-%d", i%accounts), hold), reservation.Granted); err != nil {
			return err
		}
	}
	clock.Add(defaultLease)
	var mu sync.Mutex
	seen, expired := map[reservation.ID]int{}, 0
	err := together(8, func(int) error {
		for range 1000 {
			answer, err := engine.Store.Sweep(ctx, 7)
			if err != nil {
				return err
			}
			mu.Lock()
			expired += answer.Expired
			for _, p := range answer.Pending {
				seen[p.ID]++
			}
			mu.Unlock()
			if !answer.More {
				return nil
			}
		}
		return errors.New("after 1,000 sweeps more is due")
	})
	if err != nil {
		return err
	}
	// A sweeper that saw nothing more may have been overtaken by another.
	rest, more, err := sweepAll(ctx, engine.Store, 100)
	if err != nil {
		return err
	}
	for _, p := range rest {
		seen[p.ID]++
	}
	if expired+more != accounts*each || len(seen) != accounts*each {
		return fmt.Errorf("%d leases were reclaimed and %d closings handed out, not %d", expired+more, len(seen), accounts*each)
	}
	for id, n := range seen {
		if n != 1 {
			return fmt.Errorf("closing %s was handed out %d times", id, n)
		}
	}
	return nil
}

// seedOnce: of many Seeds with one ticket, one is accepted.
func seedOnce(ctx context.Context, engine Engine, clock *Clock) error {
	hold := aQuota(clock, "daily", 10, 100)
	for round := range rounds {
		account := fmt.Sprintf("acme-%d", round)
		answer, err := reserve(ctx, engine.Store, ask(clock, account, hold), reservation.Unseeded)
		if err != nil {
			return err
		}
		var accepted atomic.Int64
		err = together(16, func(i int) error {
			ok, err := engine.Store.Seed(ctx, reservation.SeedRequest{
				Account: account, Counter: hold.Counter, Period: hold.Period, Ticket: answer.Tickets[0].Ticket, Used: 40, Version: int64(1 + i),
			})
			if ok {
				accepted.Add(1)
			}
			return err
		})
		if err != nil {
			return err
		}
		if n := accepted.Load(); n != 1 {
			return fmt.Errorf("round %d: %d Seeds were accepted, not 1", round, n)
		}
		if err := remaining(ctx, engine.Store, account, []reservation.Hold{hold}, 60); err != nil {
			return err
		}
	}
	return nil
}

// trafficLeavesNothing: reservations of all kinds end in all ways at once;
// when all have, every counter is as it was, but for what was really spent.
func trafficLeavesNothing(ctx context.Context, engine Engine, clock *Clock) error {
	const accounts, each = 4, 20
	holds := []reservation.Hold{aBucket("tokens", 3, 10_000, 24*time.Hour), aSlot("slow", 10_000), aQuota(clock, "daily", 5, 10_000)}
	for a := range accounts {
		if err := seedQuota(ctx, engine.Store, clock, fmt.Sprintf("acme-%d", a), holds[2], 0); err != nil {
			return err
		}
	}
	var spent [accounts]atomic.Int64
	err := together(16, func(g int) error {
		for i := range each {
			a := (g + i) % accounts
			q := ask(clock, fmt.Sprintf("acme-%d", a), holds...)
			if _, err := reserve(ctx, engine.Store, q, reservation.Granted); err != nil {
				return err
			}
			if i%3 == 0 {
				continue // a caller that crashes
			}
			spent[a].Add(2)
			if _, err := refund(ctx, engine.Store, closing(q, "used", 2, 0, 2), reservation.RefundSettled); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	clock.Add(defaultLease)
	pending, _, err := sweepAll(ctx, engine.Store, 50)
	if err != nil {
		return err
	}
	if len(pending) != 16*each {
		return fmt.Errorf("%d closings wait for the ledger, not %d", len(pending), 16*each)
	}
	err = together(8, func(g int) error {
		for i := g; i < len(pending); i += 8 {
			if _, err := engine.Store.Confirm(ctx, confirmation(pending[i])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for a := range accounts {
		account := fmt.Sprintf("acme-%d", a)
		levels, _, err := engine.Store.Levels(ctx, account, holds)
		if err != nil {
			return err
		}
		used := quota.Amount(spent[a].Load())
		if levels[0].Remaining != 10_000-used || levels[1].Remaining != 10_000 || levels[2].Held != 0 || levels[2].Unposted != 0 {
			return fmt.Errorf("account %s spent %d, and its counters show %+v", account, used, levels)
		}
	}
	if pending, expired, err := sweepAll(ctx, engine.Store, 50); err != nil || len(pending) != 0 || expired != 0 {
		return fmt.Errorf("after everything was confirmed a sweep found %d closings and %d leases (error %v)", len(pending), expired, err)
	}
	return nil
}
