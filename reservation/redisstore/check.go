package redisstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// The broker checks what callers send. These checks see to it that whatever
// reaches a script can be counted exactly there and has a bound.

const (
	longestLease     = 24 * time.Hour
	longestRetention = 24 * time.Hour
	longestPer       = int64(24 * time.Hour / time.Microsecond)
	longestAccount   = 1 << 10 // bytes of an account's, pool's or limit's name
	longestScope     = 64 << 10
)

func checkAccount(name string) error {
	if name == "" {
		return errors.New("account: it is empty; name the account that is billed")
	}
	return checkSize("account", len(name), longestAccount)
}

func checkSpan(field string, d, least, most time.Duration) error {
	if d < least || d > most {
		return fmt.Errorf("%s: %s is not between %s and %s", field, d, least, most)
	}
	return nil
}

func checkSize(field string, size, most int) error {
	if size > most {
		return fmt.Errorf("%s: it has %d bytes, at most %d are accepted", field, size, most)
	}
	return nil
}

func checkCounter(c reservation.Counter) error {
	return errors.Join(
		checkSize("pool", len(c.Pool), longestAccount),
		checkSize("limit", len(c.Limit), longestAccount),
		checkSize("scope", len(c.Scope), longestScope),
	)
}

func checkHolds(holds []reservation.Hold) error {
	if len(holds) > reservation.MaxHolds {
		return fmt.Errorf("holds: %d are given, at most %d are accepted", len(holds), reservation.MaxHolds)
	}
	for i := range holds {
		if err := checkHold(&holds[i]); err != nil {
			return fmt.Errorf("holds[%d]: %w", i, err)
		}
		for j := range i {
			if holds[i].Counter == holds[j].Counter && holds[i].Kind == holds[j].Kind && holds[i].Period.Key == holds[j].Period.Key {
				return fmt.Errorf("holds[%d]: it takes from the same counter as holds[%d]; add the two amounts up", i, j)
			}
		}
	}
	return nil
}

func checkHold(h *reservation.Hold) error {
	if err := errors.Join(checkCounter(h.Counter), h.Amount.Check()); err != nil {
		return err
	}
	switch h.Kind {
	case quota.KindBucket:
		return errors.Join(
			checkRange("bucket.capacity", int64(h.Bucket.Capacity), 1, int64(quota.MaxAmount)),
			checkRange("bucket.refill", int64(h.Bucket.Refill), 1, int64(quota.MaxAmount)),
			checkRange("bucket.per_micros", h.Bucket.PerMicros, 1, longestPer),
		)
	case quota.KindSlots:
		return errors.Join(
			checkRange("amount", int64(h.Amount), 0, 1),
			checkRange("max", int64(h.Max), 0, int64(quota.MaxAmount)),
		)
	case quota.KindQuota:
		return errors.Join(
			checkQuota(h.Counter, h.Period),
			checkRange("max", int64(h.Max), 0, int64(quota.MaxAmount)),
		)
	}
	return fmt.Errorf("kind: %d is not a kind of limit", h.Kind)
}

func checkRange(field string, n, least, most int64) error {
	if n < least || n > most {
		return fmt.Errorf("%s: %d is not between %d and %d", field, n, least, most)
	}
	return nil
}

func checkQuota(c reservation.Counter, p quota.Period) error {
	if c.Pool != "" {
		return errors.New("pool: a pool has buckets and slots, no quotas")
	}
	if !p.Start.Before(p.End) {
		return errors.New("period: it must end after it starts")
	}
	return checkSize("period.key", len(p.Key), longestAccount)
}

// checkUsage allows a usage below zero, as adjustments may leave it.
func checkUsage(field string, c reservation.Counter, p quota.Period, used quota.Amount, version int64) error {
	if err := errors.Join(
		checkCounter(c),
		checkQuota(c, p),
		checkRange("used", int64(used), -int64(quota.MaxAmount), int64(quota.MaxAmount)),
		checkRange("version", version, 0, int64(quota.MaxAmount)),
	); err != nil {
		if field != "" {
			return fmt.Errorf("%s: %w", field, err)
		}
		return err
	}
	return nil
}

func checkReserve(r *reservation.ReserveRequest) error {
	errs := []error{
		checkAccount(r.Account),
		checkHolds(r.Holds),
		checkSpan("retention", r.Retention, 0, longestRetention),
		checkSize("key", len(r.Key), reservation.MaxKeyBytes),
		checkSize("token", len(r.Token), reservation.MaxTokenBytes),
	}
	if r.Settle == nil {
		errs = append(errs, checkSpan("lease", r.Lease, time.Millisecond, longestLease))
	} else {
		errs = append(errs, checkSize("outcome", len(r.Settle.Outcome), reservation.MaxOutcomeBytes))
	}
	return errors.Join(errs...)
}

// checkClosing allows a lease of 0, which a Charge has.
func checkClosing(account string, lease, retention time.Duration, actual []quota.Amount, outcome, token []byte) error {
	if len(actual) > reservation.MaxHolds {
		return fmt.Errorf("actual: %d amounts are given, at most %d are accepted", len(actual), reservation.MaxHolds)
	}
	for i, n := range actual {
		if err := n.Check(); err != nil {
			return fmt.Errorf("actual[%d]: %w", i, err)
		}
	}
	return errors.Join(
		checkAccount(account),
		checkSpan("lease", lease, 0, longestLease),
		checkSpan("retention", retention, 0, longestRetention),
		checkSize("outcome", len(outcome), reservation.MaxOutcomeBytes),
		checkSize("token", len(token), reservation.MaxTokenBytes),
	)
}

func checkRefund(r *reservation.RefundRequest) error {
	return errors.Join(
		checkClosing(r.Account, r.Lease, r.Retention, r.Actual, r.Outcome, r.Token),
		checkHolds(r.Holds),
	)
}

func checkConfirm(r *reservation.ConfirmRequest) error {
	errs := []error{
		checkClosing(r.Account, r.Lease, r.Retention, r.Actual, r.Outcome, r.Token),
		checkHolds(r.Holds),
	}
	if r.Rank != ledger.RankExpired && r.Rank != ledger.RankRefunded {
		errs = append(errs, fmt.Errorf("rank: %d is neither %d nor %d", r.Rank, ledger.RankExpired, ledger.RankRefunded))
	}
	if len(r.Usage) > ledger.MaxLines {
		errs = append(errs, fmt.Errorf("usage: %d counters are given, at most %d are accepted", len(r.Usage), ledger.MaxLines))
	} else {
		for i := range r.Usage {
			u := &r.Usage[i]
			errs = append(errs, checkUsage(fmt.Sprintf("usage[%d]", i), u.Counter, u.Period, u.Used, u.Version))
		}
	}
	return errors.Join(errs...)
}
