package reservation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// GrantStore keeps what grants covered.
type GrantStore interface {
	// SaveGrantUses keeps uses in place of those before of each grant that they
	// name, unless the grant or what is known of it is another now than in the
	// policy that they were worked out from. It reports whether anything changed;
	// then a policy with them comes into force. Any number of nodes may save the
	// same.
	SaveGrantUses(ctx context.Context, uses []quota.GrantUse, seen *quota.Policy) (bool, error)
}

// GrantKeeper opens grants for the periods that run, and notes what they covered
// of periods that are over and of those in which a grant has ended, so that the
// rest can be carried over. Any node may do it, any number of times. It goes by
// the engine's clock alone.
type GrantKeeper struct {
	broker   *Broker
	store    GrantStore
	policy   *quota.Policy        // that the schedule is of
	schedule *quota.GrantSchedule // of policy
	asked    int                  // the account that was asked last for the engine's clock
	waited   time.Time            // when what was open was looked at last
	failed   map[string]bool      // accounts that failed at the last look
}

// NewGrantKeeper makes a GrantKeeper that uses the broker's engine, ledger and
// policies.
func NewGrantKeeper(b *Broker, store GrantStore) *GrantKeeper {
	return &GrantKeeper{broker: b, store: store, failed: map[string]bool{}}
}

// How often a GrantKeeper looks, and how much it does at once.
const (
	keepInterval  = time.Second
	waitInterval  = time.Minute // between looks at what is still open of ended periods
	keepRounds    = 64          // periods of one grant
	keepDeadline  = 10 * time.Second
	keepWorkers   = 8   // accounts that are looked at at the same time
	keepAtOnce    = 500 // accounts whose uses one transaction saves
	keepClockAsks = 3   // accounts that are asked for the engine's clock
)

// Run keeps until ctx ends.
func (k *GrantKeeper) Run(ctx context.Context) {
	ticker := time.NewTicker(keepInterval)
	defer ticker.Stop()
	failing := false
	for {
		err := k.Keep(ctx)
		if failed := err != nil && ctx.Err() == nil; failed != failing {
			failing = failed
			if failed {
				k.broker.config.Logger.Warn("what grants covered can't be noted; of accounts of which it is not, grants add nothing to new periods", "error", err)
			} else {
				k.broker.config.Logger.Info("what grants covered is noted again")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Keep looks once, for at most 10 s. What it does not get to is due at the next
// look. An account that can't be looked at keeps no other one back.
//
// Errors: the first of ErrUnavailable, ledger errors and those of the store.
func (k *GrantKeeper) Keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keepDeadline)
	defer cancel()
	policy := k.broker.Policies.Current()
	if len(policy.Granted()) == 0 {
		return nil
	}
	now, err := k.engineNow(ctx, policy)
	if err != nil {
		return err
	}
	if k.policy != policy {
		k.policy, k.schedule = policy, policy.GrantSchedule(now)
	}
	looks := k.looks(policy, now)
	round := &keepRound{keeper: k, policy: policy, failed: map[string]bool{}}
	for part := range slices.Chunk(looks, keepAtOnce) {
		if ctx.Err() != nil {
			break
		}
		round.do(ctx, part)
	}
	k.failed = round.failed
	return round.err
}

// engineNow asks the engine for its clock, through one account after the other:
// the state of one may be damaged.
func (k *GrantKeeper) engineNow(ctx context.Context, policy *quota.Policy) (now time.Time, err error) {
	granted := policy.Granted()
	for range keepClockAsks {
		k.asked++
		if _, now, err = k.broker.Store.Levels(ctx, granted[k.asked%len(granted)], nil); err == nil {
			k.broker.late.tick(now)
			return now, nil
		}
	}
	return now, fmt.Errorf("the engine's clock: %w", err)
}

// grantLook is an account to be looked at.
type grantLook struct {
	account string
	again   quota.Again
}

// looks lists what is to be looked at. What failed the last time comes last.
func (k *GrantKeeper) looks(policy *quota.Policy, now time.Time) []grantLook {
	again := map[string]quota.Again{}
	var order []string
	add := func(account string, how quota.Again) {
		if _, listed := again[account]; !listed {
			order = append(order, account)
		}
		again[account] = max(again[account], how)
	}
	for _, account := range k.schedule.Due(now) {
		add(account, quota.AgainNothing)
	}
	if now.Sub(k.waited) >= waitInterval || now.Before(k.waited) {
		k.waited = now
		for _, account := range k.schedule.Waiting() {
			add(account, quota.AgainWaiting)
		}
	}
	for _, account := range k.broker.late.take() {
		if len(policy.Accounts[account].Grants) > 0 {
			add(account, quota.AgainAll)
		}
	}
	looks := make([]grantLook, 0, len(order))
	for _, failed := range [...]bool{false, true} {
		for _, account := range order {
			if k.failed[account] == failed {
				looks = append(looks, grantLook{account, again[account]})
			}
		}
	}
	return looks
}

// keepRound is what one look finds.
type keepRound struct {
	keeper *GrantKeeper
	policy *quota.Policy

	mu     sync.Mutex
	uses   []quota.GrantUse
	failed map[string]bool
	err    error // the first
}

// do looks at accounts, a few at the same time, and saves what it finds.
func (r *keepRound) do(ctx context.Context, looks []grantLook) {
	var workers errgroup.Group
	workers.SetLimit(keepWorkers)
	for _, look := range looks {
		workers.Go(func() error {
			if ctx.Err() == nil {
				r.look(ctx, look)
			}
			return nil
		})
	}
	_ = workers.Wait()
	if len(r.uses) == 0 {
		return
	}
	// What was found is kept also when the time is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepDeadline)
	defer cancel()
	if _, err := r.keeper.store.SaveGrantUses(ctx, r.uses, r.policy); err != nil && r.err == nil {
		r.err = err
	}
	r.uses = nil
}

func (r *keepRound) look(ctx context.Context, look grantLook) {
	b := r.keeper.broker
	_, now, err := b.Store.Levels(ctx, look.account, nil)
	var uses []quota.GrantUse
	posting := false
	if err == nil {
		uses, err = r.policy.Settle(look.account, now, look.again, keepRounds, func(asked []quota.Settling) ([]quota.Used, error) {
			used, unposted, err := b.periodUse(ctx, asked)
			posting = posting || unposted
			return used, err
		})
	}
	if look.again == quota.AgainAll && err != nil || look.again != quota.AgainAll && posting {
		b.late.add(look.account) // the next look will most likely know
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uses = append(r.uses, uses...)
	if err == nil {
		return
	}
	r.failed[look.account] = true
	if r.err == nil {
		r.err = fmt.Errorf("account %q: %w", look.account, err)
	}
}

// GrantsLeft returns, by name, what is left of each of the account's grants that
// are in force: what was used by now, and not what open reservations hold, is
// taken off.
//
// Errors: ErrNotFound (account), ErrUnavailable, ledger errors.
func (b *Broker) GrantsLeft(ctx context.Context, name string) (map[string]quota.Amount, error) {
	policy, now := b.Policies.Current(), b.now()
	account, known := policy.Accounts[name]
	if !known {
		return nil, fmt.Errorf("account %q: %w", name, ErrNotFound)
	}
	limits, err := policy.Limits(name)
	if err != nil {
		return nil, err
	}
	counted := map[Counter]bool{}
	var of []quota.Applied
	var asked []quota.Settling
	for i := range account.Grants {
		g := &account.Grants[i]
		at := slices.IndexFunc(limits, func(a quota.Applied) bool { return a.Pool == "" && a.Limit.Name == g.Limit })
		if at < 0 {
			continue
		}
		limit := limits[at]
		limit.Scope = g.Scope
		if counter := (Counter{Limit: limit.ID, Scope: limit.Scope}); !counted[counter] {
			counted[counter] = true
			of = append(of, limit)
			asked = append(asked, quota.Settling{
				Account: name, Limit: limit.ID, Scope: limit.Scope, Meter: limit.Limit.Meter, Period: account.PeriodAt(limit.Limit.Period, now),
			})
		}
	}
	used, _, err := b.periodUse(ctx, asked)
	if err != nil {
		return nil, err
	}
	left := make(map[string]quota.Amount, len(account.Grants))
	for i := range asked {
		maps.Copy(left, policy.GrantsLeft(account, of[i], asked[i].Period, now, used[i].Amount))
	}
	return left, nil
}

// periodUse reads what was used of each period of one account: in the ledger,
// and what only the engine knows of: what waits for the ledger and, of a period
// that is over, what open reservations still hold. The engine is asked first:
// what reaches the ledger in between is counted twice rather than not at all;
// unposted says that something was on its way there.
func (b *Broker) periodUse(ctx context.Context, asked []quota.Settling) (used []quota.Used, unposted bool, err error) {
	if len(asked) == 0 {
		return nil, false, nil
	}
	// A grant that ends in a period asks for it too.
	at := make([]int, len(asked))
	var holds []Hold
	var keys []ledger.UsageKey
	for i, a := range asked {
		key := ledger.UsageKey{Account: a.Account, Limit: a.Limit, Scope: a.Scope, Period: a.Period.Key, Meter: a.Meter}
		if at[i] = slices.Index(keys, key); at[i] >= 0 {
			continue
		}
		at[i] = len(keys)
		keys = append(keys, key)
		holds = append(holds, Hold{
			Counter: Counter{Limit: a.Limit, Scope: a.Scope}, Kind: quota.KindQuota, Max: quota.MaxAmount,
			Period: a.Period, OnExpiry: quota.ExpiryGiveBack,
		})
	}
	levels, err := allLevels(ctx, b.Store, asked[0].Account, holds)
	if err != nil {
		return nil, false, err
	}
	rows := make([]ledger.Usage, 0, len(keys))
	for part := range slices.Chunk(keys, ledger.MaxAppend) {
		some, err := b.Ledger.Usage(ctx, part)
		if err != nil {
			return nil, false, err
		}
		rows = append(rows, some...)
	}
	used = make([]quota.Used, len(asked))
	for i := range asked {
		level := &levels[at[i]]
		used[i].Amount = countable(rows[at[i]].Used) + level.Unposted // three amounts of 53 bits can't leave 64
		if asked[i].Over {
			used[i].Amount += level.Held
		}
		unposted = unposted || level.Unposted != 0
		used[i].Open = level.Unposted != 0 || level.Held != 0
	}
	return used, unposted, nil
}
