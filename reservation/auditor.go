package reservation

import (
	"context"
	"sync"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// AuditedCounter is one quota counter or usage row in an audit. The engine's
// values are 0 where it has no such counter.
type AuditedCounter struct {
	ledger.UsageKey
	LimitName string       // "" when the policy has no such limit any more, and for totals
	Entries   quota.Amount // sum of the ledger's entries
	Row       quota.Amount // the usage row
	Version   int64

	InEngine        bool // the engine has the counter, seeded
	Used            quota.Amount
	EngineVersion   int64
	Held            quota.Amount
	Unposted        quota.Amount
	HeldRecords     quota.Amount // what the engine's records add up to
	UnpostedRecords quota.Amount

	Gap      string // what differs, for people; "" when nothing does
	Repaired bool

	gaps auditGaps
	over bool // the period has ended: nothing is admitted from the counter any more
}

// AuditReport is what an audit found.
type AuditReport struct {
	Accounts int
	Counters []AuditedCounter // those asked for: all of them, or only those with a gap or repaired; at most MaxAuditReport
	Checked  int              // counters and rows
	Gaps     int              // that stand after repairs
	Repaired int
	Waiting  int // closings that wait for the ledger: in the engine, or in this node's spool
	LeftOut  int // of the counters asked for, those that did not fit into Counters
	Unsummed int // accounts with more than MaxAuditRecords records: their held and unposted sums were not compared
	Partial  int // accounts with more usage rows than are read at once: the rest was not compared with the engine

	Failed         int      // accounts that could not be read, of an audit of all
	FailedAccounts []string // their names, at most MaxFailedAccounts
}

// MaxFailedAccounts bounds the names in one AuditReport.
const MaxFailedAccounts = 100

// MaxAuditReport bounds the counters that one AuditReport lists; those with a
// gap come first.
const MaxAuditReport = 10_000

// AuditQuery says what to audit.
type AuditQuery struct {
	Account string // "" for every account
	Repair  bool
	All     bool // report every counter, not only gaps
}

// Auditor compares the ledger with the engine, all the time and on demand.
//
// For each quota counter it holds against each other: the sum of the ledger's
// entries, the usage row, the engine's used amount at the same version, and
// what the engine counts as held and as unposted with what its records add up
// to. It repairs what has one right value that it knows: held and unposted are
// set to the records' sums in the step that adds them up, and used is pushed
// with its version. It never sets used without a version, and it never repairs
// the ledger: a row that is not the sum of its entries, or that is older than
// what the engine has seen, is reported and left to people.
type Auditor struct {
	broker   *Broker
	feed     feed
	auditing chan struct{} // has room for the one audit of all accounts
}

// NewAuditor makes an Auditor that uses the broker's engine and ledger.
func NewAuditor(b *Broker) *Auditor {
	return &Auditor{broker: b, feed: feed{untold: map[ledger.UsageKey]ledger.Usage{}}, auditing: make(chan struct{}, 1)}
}

// Pauses of a background audit.
const (
	// secondLook is how long after the first look a difference must still be
	// there: longer than a confirmation takes.
	secondLook = 2 * time.Second
	// settleWithin bounds how long an audit on demand waits for closings that
	// are on their way.
	settleWithin = 5 * time.Second
	// shortestRound is the least time between the starts of two rounds over the
	// accounts.
	shortestRound = 10 * time.Second
	// auditShare is the part of the time, one of so many, that a background
	// audit may keep an engine or a ledger busy: a look that took 10 ms is
	// followed by a second of rest.
	auditShare = 100
)

// Run audits until ctx ends: each second it lets the engine and the observer
// know what changed in the ledger, and it walks through the accounts, repairs
// what is safe and exports what differs.
func (a *Auditor) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { a.follow(ctx) })
	if a.broker.config.AuditRate > 0 {
		loops.Go(func() { a.walk(ctx) })
		loops.Go(func() { a.walkSums(ctx) })
	}
	loops.Wait()
}
