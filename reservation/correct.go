package reservation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// PriceCorrection says which closings to reprice: those of reservations that
// were made from From to before To with the model, at the prices that are in
// force for their instant now. A reservation that is still open then is closed
// later at the price that it pinned: correct again once it has ended.
type PriceCorrection struct {
	Account  string // "" for every account
	Provider string // "" when the model's name says enough
	Model    string // canonical name, or another that the catalogue or a price knows
	From, To time.Time
	DryRun   bool
	Reason   string // 1 to ledger.MaxReasonBytes bytes
	By       string // 1 to ledger.MaxByBytes bytes
}

// PriceCorrected is what a CorrectPrices did.
type PriceCorrected struct {
	ID         [16]byte      // under which its entries stand; all zero for a dry run
	Looked     int           // closings of the model in the span
	Repriced   int           // whose cost changed
	Skipped    int           // whose cost the caller stated, or whose use is not known
	Difference quota.NanoUSD // sum over all of them, of the accounts' totals
}

// CorrectPrices posts adjusting entries: the account's total and every quota on
// cost are charged what the closing costs at the price that is in force for the
// reservation's instant now. Closings are not edited: a Refund that is repeated
// gets its first answer. Doing it again changes nothing. It may take minutes;
// progress, unless nil, is called after each piece.
//
// An error ends it in mid-way, with what was done so far: call it again.
//
// Errors: *InvalidError, estimator.ErrUnknownModel, ledger errors.
func (b *Broker) CorrectPrices(ctx context.Context, c PriceCorrection, progress func(PriceCorrected)) (PriceCorrected, error) {
	run, err := b.newCorrection(c)
	if err != nil {
		return PriceCorrected{}, err
	}
	query := ledger.ClosingsQuery{Account: c.Account, From: c.From, To: c.To, Limit: ledger.MaxReprice}
	for {
		page, err := b.closingsPage(ctx, query)
		if err == nil {
			err = run.correct(ctx, page.Closings)
		}
		if err != nil {
			return run.done, err
		}
		if progress != nil {
			progress(run.done)
		}
		if page.Next == "" {
			return run.done, nil
		}
		query.After = page.Next
	}
}

func (b *Broker) closingsPage(ctx context.Context, q ledger.ClosingsQuery) (ledger.ClosingsPage, error) {
	ctx, cancel := context.WithTimeout(ctx, b.config.LedgerDeadline)
	defer cancel()
	page, err := b.Ledger.Closings(ctx, q)
	return page, inTime(err)
}

// correction is one CorrectPrices under way.
type correction struct {
	broker          *Broker
	asked           PriceCorrection
	provider, model string // the price's
	entry           ledger.Correction
	done            PriceCorrected
}

func (b *Broker) newCorrection(c PriceCorrection) (*correction, error) {
	if err := checkText("reason", c.Reason, ledger.MaxReasonBytes); err != nil {
		return nil, err
	}
	if err := checkText("by", c.By, ledger.MaxByBytes); err != nil {
		return nil, err
	}
	query := ledger.ClosingsQuery{Account: c.Account, From: c.From, To: c.To, Limit: 1}
	if err := query.Validate(); err != nil {
		return nil, &InvalidError{Field: "span", Problem: err.Error()}
	}
	now := b.now()
	model, err := b.Estimator.ModelAt(c.Provider, c.Model, now)
	if err != nil {
		return nil, err
	}
	run := &correction{broker: b, asked: c, provider: model.Price.Provider, model: model.Price.Model}
	if !c.DryRun {
		if _, err := rand.Read(run.done.ID[:]); err != nil {
			return nil, fmt.Errorf("make the correction's id: %w", err)
		}
	}
	run.entry = ledger.Correction{ID: run.done.ID, At: now, By: c.By, Reason: c.Reason}
	return run, nil
}

// correct reprices those of the closings that need it.
func (run *correction) correct(ctx context.Context, closings []ledger.Closing) error {
	var repricings []ledger.Repricing
	var sum quota.NanoUSD
	for i := range closings {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, difference, err := run.look(&closings[i])
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		repricings = append(repricings, *r)
		if sum, err = sum.Add(difference); err != nil {
			return fmt.Errorf("the difference of a page of closings: %w", err)
		}
	}
	if run.asked.DryRun || len(repricings) == 0 {
		return run.count(len(repricings), sum)
	}
	b := run.broker
	within, cancel := context.WithTimeout(ctx, b.config.LedgerDeadline)
	defer cancel()
	posted, err := b.Ledger.Reprice(within, run.entry, repricings)
	if err != nil {
		return inTime(err)
	}
	b.announce(ctx, posted.Usage)
	// A closing that another replaced meanwhile was left alone.
	return run.count(posted.Closings, posted.Difference)
}

func (run *correction) count(repriced int, difference quota.NanoUSD) (err error) {
	run.done.Repriced += repriced
	if run.done.Difference, err = run.done.Difference.Add(difference); err != nil {
		return fmt.Errorf("the difference of all closings: %w", err)
	}
	return nil
}

// look says how one closing is to be repriced, and by how much its total
// changes; nil when it stays as it is.
func (run *correction) look(c *ledger.Closing) (*ledger.Repricing, quota.NanoUSD, error) {
	o, unreadable := decodeOutcome(c.Outcome) // another version's
	if !run.concerns(c, &o.Pricing) {
		return nil, 0, nil
	}
	run.done.Looked++
	if !o.Pricing.Priced {
		if o.Charged[quota.MeterCost] > 0 || unreadable != nil {
			run.done.Skipped++
		}
		return nil, 0, nil
	}
	model, err := run.broker.Estimator.ModelAt(run.provider, run.model, c.Minted)
	if errors.Is(err, estimator.ErrUnknownModel) { // then; it has a price now
		run.done.Skipped++
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	lines, difference, err := o.Pricing.repriced(c.Lines, model.Price)
	if err != nil {
		run.done.Skipped++
		run.broker.config.Logger.Warn("a closing can't be repriced", "reservation", ID(c.Reservation).String(), "error", err)
		return nil, 0, nil
	}
	if len(lines) == 0 {
		return nil, 0, nil
	}
	return &ledger.Repricing{
		Account: c.Account, Reservation: c.Reservation, Minted: c.Minted, Body: c.Body, Rank: c.Rank, Lines: lines,
	}, difference, nil
}

// concerns says whether the closing is of the model. A model that nobody knew
// had no provider, whatever it has now. Closings of the first version of the
// outcome are known by their labels.
func (run *correction) concerns(c *ledger.Closing, p *pricing) bool {
	switch {
	case p.Model == "":
		return c.PriceVersion != "" && strings.EqualFold(c.Labels["model"], run.model) && strings.EqualFold(c.Labels["provider"], run.provider)
	case p.Provider == "":
		return strings.EqualFold(p.Model, run.model) || strings.EqualFold(p.Model, run.asked.Model)
	}
	return strings.EqualFold(p.Model, run.model) && strings.EqualFold(p.Provider, run.provider)
}

// repriced returns the lines of the closing that change with the price, and by
// how much its total changes. It fails when an amount leaves its range, and
// when the quotas are not those whose weights are known.
func (p *pricing) repriced(lines []ledger.Line, price estimator.Price) (changed []ledger.Line, difference quota.NanoUSD, err error) {
	cost, err := price.Cost(*p.Use)
	if err != nil {
		return nil, 0, err
	}
	quotas := 0
	for _, line := range lines {
		if line.Meter != quota.MeterCost {
			continue
		}
		weight := quota.Amount(1)
		if line.Limit != "" {
			if quotas == len(p.Weights) {
				return nil, 0, errOtherQuotas
			}
			weight = p.Weights[quotas]
			quotas++
		}
		weighed, ok := quota.Amount(cost).Times(weight)
		if !ok {
			return nil, 0, fmt.Errorf("%d times the weight %d: %w", cost, weight, quota.ErrOutOfRange)
		}
		if line.Limit == "" {
			difference += quota.NanoUSD(weighed - line.Amount)
		}
		if weighed != line.Amount {
			line.Amount = weighed
			changed = append(changed, line)
		}
	}
	if quotas != len(p.Weights) {
		return nil, 0, errOtherQuotas
	}
	return changed, difference, nil
}

var errOtherQuotas = errors.New("the closing has other quotas on cost than it was priced with")
