package reservation

import (
	"context"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/concurrency"
	"github.com/budgetd/budgetd/quota"
)

// Charge takes known amounts at once: no lease, no Refund, no slots. It is
// answered when the ledger holds it. What was used already (Spend.Used) is never
// refused, and posted even while the engine is silent.
//
// Errors: as Reserve; ledger.ErrUnavailable when the ledger did not keep it in
// time. The charge then stands and is posted later: repeat with the same
// idempotency key to get its answer.
func (b *Broker) Charge(ctx context.Context, spend Spend) (Decision, error) {
	start := time.Now()
	d, err := b.charge(context.WithoutCancel(ctx), spend)
	b.metrics.decided("charge", time.Since(start), d, err)
	return d, err
}

func (b *Broker) charge(ctx context.Context, spend Spend) (Decision, error) {
	w := &work{policy: b.Policies.Current(), key: spend.Key, extra: spend.Extra, dryRun: spend.DryRun, priority: spend.Priority}
	w.token.Charge = true
	if spend.Used {
		w.token.Lease = b.config.Lease
	}
	if spend.DryRun {
		w.key, w.token.Lease = "", concurrency.MinLease // nothing is kept, so nothing ends
	}
	if spend.Used && spend.DryRun {
		return Decision{}, &InvalidError{Field: "dry_run", Problem: "is set for what was used already, which nothing refuses", Bound: "one of them"}
	}
	w.count = func(_ context.Context, at time.Time) error { return w.countSpend(b, spend, at) }
	at := b.now()
	if err := w.count(ctx, at); err != nil {
		return Decision{}, err
	}
	if err := checkKey(spend.Key); err != nil {
		return Decision{}, err
	}
	if spend.Key != "" {
		var err error
		if w.body, err = bodyHash("charge", spend); err != nil {
			return Decision{}, err
		}
	}
	if err := w.mint(b, at); err != nil {
		return Decision{}, err
	}
	if w.used != nil {
		return b.chargeUsed(ctx, w)
	}
	d, err := b.commit(ctx, w)
	if err != nil || d.Grant == nil || w.dryRun {
		return d, err
	}
	return d, b.keepCharge(ctx, w)
}

// countSpend works out what a Charge takes, at the price of the instant.
func (w *work) countSpend(b *Broker, spend Spend, at time.Time) error {
	asked, err := spend.stated(spend.Amounts)
	if err != nil {
		return err
	}
	labels := WithAPIKey(spend.Labels, spend.APIKey)
	switch {
	case spend.Use != nil:
		model, err := b.Estimator.ModelAt(spend.Provider, spend.Model, at)
		if err != nil {
			return err
		}
		w.spent.use = spend.Use
		if w.spent.priced, err = addUse(asked, spend.Use, &model.Price); err != nil {
			return err
		}
		w.pin(&model.Price)
		labels = withModel(labels, spend.Model, model.ID, model.Provider)
	case len(spend.Amounts) == 0:
		return &InvalidError{Field: "amounts", Problem: "nothing is charged", Bound: `amounts per meter, such as {"pages": 3}, or llm`}
	}
	if w.views, err = spend.views(asked); err != nil {
		return err
	}
	if spend.Used {
		w.used = &usedUp{charged: asked}
		if len(w.views) == 0 {
			w.views = []View{{Labels: labels, Amounts: asked, Extra: spend.Extra}}
		}
		asked = quota.Amounts{}
	}
	return w.fill(spend.Account, labels, asked)
}

// stated validates amounts and adds the one request that a call is unless it
// says otherwise, or was counted when it began.
func (spend Spend) stated(amounts quota.Amounts) (quota.Amounts, error) {
	asked, err := statedAmounts(amounts)
	if err != nil || !spend.Used {
		return asked, err
	}
	if _, stated := amounts[quota.MeterRequests]; !stated {
		asked[quota.MeterRequests] = 0
	}
	return asked, nil
}

// views completes and checks a Spend's views, beside what it asks in all.
func (spend Spend) views(asked quota.Amounts) ([]View, error) {
	switch {
	case len(spend.Views) == 0:
		return nil, nil
	case len(spend.Views) > MaxViews:
		return nil, &InvalidError{Field: "views", Problem: fmt.Sprintf("has %d views", len(spend.Views)), Bound: fmt.Sprintf("at most %d", MaxViews)}
	case spend.Use != nil || len(spend.Extra) > 0:
		return nil, &InvalidError{Field: "views", Problem: "stand beside a use or limits of the whole", Bound: "amounts, and limits of each view"}
	}
	views := make([]View, len(spend.Views))
	for i, view := range spend.Views {
		amounts, err := spend.stated(view.Amounts)
		if err != nil {
			return nil, err
		}
		for _, meter := range sortedKeys(amounts) {
			if amounts[meter] > asked[meter] {
				return nil, &InvalidError{Field: fmt.Sprintf("views[%d].amounts[%q]", i, meter), Problem: fmt.Sprintf("%d is more than the whole charge", amounts[meter]), Bound: fmt.Sprintf("at most %d", asked[meter])}
			}
		}
		labels := WithAPIKey(view.Labels, spend.APIKey)
		if err := quota.ValidateLabels(labels); err != nil {
			return nil, &InvalidError{Field: fmt.Sprintf("views[%d].labels", i), Problem: err.Error()}
		}
		views[i] = View{Labels: labels, Amounts: amounts, Extra: view.Extra}
	}
	return views, nil
}

// keepCharge posts the charge that the engine recorded: this one, or the
// earlier one of the same key.
func (b *Broker) keepCharge(ctx context.Context, w *work) error {
	if w.closed.Confirmed || w.closed.State != StateSettled {
		return nil
	}
	closing, err := w.token.closingOf(w.closed)
	if err != nil {
		return err
	}
	_, err = b.append(ctx, &w.token, w.raw, closing)
	return err
}

// settlement is the closing part of a charge: it uses what it asks.
func (w *work) settlement() *Settlement {
	o := outcome{Charged: w.token.Asked, Actual: make([]quota.Amount, len(w.token.Holds)), Pricing: w.token.pricing(w.spent), Asked: w.token.Asked}
	for i := range w.token.Holds {
		o.Actual[i] = w.token.Holds[i].Amount
	}
	return &Settlement{Body: o.hash(), Outcome: o.encode()}
}
