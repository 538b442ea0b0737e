package reservation

import (
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/concurrency"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// The broker checks what callers send. The checks here are the engines' own:
// they see to it that whatever reaches a counter can be counted exactly and has
// a bound, and keep a broker's mistake away from it.

const (
	maxPerMicros  = int64(24 * time.Hour / time.Microsecond)
	maxNameBytes  = 1 << 10 // of an account, a pool, a limit or a period
	maxScopeBytes = 64 << 10
)

// ErrBadRequest says that a request to an engine is out of its bounds. Nothing
// was changed.
var ErrBadRequest = errors.New("request is out of bounds")

// boundError names the field of a request and its bound. It is ErrBadRequest.
type boundError struct{ field, problem string }

func (e *boundError) Error() string        { return e.field + ": " + e.problem }
func (e *boundError) Is(target error) bool { return target == ErrBadRequest }

func badRequest(field, format string, args ...any) error {
	return &boundError{field, fmt.Sprintf(format, args...)}
}

// ValidateAccount returns an error that wraps [ErrBadRequest] unless the name
// has 1 to 1,024 bytes.
func ValidateAccount(name string) error {
	if name == "" {
		return badRequest("account", "it is empty; name the account that is billed")
	}
	return checkSize("account", len(name), maxNameBytes)
}

func checkSize(field string, size, most int) error {
	if size > most {
		return badRequest(field, "it has %d bytes, at most %d are accepted", size, most)
	}
	return nil
}

func checkRange[N ~int64](field string, n, least, most N) error {
	if n < least || n > most {
		return badRequest(field, "%v is not between %v and %v", n, least, most)
	}
	return nil
}

func checkAmounts(field string, amounts []quota.Amount) error {
	if len(amounts) > MaxHolds {
		return badRequest(field, "%d amounts are given, at most %d are accepted", len(amounts), MaxHolds)
	}
	for _, amount := range amounts {
		if err := checkRange(field, amount, 0, quota.MaxAmount); err != nil {
			return err
		}
	}
	return nil
}

func (c *Counter) validate() error {
	if err := checkSize("pool", len(c.Pool), maxNameBytes); err != nil {
		return err
	}
	if err := checkSize("limit", len(c.Limit), maxNameBytes); err != nil {
		return err
	}
	return checkSize("scope", len(c.Scope), maxScopeBytes)
}

func validateQuota(c *Counter, p *quota.Period) error {
	if c.Pool != "" {
		return badRequest("pool", "a pool has buckets and slots, no quotas")
	}
	if !p.Start.Before(p.End) {
		return badRequest("period", "it must end after it starts")
	}
	return checkSize("period.key", len(p.Key), maxNameBytes)
}

func validateWindow(kind quota.Kind, w quota.Window) error {
	if w.Kind != kind || w.Calendar && kind != quota.KindFixedWindow {
		return badRequest("window", "it is of kind %d, calendar %t, and the hold of kind %d", w.Kind, w.Calendar, kind)
	}
	most := quota.MaxAmount
	if kind == quota.KindSlidingLog {
		most = quota.MaxLogUnits
	}
	if err := checkRange("window.max", w.Max, 1, most); err != nil {
		return err
	}
	return checkRange("window.length", w.Length, 1, maxPerMicros)
}

// Validate returns an error that wraps [ErrBadRequest] and names the field
// unless the hold can be counted.
func (h *Hold) Validate() error {
	if err := h.Counter.validate(); err != nil {
		return err
	}
	if err := checkRange("keep", h.Keep, 0, quota.MaxAmount); err != nil {
		return err
	}
	if err := h.validateRefusals(); err != nil {
		return err
	}
	if h.Fair && (h.Pool == "" || h.Kind != quota.KindBucket && h.Kind != quota.KindGCRA) {
		return badRequest("fair", "only a token bucket or a GCRA of a pool is shared")
	}
	most := quota.MaxAmount
	switch h.Kind {
	case quota.KindBucket, quota.KindGCRA, quota.KindLeakyQueue:
		if err := checkRange("bucket.capacity", h.Bucket.Capacity, 1, quota.MaxAmount); err != nil {
			return err
		}
		if err := checkRange("bucket.refill", h.Bucket.Refill, 1, quota.MaxAmount); err != nil {
			return err
		}
		if err := checkRange("bucket.per_micros", h.Bucket.PerMicros, 1, maxPerMicros); err != nil {
			return err
		}
		if err := checkRange("amount", h.Amount, 0, most); err != nil {
			return err
		}
		if h.Kind == quota.KindBucket {
			return checkRange("risk", h.Risk, 0, most-h.Amount)
		}
	case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
		if err := validateWindow(h.Kind, h.Window); err != nil {
			return err
		}
	case quota.KindSlots:
		most = 1
	case quota.KindQuota:
		if err := validateQuota(&h.Counter, &h.Period); err != nil {
			return err
		}
	default:
		return badRequest("kind", "%d is not a kind of limit", h.Kind)
	}
	if h.Risk != 0 {
		return badRequest("risk", "only a bucket has holds by forecast")
	}
	if err := checkRange("max", h.Max, 0, quota.MaxAmount); err != nil {
		return err
	}
	return checkRange("amount", h.Amount, 0, most)
}

// ValidateHolds returns an error that wraps [ErrBadRequest] and names the field
// unless there are at most [MaxHolds] valid holds, each on a counter of its own.
func ValidateHolds(holds []Hold) error {
	if len(holds) > MaxHolds {
		return badRequest("holds", "%d are given, at most %d are accepted", len(holds), MaxHolds)
	}
	for i := range holds {
		h := &holds[i]
		if err := h.Validate(); err != nil {
			return fmt.Errorf("holds[%d]: %w", i, err)
		}
		for j := range i {
			if holds[j].Counter == h.Counter && holds[j].Kind == h.Kind && holds[j].Period.Key == h.Period.Key {
				return badRequest(fmt.Sprintf("holds[%d]", i), "it takes from the same counter as holds[%d]; add the two amounts up", j)
			}
		}
	}
	return nil
}

// Validate returns an error that wraps [ErrBadRequest] and names the field
// unless the request is within its bounds.
func (r *ReserveRequest) Validate() error {
	if err := ValidateAccount(r.Account); err != nil {
		return err
	}
	if r.Settle == nil {
		if err := checkRange("lease", r.Lease, concurrency.MinLease, concurrency.MaxLease); err != nil {
			return err
		}
	} else if err := checkSize("outcome", len(r.Settle.Outcome), MaxOutcomeBytes); err != nil {
		return err
	}
	if err := validateRecord(r.Retention, r.Key, r.Token, r.Holds); err != nil {
		return err
	}
	if r.Settle != nil && r.Parent != (ID{}) {
		return badRequest("parent", "a charge is settled at once; only a reservation has a parent")
	}
	for i := range r.Holds {
		if r.Holds[i].Risk != 0 {
			return badRequest(fmt.Sprintf("holds[%d].risk", i), "the engine chooses it; state an output")
		}
	}
	if r.Line != nil {
		if err := r.Line.validate(r); err != nil {
			return err
		}
	}
	if err := checkRange("max_wait", r.MaxWait, 0, concurrency.MaxWait); err != nil {
		return err
	}
	if r.Settle != nil && r.MaxWait != 0 {
		return badRequest("max_wait", "a Charge never waits")
	}
	if r.Parent != (ID{}) && r.MaxWait != 0 {
		return badRequest("max_wait", "what is made in an envelope starts at once")
	}
	if !r.Decides() {
		return nil
	}
	if r.Output != nil {
		if r.Waits() {
			return badRequest("output", "what is chosen can't wait for its start; leave max_wait out, or the output")
		}
		if err := r.Output.validate(r); err != nil {
			return err
		}
	}
	return checkSize("token", len(r.Token)+decidedDigits+len(r.Holds)+1, MaxTokenBytes)
}

// validateRecord checks what an engine remembers of an open reservation.
func validateRecord(retention time.Duration, key string, token []byte, holds []Hold) error {
	if err := checkRange("retention", retention, 0, concurrency.MaxRetention); err != nil {
		return err
	}
	if err := checkSize("key", len(key), MaxKeyBytes); err != nil {
		return err
	}
	if err := checkSize("token", len(token), MaxTokenBytes); err != nil {
		return err
	}
	return ValidateHolds(holds)
}

// validateClosing allows a lease of 0, which a Charge has.
func validateClosing(account string, lease, retention time.Duration, actual []quota.Amount, outcome, token []byte) error {
	if err := ValidateAccount(account); err != nil {
		return err
	}
	if err := checkRange("lease", lease, 0, concurrency.MaxLease); err != nil {
		return err
	}
	if err := checkRange("retention", retention, 0, concurrency.MaxRetention); err != nil {
		return err
	}
	if err := checkSize("outcome", len(outcome), MaxOutcomeBytes); err != nil {
		return err
	}
	if err := checkSize("token", len(token), MaxTokenBytes); err != nil {
		return err
	}
	return checkAmounts("actual", actual)
}

// Validate returns an error that wraps [ErrBadRequest] and names the field
// unless the request is within its bounds.
func (r *RefundRequest) Validate() error {
	if err := validateClosing(r.Account, r.Lease, r.Retention, r.Actual, r.Outcome, r.Token); err != nil {
		return err
	}
	return ValidateHolds(r.Holds)
}

// Validate returns an error that wraps [ErrBadRequest] and names the field
// unless the request is within its bounds.
func (r *ConfirmRequest) Validate() error {
	if r.Rank != ledger.RankExpired && r.Rank != ledger.RankRefunded {
		return badRequest("rank", "%d is neither %d nor %d", r.Rank, ledger.RankExpired, ledger.RankRefunded)
	}
	if err := validateClosing(r.Account, r.Lease, r.Retention, r.Actual, r.Outcome, r.Token); err != nil {
		return err
	}
	if err := validateUsages(r.Usage, ledger.MaxLines); err != nil {
		return err
	}
	return ValidateHolds(r.Holds)
}

func validateUsages(usage []CounterUsage, most int) error {
	if len(usage) > most {
		return badRequest("usage", "%d counters are given, at most %d are accepted", len(usage), most)
	}
	for i := range usage {
		u := &usage[i]
		if err := validateUsage(&u.Counter, &u.Period, u.Used, u.Version); err != nil {
			return fmt.Errorf("usage[%d]: %w", i, err)
		}
	}
	return nil
}

// MaxPush is how many counters one [Store.Push] takes.
const MaxPush = 1024

// ValidatePush returns an error that wraps [ErrBadRequest] and names the field
// unless what is pushed is within its bounds.
func ValidatePush(account string, usage []CounterUsage) error {
	if err := ValidateAccount(account); err != nil {
		return err
	}
	return validateUsages(usage, MaxPush)
}

// Validate returns an error that wraps [ErrBadRequest] and names the field
// unless the request is within its bounds.
func (r *SeedRequest) Validate() error {
	if err := ValidateAccount(r.Account); err != nil {
		return err
	}
	return validateUsage(&r.Counter, &r.Period, r.Used, r.Version)
}

// validateUsage allows a usage below zero, as adjustments may leave it.
func validateUsage(c *Counter, p *quota.Period, used quota.Amount, version int64) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := validateQuota(c, p); err != nil {
		return err
	}
	if err := checkRange("used", used, -quota.MaxAmount, quota.MaxAmount); err != nil {
		return err
	}
	return checkRange("version", version, 0, int64(quota.MaxAmount))
}
