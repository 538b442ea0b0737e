package reservation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Credited is what a Credit gave back.
type Credited struct {
	Given    quota.Amounts // per meter, of the account's totals: 0 up to what was asked
	Cut      quota.Amounts // per meter, asked and not given
	Replayed bool          // the key was known: nothing was given by this call
	Buckets  []HeldLimit   // with what each took, and its level where the engine told it
	Now      time.Time     // the engine's clock; zero when it was not asked
}

// Credit gives back what was charged at once (see Charge) and settled, without
// saying by which charge. The account's total of the month and each quota that
// the labels meet get back what is asked for, down to zero of what their period
// has used. Buckets get back no more than the total did, up to their capacity:
// so whatever is asked for, all credits of a month together give back no more
// than the account was charged in it. A meter that Amounts do not state gets
// nothing back. Limits that count by other algorithms than the token bucket keep what
// they counted, as a credit does not say when it was; slots take no part.
//
// The ledger comes first: quotas open once it has the credit, and a broker that
// dies in between leaves buckets to their refill. A key is remembered for good,
// where anything was given.
//
// Errors: as Charge.
func (b *Broker) Credit(ctx context.Context, spend Spend) (Credited, error) {
	credited, err := b.credit(context.WithoutCancel(ctx), spend)
	if err == nil && !credited.Replayed {
		b.metrics.credited(credited)
	}
	return credited, err
}

func (b *Broker) credit(ctx context.Context, spend Spend) (Credited, error) {
	if spend.DryRun || spend.Use != nil {
		return Credited{}, &InvalidError{Field: "amounts", Problem: "a credit is of amounts, and no dry run", Bound: "amounts alone"}
	}
	if err := checkKey(spend.Key); err != nil {
		return Credited{}, err
	}
	spend.Used = true // no request unless stated
	w := &work{policy: b.Policies.Current()}
	at := b.now()
	if err := w.countSpend(b, spend, at); err != nil {
		return Credited{}, err
	}
	p, err := newPlan(w.policy, spend.Account, w.views, at, true)
	if err != nil {
		return Credited{}, err
	}
	body, err := bodyHash("credit", spend)
	if err != nil {
		return Credited{}, err
	}
	if spend.Key == "" {
		spend.Key = rand.Text()
	}
	by := "gateway"
	if name := "key " + spend.APIKey; spend.APIKey != "" && checkText("by", name, ledger.MaxByBytes) == nil {
		by = name
	}
	posting := creditPosting{b: b, key: spend.Key, adjustment: ledger.Adjustment{Body: body, At: at, By: by, Reason: "given back", Floor: true}}
	ctx, cancel := context.WithTimeout(ctx, b.config.LedgerDeadline)
	defer cancel()
	for i := range p.holds {
		h := &p.holds[i]
		if h.Kind != quota.KindQuota || h.Amount == 0 {
			continue
		}
		row := ledger.UsageKey{Account: spend.Account, Limit: h.Limit, Scope: h.Scope, Period: h.Period.Key, Meter: h.Meter}
		if _, err := posting.post(ctx, row, h.Amount); err != nil {
			return Credited{}, err
		}
	}
	credited := Credited{Given: quota.Amounts{}, Cut: quota.Amounts{}}
	month := p.account.PeriodAt(quota.PeriodMonth, at).Key
	for _, meter := range sortedKeys(spend.Amounts) {
		given, err := posting.post(ctx, ledger.UsageKey{Account: spend.Account, Period: month, Meter: meter}, spend.Amounts[meter])
		if err != nil {
			return Credited{}, err
		}
		credited.Given[meter], credited.Cut[meter] = given, spend.Amounts[meter]-given
	}
	b.announce(ctx, posting.changed)
	credited.Replayed = posting.known
	return credited, b.fillBuckets(ctx, w, &credited)
}

// fillBuckets gives the plan's buckets back what the totals got back. An engine
// that is silent is no error: it is done at most once, and they refill.
func (b *Broker) fillBuckets(ctx context.Context, w *work, credited *Credited) error {
	views := make([]View, len(w.views))
	for i, view := range w.views {
		views[i] = view
		views[i].Amounts = make(quota.Amounts, len(view.Amounts))
		for meter, amount := range view.Amounts {
			views[i].Amounts[meter] = min(amount, credited.Given[meter])
		}
	}
	p, err := newPlan(w.policy, w.token.Account, views, b.now(), true)
	if err != nil {
		return err
	}
	token := reservationToken{Account: w.token.Account}
	for _, h := range p.holds {
		if h.Kind == quota.KindBucket && h.Amount > 0 {
			token.Holds = append(token.Holds, h)
		}
	}
	if len(token.Holds) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.config.Deadline)
	defer cancel()
	answer, err := b.Store.GiveBack(ctx, token.Account, token.holds())
	if err != nil {
		b.metrics.creditsLeft.Inc()
		return nil
	}
	for i := range token.Holds {
		token.Holds[i].Amount = answer.Given[i]
		credited.Buckets = append(credited.Buckets, token.Holds[i].shown(answer.Levels[i], true))
	}
	credited.Now = answer.Now
	return nil
}

// creditPosting posts one credit's adjustments.
type creditPosting struct {
	b          *Broker
	key        string
	adjustment ledger.Adjustment // what all have in common
	changed    []ledger.Usage
	known      bool // one of them had been posted before
}

// post takes at most amount away from a row, down to zero, and says how much.
func (c *creditPosting) post(ctx context.Context, row ledger.UsageKey, amount quota.Amount) (quota.Amount, error) {
	a := c.adjustment
	a.Key = row
	// The period is not part of it: a key that comes again later is the same credit.
	a.ID = adjustmentHash("credit", row.Account, c.key, row.Limit, row.Scope, string(row.Meter))
	for range maxAttempts {
		used, err := c.b.Ledger.Usage(ctx, []ledger.UsageKey{row})
		if err != nil {
			return 0, inTime(err)
		}
		back := min(amount, used[0].Used)
		if back <= 0 {
			return 0, nil
		}
		a.Amount = -back
		usage, posted, err := c.b.Ledger.Adjust(ctx, a)
		switch {
		case errors.Is(err, ledger.ErrBelowZero):
			continue // others took of it meanwhile
		case errors.Is(err, ledger.ErrReused):
			return 0, ErrKeyReused
		case err != nil:
			return 0, inTime(err)
		}
		c.changed = append(c.changed, usage)
		if !posted {
			c.known = true
			return 0, nil
		}
		return back, nil
	}
	return 0, fmt.Errorf("%w: the account's use changed %d times while it was given back", ledger.ErrUnavailable, maxAttempts)
}
