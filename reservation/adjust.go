package reservation

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// AdjustRequest changes what an account has used of one quota, or of its
// totals, by hand. The two are separate sums: an adjustment of one leaves the
// other as it is.
type AdjustRequest struct {
	Account string
	Limit   string       // name of a quota; "" for the account's totals
	Meter   quota.Meter  // of the totals; with a limit "" or the limit's own
	Scope   string       // which counter of the limit, as HeldLimit shows it; "" for totals
	Period  string       // quota.Period.Key; "" for the current one
	Amount  quota.Amount // signed, not 0: above 0 uses more, below 0 gives back
	Reason  string       // 1 to ledger.MaxReasonBytes bytes
	By      string       // 1 to ledger.MaxByBytes bytes
	Key     string       // idempotency key, 1 to MaxKeyText bytes
}

// Adjusted is what an Adjust did.
type Adjusted struct {
	ID       [16]byte
	Usage    ledger.Usage // the row afterwards
	Replayed bool         // the key was known
}

// Adjust posts an adjustment and lets the engine know. A key is remembered for
// good, as long as the ledger keeps its adjustments.
//
// Errors: *InvalidError, ErrNotFound (account, limit), ErrKeyReused, ledger
// errors.
func (b *Broker) Adjust(ctx context.Context, r AdjustRequest) (Adjusted, error) {
	a, err := b.adjustment(r)
	if err != nil {
		return Adjusted{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.config.LedgerDeadline)
	defer cancel()
	usage, posted, err := b.Ledger.Adjust(ctx, a)
	switch {
	case errors.Is(err, ledger.ErrReused):
		return Adjusted{}, ErrKeyReused
	case err != nil:
		return Adjusted{}, inTime(err)
	}
	b.announce(ctx, []ledger.Usage{usage})
	return Adjusted{ID: a.ID, Usage: usage, Replayed: !posted}, nil
}

// inTime turns a deadline that has passed into the ledger's error for it.
func inTime(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ledger.ErrUnavailable) {
		return fmt.Errorf("%w: %w", ledger.ErrUnavailable, err)
	}
	return err
}

// adjustment is what the ledger is to post.
func (b *Broker) adjustment(r AdjustRequest) (ledger.Adjustment, error) {
	for _, text := range []struct {
		field, value string
		most         int
	}{{"idempotency_key", r.Key, MaxKeyText}, {"reason", r.Reason, ledger.MaxReasonBytes}, {"by", r.By, ledger.MaxByBytes}} {
		if err := checkText(text.field, text.value, text.most); err != nil {
			return ledger.Adjustment{}, err
		}
	}
	if r.Amount == 0 || r.Amount < -quota.MaxAmount || r.Amount > quota.MaxAmount {
		return ledger.Adjustment{}, &InvalidError{
			Field: "amount", Problem: fmt.Sprintf("%d is 0 or too large", r.Amount),
			Bound: fmt.Sprintf("-%d to %d, not 0", quota.MaxAmount, quota.MaxAmount),
		}
	}
	policy := b.Policies.Current()
	account, known := policy.Accounts[r.Account]
	if !known {
		return ledger.Adjustment{}, fmt.Errorf("account %q: %w", r.Account, ErrNotFound)
	}
	key, unit := ledger.UsageKey{Account: r.Account}, quota.PeriodMonth
	var err error
	if r.Limit == "" {
		key.Meter, err = totalsMeter(r)
	} else {
		unit, err = adjustedLimit(policy, r, &key)
	}
	if err != nil {
		return ledger.Adjustment{}, err
	}
	now := b.now()
	if key.Period, err = adjustedPeriod(account, unit, r.Period, account.PeriodAt(unit, now).Key); err != nil {
		return ledger.Adjustment{}, err
	}
	return ledger.Adjustment{
		ID:   adjustmentHash("adjustment", r.Account, r.Key),
		Body: adjustmentHash("body", r.Account, key.Limit, string(key.Meter), key.Scope, r.Period, fmt.Sprint(int64(r.Amount)), r.Reason),
		Key:  key, Amount: r.Amount, At: now, By: r.By, Reason: r.Reason,
	}, nil
}

// checkText refuses what is empty, too long, or can't be stored everywhere.
func checkText(field, text string, most int) error {
	problem := ""
	switch {
	case text == "":
		problem = "is empty"
	case len(text) > most:
		problem = fmt.Sprintf("has %d bytes", len(text))
	case !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0:
		problem = "is no text"
	default:
		return nil
	}
	return &InvalidError{Field: field, Problem: problem, Bound: fmt.Sprintf("1 to %d bytes of UTF-8 without NUL", most)}
}

func totalsMeter(r AdjustRequest) (quota.Meter, error) {
	if r.Scope != "" {
		return "", &InvalidError{Field: "scope", Problem: "an account's totals have none", Bound: "leave it out, or name a limit"}
	}
	if r.Meter == "" || r.Meter == quota.MeterInFlight {
		return "", &InvalidError{Field: "meter", Problem: fmt.Sprintf("%q is no meter of an account's totals", r.Meter), Bound: `a meter that calls use up, such as "cost" or "tokens"`}
	}
	if err := (quota.Amounts{r.Meter: 1}).Validate(); err != nil {
		return "", &InvalidError{Field: "meter", Problem: err.Error()}
	}
	return r.Meter, nil
}

// adjustedLimit fills in the row's limit, scope and meter, and returns over
// which periods the limit counts.
func adjustedLimit(policy *quota.Policy, r AdjustRequest, key *ledger.UsageKey) (quota.PeriodUnit, error) {
	limits, err := policy.Limits(r.Account)
	if err != nil {
		return "", err
	}
	for _, applied := range limits {
		limit := applied.Limit
		if applied.Pool != "" || limit.Name != r.Limit {
			continue
		}
		if limit.Kind != quota.KindQuota {
			return "", &InvalidError{Field: "limit", Problem: fmt.Sprintf("%q is no quota: the ledger holds nothing of it", r.Limit), Bound: "a quota of the account, or leave it out for the totals"}
		}
		if r.Meter != "" && r.Meter != limit.Meter {
			return "", &InvalidError{Field: "meter", Problem: fmt.Sprintf("limit %q counts %q, not %q", r.Limit, limit.Meter, r.Meter), Bound: "leave it out"}
		}
		if len(r.Scope) > ledger.MaxTextBytes {
			return "", &InvalidError{Field: "scope", Problem: fmt.Sprintf("has %d bytes", len(r.Scope)), Bound: fmt.Sprintf("at most %d bytes", ledger.MaxTextBytes)}
		}
		if err := limit.CheckScope(r.Scope); err != nil {
			return "", &InvalidError{Field: "scope", Problem: err.Error()}
		}
		key.Limit, key.Scope, key.Meter = applied.ID, r.Scope, limit.Meter
		return limit.Period, nil
	}
	return "", fmt.Errorf("limit %.64q of account %q: %w", r.Limit, r.Account, ErrNotFound)
}

// adjustedPeriod returns the key of a period of the account that is of the
// unit: the one that was asked for, or the current one.
func adjustedPeriod(account quota.Account, unit quota.PeriodUnit, asked, current string) (string, error) {
	if asked == "" {
		return current, nil
	}
	_, err := quota.PeriodFromKey(asked, account.TimeZone, account.AnchorDay)
	if err != nil {
		return "", &InvalidError{Field: "period", Problem: err.Error()}
	}
	if got, _, _, _, err := quota.ParsePeriodKey(asked); err != nil || got != unit {
		return "", &InvalidError{Field: "period", Problem: fmt.Sprintf("%q is a %s, and it counts by the %s", asked, got, unit), Bound: fmt.Sprintf("such as %q", current)}
	}
	return asked, nil
}

// adjustmentHash is the first 16 bytes of the SHA-256 of the texts, each after
// its length. Part of the stored layout.
func adjustmentHash(texts ...string) [16]byte {
	var b []byte
	for _, text := range texts {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}
