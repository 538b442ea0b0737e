package reservation

import (
	"context"
	"errors"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

var errUnbuilt = errors.New("not built")

// AdjustRequest changes what an account has used of one quota, or of its
// totals, by hand.
type AdjustRequest struct {
	Account string
	Limit   string      // name of a quota; "" for the account's totals
	Meter   quota.Meter // of the totals; with Limit empty or the limit's own
	Scope   string
	Period  string       // quota.Period.Key; "" for the current one
	Amount  quota.Amount // signed, not 0: above 0 uses more, below 0 gives back
	Reason  string
	By      string
	Key     string // idempotency key, 1 to MaxKeyText bytes
}

// Adjusted is what an Adjust did.
type Adjusted struct {
	ID       [16]byte
	Usage    ledger.Usage // the row afterwards
	Replayed bool         // the key was known
}

// Adjust posts an adjustment and lets the engine know.
//
// Errors: *InvalidError, ErrNotFound (account, limit), ErrKeyReused, ledger
// errors.
func (b *Broker) Adjust(ctx context.Context, r AdjustRequest) (Adjusted, error) {
	return Adjusted{}, errUnbuilt
}

// OpenPageOf is a part of an account's open reservations, as an operator sees
// them. Each Story is of StateHeld.
type OpenPageOf struct {
	Reservations []Story
	Cursor       string // of the next page; "" when this was the last
}

// OpenReservations pages through the held reservations of an account.
//
// Errors: *InvalidError, ErrNotFound, ErrUnavailable.
func (b *Broker) OpenReservations(ctx context.Context, account, cursor string, most int) (OpenPageOf, error) {
	return OpenPageOf{}, errUnbuilt
}

// Release ends a held reservation as an operator: everything is given back, as
// by an unused Refund. A Refund of its caller afterwards is a conflict.
//
// Errors: as Refund.
func (b *Broker) Release(ctx context.Context, reservation string) (Receipt, error) {
	return Receipt{}, errUnbuilt
}

// PriceCorrection says which closings to reprice: those of reservations that
// were made from From to before To with the model, at the prices that are in
// force for their instant now.
type PriceCorrection struct {
	Account  string // "" for every account
	Provider string
	Model    string // canonical name
	From, To time.Time
	DryRun   bool
	Reason   string
	By       string
}

// PriceCorrected is what a CorrectPrices did.
type PriceCorrected struct {
	ID         [16]byte
	Looked     int           // closings of the model in the span
	Repriced   int           // whose cost changed
	Skipped    int           // whose cost the caller stated, or whose token classes are not known
	Difference quota.NanoUSD // sum over all of them
}

// CorrectPrices posts adjusting entries. Doing it again changes nothing. It may
// take minutes; progress, unless nil, is called now and then.
//
// Errors: *InvalidError, estimator.ErrUnknownModel, ledger errors.
func (b *Broker) CorrectPrices(ctx context.Context, c PriceCorrection, progress func(PriceCorrected)) (PriceCorrected, error) {
	return PriceCorrected{}, errUnbuilt
}

// AuditedCounter is one quota counter or usage row in an audit.
type AuditedCounter struct {
	ledger.UsageKey
	LimitName string       // "" when the policy has no such limit any more, and for totals
	Entries   quota.Amount // sum of the ledger's entries
	Row       quota.Amount // the usage row
	Version   int64

	InEngine       bool // the engine has the counter, seeded
	Used           quota.Amount
	EngineVersion  int64
	Held           quota.Amount
	Unposted       quota.Amount
	HeldRecords    quota.Amount // what the engine's records add up to
	UnpostedRecord quota.Amount

	Gap      string // what differs, for people; "" when nothing does
	Repaired bool
}

// AuditReport is what an audit found.
type AuditReport struct {
	Accounts int
	Counters []AuditedCounter // those asked for: all of them, or only those with a gap
	Checked  int              // counters and rows
	Gaps     int              // that stand after repairs
	Repaired int
	Waiting  int // closings that wait for the ledger: in the engine, or in this node's spool
}

// AuditQuery says what to audit.
type AuditQuery struct {
	Account string // "" for every account
	Repair  bool
	All     bool // report every counter, not only gaps
}

// Auditor compares the ledger with the engine, all the time and on demand.
type Auditor struct {
	broker *Broker
}

// NewAuditor makes an Auditor that uses the broker's engine and ledger.
func NewAuditor(b *Broker) *Auditor { return &Auditor{broker: b} }

// Run audits until ctx ends: each second it lets the engine know what changed
// in the ledger, and it walks through the accounts and exports what differs.
func (a *Auditor) Run(ctx context.Context) { <-ctx.Done() }

// Audit audits now. A difference counts as a gap when it is still there at a
// second look, after what was on its way has arrived.
//
// Errors: *InvalidError, ErrNotFound, ErrUnavailable, ledger errors.
func (a *Auditor) Audit(ctx context.Context, q AuditQuery) (AuditReport, error) {
	return AuditReport{}, errUnbuilt
}
