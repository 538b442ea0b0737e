package reservation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Estimate says what a model call would take now, without any effect.
// It fails with estimator.ErrBusy when the context ends first.
func (b *Broker) Estimate(ctx context.Context, call estimator.Call) (estimator.Estimate, error) {
	return b.Estimator.EstimateContext(ctx, call, b.now())
}

// Overview shows the limits that calls of an account with these labels meet. A
// limit that matches on a label which is not given is shown too; of a scoped
// limit the one counter that the labels select.
//
// While the engine does not answer, levels are missing and Degraded is set. While
// the ledger does not, what it has is missing and LedgerAway is set.
//
// Errors: *InvalidError (labels), ErrNotFound (account), and ledger errors when
// neither answers.
func (b *Broker) Overview(ctx context.Context, account string, labels map[string]string) (Overview, error) {
	policy := b.Policies.Current()
	known, ok := policy.Accounts[account]
	if !ok {
		return Overview{}, fmt.Errorf("account %q: %w", account, ErrNotFound)
	}
	if err := quota.ValidateLabels(labels); err != nil {
		return Overview{}, &InvalidError{Field: "labels", Problem: err.Error()}
	}
	limits, err := policy.Limits(account)
	if err != nil {
		return Overview{}, err
	}
	at := b.now()
	view := Overview{Account: account, Plan: known.Plan, TotalsPeriod: known.PeriodAt(quota.PeriodMonth, at)}
	var planned []plannedHold
	var holds []Hold
	for _, applied := range limits {
		if !mayMatch(applied.Limit, labels) {
			continue
		}
		applied.Scope = applied.Limit.Scope(labels)
		hold := newHold(policy, known, applied, 0, at)
		planned = append(planned, hold)
		holds = append(holds, hold.engine())
		view.Limits = append(view.Limits, LimitStatus{
			Limit: applied.Limit.Name, Pool: applied.Pool, Scope: applied.Scope, Meter: applied.Limit.Meter,
			Kind: applied.Limit.Kind, Mode: applied.Mode, Stated: applied.Limit.Mode, Pin: applied.Pin, Max: hold.Capacity(), Rate: applied.Limit.Rate, Period: hold.Period,
			Soft: hold.Soft, KeepFor: keptShares(applied.Limit), Fair: hold.Fair, CountRefusals: applied.Limit.CountRefusals, Ban: applied.Limit.Ban, MaxWait: applied.Limit.MaxWait, Granted: policy.Allowance(known, applied, hold.Period, at).Granted,
		})
	}
	levels, err := b.levels(ctx, account, holds)
	switch {
	case errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded):
		view.Degraded = true
	case err != nil:
		return Overview{}, err
	default:
		for i := range levels {
			view.Limits[i].Level = planned[i].seen(levels[i])
		}
	}
	if err := b.addPosted(ctx, account, holds, &view); err != nil {
		if view.Degraded || !errors.Is(err, ledger.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return Overview{}, err
		}
		view.LedgerAway = true
	}
	return view, nil
}

func keptShares(limit *quota.Limit) []KeptShare {
	var kept []KeptShare
	for p := quota.PriorityDefault; p <= quota.PriorityCritical; p++ {
		if percent := limit.KeepFor[p]; percent > 0 {
			kept = append(kept, KeptShare{Priority: p, Percent: percent, Kept: limit.Kept(p - 1)})
		}
	}
	return kept
}

// levels asks the engine for counters, as many at a time as it takes.
func (b *Broker) levels(ctx context.Context, account string, holds []Hold) ([]Level, error) {
	ctx, cancel := context.WithTimeout(ctx, b.config.Deadline)
	defer cancel()
	return allLevels(ctx, b.Store, account, holds)
}

func allLevels(ctx context.Context, store Store, account string, holds []Hold) ([]Level, error) {
	levels := make([]Level, 0, len(holds))
	for part := range slices.Chunk(holds, MaxHolds) {
		more, _, err := store.Levels(ctx, account, part)
		if err != nil {
			return nil, err
		}
		levels = append(levels, more...)
	}
	return levels, nil
}

// addPosted reads the ledger's own sums: of the account's totals and of each
// quota. A counter that is not seeded yet is shown from them.
func (b *Broker) addPosted(ctx context.Context, account string, holds []Hold, view *Overview) error {
	ctx, cancel := context.WithTimeout(ctx, b.config.LedgerDeadline)
	defer cancel()
	totals, err := b.Ledger.AccountUsage(ctx, account, view.TotalsPeriod.Key, maxTotals)
	if err != nil {
		return err
	}
	sums := quota.Amounts{}
	for _, row := range totals {
		if row.Limit == "" {
			sums[row.Meter] = row.Used
		}
	}
	var keys []ledger.UsageKey
	var at []int
	for i, h := range holds {
		if h.Kind == quota.KindQuota {
			keys = append(keys, ledger.UsageKey{Account: account, Limit: h.Limit, Scope: h.Scope, Period: h.Period.Key, Meter: view.Limits[i].Meter})
			at = append(at, i)
		}
	}
	if len(keys) == 0 {
		view.Totals = sums
		return nil
	}
	rows, err := b.Ledger.Usage(ctx, keys)
	if err != nil {
		return err
	}
	view.Totals = sums
	for i, row := range rows {
		limit := &view.Limits[at[i]]
		limit.Posted = row.Used
		if !limit.Level.Seeded {
			limit.Level.Used = row.Used
			limit.Level.Remaining = limit.Max - row.Used - limit.Level.Held - limit.Level.Unposted
			limit.Level.ResetsAt = limit.Period.End
		}
	}
	b.addAlerts(ctx, keys, at, view)
	return nil
}

// addAlerts reads which alerts stand on the quotas. What can't be read is left
// out: alerts decide nothing.
func (b *Broker) addAlerts(ctx context.Context, keys []ledger.UsageKey, at []int, view *Overview) {
	if b.Alerts == nil {
		return
	}
	raised, err := b.Alerts.Raised(ctx, keys)
	if err != nil {
		b.config.Logger.Debug("alerts are left out of an overview", "error", err)
		return
	}
	for i, alerts := range raised {
		view.Limits[at[i]].Alerts = alerts
	}
}

// maxTotals bounds the rows that are read to find an account's totals, which
// sort before its limits' rows: as many as the ledger gives at once.
const maxTotals = ledger.MaxAccountUsage

// mayMatch says whether a limit matches the labels or could with more of them.
func mayMatch(limit *quota.Limit, labels map[string]string) bool {
	whole := make(map[string]string, len(labels)+len(limit.Match))
	for name, value := range labels {
		whole[name] = value
	}
	for name, values := range limit.Match {
		if _, given := whole[name]; !given && len(values) > 0 {
			whole[name] = strings.TrimSuffix(values[0], "*")
		}
	}
	return limit.Matches(whole)
}

// Reservation tells what is known of one reservation.
//
// Errors: *InvalidError, ErrNotFound, ErrUnavailable, ledger errors.
func (b *Broker) Reservation(ctx context.Context, reservation string) (Story, error) {
	token, raw, err := b.open(reservation)
	if err != nil {
		return Story{}, err
	}
	story := token.story(raw)
	engine, cancel := context.WithTimeout(ctx, b.config.Deadline)
	record, err := b.Store.Lookup(engine, token.Account, token.ID)
	cancel()
	if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return Story{}, err
	}
	silent := err != nil
	story.State, story.ExpiresAt = record.State, record.ExpiresAt
	closing, posted, err := b.storyClosing(ctx, token, record)
	switch {
	case errors.Is(err, ledger.ErrNotFound) && silent:
		return Story{}, fmt.Errorf("the engine does not answer and the ledger has no closing: %w", ErrUnavailable)
	case errors.Is(err, ledger.ErrNotFound):
		return story, nil // held, or lost with the engine's data
	case err != nil:
		return Story{}, err
	}
	o, err := decodeOutcome(closing.Outcome)
	if err != nil {
		return Story{}, err
	}
	receipt := token.receipt(o, closing.Late, closing.ClosedAt)
	story.Receipt, story.Posted = &receipt, posted
	if story.State = StateSettled; closing.Rank == ledger.RankExpired {
		story.State = StateExpired
	}
	return story, nil
}

// storyClosing is how the reservation was closed: as the ledger holds it, which
// may know of a Refund that went around a silent engine, else as the engine
// recorded it.
func (b *Broker) storyClosing(ctx context.Context, token *reservationToken, record Record) (closing ledger.Closing, posted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.config.LedgerDeadline)
	defer cancel()
	closing, err = b.Ledger.Closing(ctx, token.Account, token.ID, token.ID.Minted())
	if err == nil && closing.Rank >= record.Rank {
		return closing, !closing.Spooled, nil
	}
	if err != nil && !errors.Is(err, ledger.ErrNotFound) && (record.Rank == 0 || !errors.Is(err, ledger.ErrUnavailable)) {
		return ledger.Closing{}, false, err
	}
	if record.Rank == 0 { // held, or ended and not reclaimed yet, or unknown
		return ledger.Closing{}, false, ledger.ErrNotFound
	}
	closing, err = token.closingOf(record)
	return closing, false, err
}
