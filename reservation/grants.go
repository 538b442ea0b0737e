package reservation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// GrantStore keeps what grants covered.
type GrantStore interface {
	// SaveGrantUses keeps uses in place of those before of each grant that they
	// name, unless the grant is another now than in the policy that they were
	// worked out from. It reports whether anything changed; then a policy with
	// them comes into force. Any number of nodes may save the same.
	SaveGrantUses(ctx context.Context, uses []quota.GrantUse, seen *quota.Policy) (bool, error)
}

// GrantKeeper notes what grants covered of periods that have ended, and of those
// in which a grant has, so that the rest can be carried over. Any node may do
// it, any number of times.
type GrantKeeper struct {
	broker *Broker
	store  GrantStore
	again  time.Time // when ended periods were last looked at again
	unsure bool      // what was worked out may count something twice
}

// NewGrantKeeper makes a GrantKeeper that uses the broker's engine, ledger and
// policies.
func NewGrantKeeper(b *Broker, store GrantStore) *GrantKeeper {
	return &GrantKeeper{broker: b, store: store}
}

// How often a GrantKeeper looks, and how much it does at once.
const (
	keepInterval  = time.Second
	againInterval = time.Minute // for late Refunds
	keepRounds    = 64          // periods of one grant
	keepDeadline  = 10 * time.Second
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
				k.broker.config.Logger.Warn("what grants covered can't be noted; they add nothing to new periods until it is", "error", err)
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

// Keep looks once.
//
// Errors: ErrUnavailable, ledger errors, those of the store. What was worked out
// before the error is kept.
func (k *GrantKeeper) Keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keepDeadline)
	defer cancel()
	policy, now := k.broker.Policies.Current(), k.broker.now()
	again := k.unsure || now.Sub(k.again) >= againInterval || now.Before(k.again)
	k.unsure = false
	uses, err := policy.Settle(now, again, keepRounds, func(asked []quota.Settling) ([]quota.Amount, error) {
		used, unsure, err := k.broker.periodUse(ctx, asked)
		k.unsure = k.unsure || unsure
		return used, err
	})
	if len(uses) > 0 {
		if _, saveErr := k.store.SaveGrantUses(ctx, uses, policy); saveErr != nil {
			return errors.Join(err, saveErr)
		}
	}
	if err == nil && again {
		k.again = now
	}
	return err
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
			asked = append(asked, quota.Settling{Account: name, Limit: limit, Period: account.PeriodAt(limit.Limit.Period, now)})
		}
	}
	used, _, err := b.periodUse(ctx, asked)
	if err != nil {
		return nil, err
	}
	left := make(map[string]quota.Amount, len(account.Grants))
	for i := range asked {
		maps.Copy(left, policy.GrantsLeft(account, asked[i].Limit, asked[i].Period, now, used[i]))
	}
	return left, nil
}

// periodUse reads what was used of each period: in the ledger, and what only the
// engine knows of: what waits for the ledger and, of a period that is over,
// what open reservations still hold. The engine is asked first: what reaches
// the ledger in between is counted twice rather than not at all; unsure says
// that it may have been.
func (b *Broker) periodUse(ctx context.Context, asked []quota.Settling) (used []quota.Amount, unsure bool, err error) {
	levels, err := b.levelsOf(ctx, asked)
	if err != nil {
		return nil, false, err
	}
	keys := make([]ledger.UsageKey, len(asked))
	for i, a := range asked {
		keys[i] = ledger.UsageKey{Account: a.Account, Limit: a.Limit.ID, Scope: a.Limit.Scope, Period: a.Period.Key, Meter: a.Limit.Limit.Meter}
	}
	amounts := make([]quota.Amount, 0, len(asked))
	for part := range slices.Chunk(keys, ledger.MaxAppend) {
		rows, err := b.Ledger.Usage(ctx, part)
		if err != nil {
			return nil, false, err
		}
		for _, row := range rows {
			level := &levels[len(amounts)]
			if level.Unposted > 0 && level.Version != row.Version {
				unsure = true
			}
			sum := countable(row.Used) + level.Unposted // three amounts of 53 bits can't leave 64
			if asked[len(amounts)].Over {
				sum += level.Held
			}
			amounts = append(amounts, sum)
		}
	}
	return amounts, unsure, nil
}

// levelsOf asks the engine for the counters.
func (b *Broker) levelsOf(ctx context.Context, asked []quota.Settling) ([]Level, error) {
	byAccount := map[string][]int{}
	for i, a := range asked {
		byAccount[a.Account] = append(byAccount[a.Account], i)
	}
	all := make([]Level, len(asked))
	for account, at := range byAccount {
		holds := make([]Hold, len(at))
		for i, n := range at {
			a := &asked[n]
			holds[i] = Hold{
				Counter: Counter{Limit: a.Limit.ID, Scope: a.Limit.Scope},
				Kind:    quota.KindQuota, Max: a.Limit.Limit.Max, Period: a.Period, OnExpiry: a.Limit.Limit.OnExpiry,
			}
		}
		levels, err := allLevels(ctx, b.Store, account, holds)
		if err != nil {
			return nil, fmt.Errorf("what is open of %q: %w", account, err)
		}
		for i, n := range at {
			all[n] = levels[i]
		}
	}
	return all, nil
}
