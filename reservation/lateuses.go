package reservation

import (
	"slices"
	"sync"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

const (
	// maxLate bounds the accounts that wait. What is beyond is found by an
	// auditor's walk.
	maxLate = 10_000
	// lateAgain is after how long an account is looked at once more: when its use
	// changed, this node may not have known yet that the period is settled.
	lateAgain = 5 * time.Second
	// lateMargin before its end a period counts as over: better looked at once
	// too often.
	lateMargin = 5 * time.Second
)

// lateUses remembers accounts with grants of which the use of a period changed
// in the ledger that is over: by a late Refund, an adjustment, a corrected price.
// What grants covered of it is worked out again then.
type lateUses struct {
	mu  sync.Mutex
	now time.Time // the engine's clock at the last tick; zero while nobody keeps grants

	waiting map[string]lateUse // by account
}

type lateUse struct {
	looked bool
	after  time.Time // of the engine's clock
}

func newLateUses() *lateUses { return &lateUses{waiting: map[string]lateUse{}} }

// tick takes over the engine's clock.
func (l *lateUses) tick(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = now
}

// note hears of usage rows that changed.
func (l *lateUses) note(policy *quota.Policy, usage []ledger.Usage) {
	for i := range usage {
		account := policy.Accounts[usage[i].Account]
		if usage[i].Limit == "" || len(account.Grants) == 0 {
			continue
		}
		l.mu.Lock()
		now := l.now
		l.mu.Unlock()
		if !now.IsZero() && isOver(policy, account, &usage[i], now) {
			l.add(account.Name)
		}
	}
}

// isOver says whether a row is of a period that is over, or that its quota has
// left, and of a counter that a grant adds to.
func isOver(policy *quota.Policy, account quota.Account, row *ledger.Usage, now time.Time) bool {
	name := quota.LimitName(row.Limit)
	adds := func(g quota.Grant) bool { return g.Limit == name && g.Scope == row.Scope }
	if !slices.ContainsFunc(account.Grants, adds) {
		return false
	}
	limits, err := policy.Limits(account.Name)
	if err != nil {
		return false
	}
	for i := range limits {
		if a := &limits[i]; a.Pool == "" && a.ID == row.Limit {
			return account.PeriodAt(a.Limit.Period, now.Add(lateMargin)).Key != row.Period
		}
	}
	return true
}

// add has the account looked at with the next tick, and once more.
func (l *lateUses) add(account string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, waits := l.waiting[account]; waits || len(l.waiting) < maxLate {
		l.waiting[account] = lateUse{}
	}
}

// take returns the accounts that are to be looked at now.
func (l *lateUses) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var accounts []string
	for account, use := range l.waiting {
		switch {
		case !use.looked:
			l.waiting[account] = lateUse{looked: true, after: l.now.Add(lateAgain)}
		case l.now.Before(use.after) && l.now.After(use.after.Add(-2*lateAgain)):
			continue
		default:
			delete(l.waiting, account)
		}
		accounts = append(accounts, account)
	}
	return accounts
}
