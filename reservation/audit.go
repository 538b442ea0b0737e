package reservation

import (
	"fmt"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// AuditCounter names a quota counter to be audited.
type AuditCounter struct {
	Counter Counter
	Period  quota.Period
}

// MaxAuditCounters bounds the counters of one AuditRequest, and MaxAuditRecords
// the records of an account that one step adds up. Nothing else can be served
// during that step: at the bound it takes Redis about as long as half of the time
// in which a Reserve has to be answered (BenchmarkAudit of redisstore).
const (
	MaxAuditCounters = 1024
	MaxAuditRecords  = 5000
)

// AuditRequest asks for an account's quota counters beside what its records add
// up to. With Repair, a counter whose Held or Unposted is not the sum of the
// records' shares is set to that sum in the same step.
//
// A held record's share of Held is its hold. One that waits for the ledger has a
// share of Unposted: what it charged, or its hold in full when its lease ended.
// A record takes part in a counter when its share is not 0. An audit ends no
// lease.
type AuditRequest struct {
	Account  string
	Counters []AuditCounter
	Repair   bool
}

// Validate returns an error that wraps [ErrBadRequest] and names the field
// unless the request is within its bounds.
func (r *AuditRequest) Validate() error {
	if err := ValidateAccount(r.Account); err != nil {
		return err
	}
	if len(r.Counters) > MaxAuditCounters {
		return badRequest("counters", "%d are given, at most %d are accepted", len(r.Counters), MaxAuditCounters)
	}
	for i := range r.Counters {
		c := &r.Counters[i]
		if err := c.Counter.validate(); err != nil {
			return fmt.Errorf("counters[%d]: %w", i, err)
		}
		if err := validateQuota(&c.Counter, &c.Period); err != nil {
			return fmt.Errorf("counters[%d]: %w", i, err)
		}
	}
	return nil
}

// CounterAudit is one quota counter: what it says, and what the records that
// take part in it add up to.
type CounterAudit struct {
	Counter     Counter
	PeriodKey   string
	Seeded      bool // of this incarnation; else Used and Version say nothing
	Used        quota.Amount
	Version     int64
	Held        quota.Amount // before a repair, as Unposted
	Unposted    quota.Amount
	HeldSum     quota.Amount // of the records
	UnpostedSum quota.Amount
	Repaired    bool
}

// AuditAnswer is an engine's answer to an Audit: a row for each counter that
// was named, in order, then those that only the records named, in the order of
// limit, scope and period.
type AuditAnswer struct {
	Counters []CounterAudit
	Records  int  // open, or waiting for the ledger
	Waiting  int  // of them, those that wait for the ledger; 0 with TooMany
	TooMany  bool // more than MaxAuditRecords: nothing was added up or repaired; sums are 0
	Now      time.Time
}
