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
