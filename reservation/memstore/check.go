package memstore

import (
	"fmt"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// The broker checks what callers send. These checks keep a broker's mistake
// from reaching the counters.

const maxSpan = 24 * time.Hour // of a lease, and of a retention

func checkAccount(name string) error {
	if name == "" {
		return fmt.Errorf("account: it is empty; name the account that is billed")
	}
	return nil
}

func checkLease(lease time.Duration) error {
	if lease < time.Millisecond || lease > maxSpan {
		return fmt.Errorf("lease: %s is not between 1ms and %s", lease, maxSpan)
	}
	return nil
}

func checkRetention(retention time.Duration) error {
	if retention < 0 || retention > maxSpan {
		return fmt.Errorf("retention: %s is not between 0 and %s", retention, maxSpan)
	}
	return nil
}

func checkBytes(field string, n, most int) error {
	if n > most {
		return fmt.Errorf("%s: it has %d bytes, at most %d are accepted", field, n, most)
	}
	return nil
}

func checkAmounts(field string, amounts []quota.Amount) error {
	if len(amounts) > reservation.MaxHolds {
		return fmt.Errorf("%s: %d are stated, at most %d are accepted", field, len(amounts), reservation.MaxHolds)
	}
	for i, amount := range amounts {
		if err := amount.Check(); err != nil {
			return fmt.Errorf("%s[%d]: %w", field, i, err)
		}
	}
	return nil
}

func checkHolds(holds []reservation.Hold) error {
	if len(holds) > reservation.MaxHolds {
		return fmt.Errorf("holds: %d are stated, at most %d are accepted", len(holds), reservation.MaxHolds)
	}
	for i := range holds {
		h := &holds[i]
		if err := checkHold(h); err != nil {
			return fmt.Errorf("holds[%d]: %w", i, err)
		}
		for j := range i {
			if holds[j].Counter == h.Counter && holds[j].Kind == h.Kind && holds[j].Period.Key == h.Period.Key {
				return fmt.Errorf("holds[%d]: it is on the same counter as holds[%d], limit %q scope %q; a plan has one hold on a counter", i, j, h.Limit, h.Scope)
			}
		}
	}
	return nil
}

func checkHold(h *reservation.Hold) error {
	if err := h.Amount.Check(); err != nil {
		return fmt.Errorf("amount: %w", err)
	}
	switch h.Kind {
	case quota.KindBucket:
		b := &h.Bucket
		if b.Capacity < 1 || b.Capacity > quota.MaxAmount || b.Refill < 1 || b.Refill > quota.MaxAmount || b.PerMicros < 1 || b.PerMicros > maxSpan.Microseconds() {
			return fmt.Errorf("bucket: capacity %d and refill %d must be 1 to %d, per_micros %d must be 1 to %d", b.Capacity, b.Refill, quota.MaxAmount, b.PerMicros, maxSpan.Microseconds())
		}
		return nil
	case quota.KindSlots:
		if h.Amount > 1 {
			return fmt.Errorf("amount: a call takes 1 slot, not %d", h.Amount)
		}
	case quota.KindQuota:
		if !h.Period.Start.Before(h.Period.End) {
			return fmt.Errorf("period: it must end after it starts")
		}
		if h.Pool != "" {
			return fmt.Errorf("pool: %q has a quota; a pool is a bucket or slots", h.Pool)
		}
	default:
		return fmt.Errorf("kind: %d is not a kind of limit", h.Kind)
	}
	if err := h.Max.Check(); err != nil {
		return fmt.Errorf("max: %w", err)
	}
	return nil
}

func checkReserve(q *reservation.ReserveRequest) error {
	if err := checkAccount(q.Account); err != nil {
		return err
	}
	if q.Settle == nil {
		if err := checkLease(q.Lease); err != nil {
			return err
		}
	} else if err := checkBytes("outcome", len(q.Settle.Outcome), reservation.MaxOutcomeBytes); err != nil {
		return err
	}
	if err := checkRetention(q.Retention); err != nil {
		return err
	}
	if err := checkBytes("key", len(q.Key), reservation.MaxKeyBytes); err != nil {
		return err
	}
	if err := checkBytes("token", len(q.Token), reservation.MaxTokenBytes); err != nil {
		return err
	}
	return checkHolds(q.Holds)
}

func checkRefund(q *reservation.RefundRequest) error {
	if err := checkAccount(q.Account); err != nil {
		return err
	}
	if err := checkClosing(q.Lease, q.Retention, q.Token, q.Outcome); err != nil {
		return err
	}
	if err := checkAmounts("actual", q.Actual); err != nil {
		return err
	}
	return checkHolds(q.Holds)
}

// checkClosing allows a lease of 0, which a Charge has.
func checkClosing(lease, retention time.Duration, token, outcome []byte) error {
	if lease < 0 || lease > maxSpan {
		return fmt.Errorf("lease: %s is not between 0 and %s", lease, maxSpan)
	}
	if err := checkRetention(retention); err != nil {
		return err
	}
	if err := checkBytes("token", len(token), reservation.MaxTokenBytes); err != nil {
		return err
	}
	return checkBytes("outcome", len(outcome), reservation.MaxOutcomeBytes)
}

func checkRenew(q *reservation.RenewRequest) error {
	if err := checkAccount(q.Account); err != nil {
		return err
	}
	return checkLease(q.Lease)
}

func checkConfirm(q *reservation.ConfirmRequest) error {
	if err := checkAccount(q.Account); err != nil {
		return err
	}
	if q.Rank != ledger.RankExpired && q.Rank != ledger.RankRefunded {
		return fmt.Errorf("rank: %d is neither %d nor %d", q.Rank, ledger.RankExpired, ledger.RankRefunded)
	}
	if err := checkClosing(q.Lease, q.Retention, q.Token, q.Outcome); err != nil {
		return err
	}
	if err := checkAmounts("actual", q.Actual); err != nil {
		return err
	}
	for i := range q.Usage {
		u := &q.Usage[i]
		if err := checkUsage(u.Used, u.Version, u.Period, u.Counter); err != nil {
			return fmt.Errorf("usage[%d]: %w", i, err)
		}
	}
	return checkHolds(q.Holds)
}

func checkSeed(q *reservation.SeedRequest) error {
	if err := checkAccount(q.Account); err != nil {
		return err
	}
	return checkUsage(q.Used, q.Version, q.Period, q.Counter)
}

func checkUsage(used quota.Amount, version int64, period quota.Period, c reservation.Counter) error {
	if used < -quota.MaxAmount || used > quota.MaxAmount {
		return fmt.Errorf("used: %w: %d is not between %d and %d", quota.ErrOutOfRange, used, -quota.MaxAmount, quota.MaxAmount)
	}
	if version < 0 {
		return fmt.Errorf("version: %d is negative", version)
	}
	return checkHold(&reservation.Hold{Counter: c, Kind: quota.KindQuota, Period: period})
}
