package reservation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Identify returns the account of a reservation id, for the caller's rights to
// be checked, and the short id under which the ledger has it. ErrNotFound when
// it is none of this broker's.
func (b *Broker) Identify(reservation string) (account string, id ID, err error) {
	token, _, err := b.open(reservation)
	if err != nil {
		return "", ID{}, err
	}
	return token.Account, token.ID, nil
}

func (b *Broker) open(reservation string) (*reservationToken, []byte, error) {
	if reservation == "" {
		return nil, nil, &InvalidError{Field: "reservation_id", Problem: "is empty", Bound: "the reservation_id that Reserve gave"}
	}
	token, raw, err := openTokenText(reservation, b.Keys)
	if err != nil {
		return nil, nil, fmt.Errorf("reservation_id: %w: %w", err, ErrNotFound)
	}
	return token, raw, nil
}

// Refund closes a reservation with what the call used: what was held above it
// goes back, what it used above the hold is charged. It is answered once the
// ledger holds it. Repeating it is safe and gives the first answer.
//
// Errors: *InvalidError, ErrNotFound, ErrConflict (closed with another usage),
// ledger.ErrUnavailable (not kept yet: repeat it).
func (b *Broker) Refund(ctx context.Context, reservation string, usage Usage) (Receipt, error) {
	return b.close(ctx, reservation, usage, false)
}

// close is a Refund, or with onlyHeld a Release.
func (b *Broker) close(ctx context.Context, reservation string, usage Usage, onlyHeld bool) (Receipt, error) {
	start := time.Now()
	// A caller that hangs up must not leave a Refund half done: every step has
	// a deadline of its own.
	receipt, err := b.refund(context.WithoutCancel(ctx), reservation, usage, onlyHeld)
	b.metrics.refunded(time.Since(start), receipt, err)
	return receipt, err
}

func (b *Broker) refund(ctx context.Context, reservation string, usage Usage, onlyHeld bool) (Receipt, error) {
	token, raw, err := b.open(reservation)
	if err != nil {
		return Receipt{}, err
	}
	stated := usage.Amounts != nil || usage.Use != nil || usage.ProviderUsage != nil || usage.SeenText != ""
	switch {
	case usage.Unused && stated:
		return Receipt{}, &InvalidError{Field: "unused", Problem: "is set beside a usage", Bound: "one of them"}
	case !usage.Unused && !stated:
		return Receipt{}, &InvalidError{Field: "usage", Problem: "is missing", Bound: "usage, or unused: true"}
	}
	seen, err := b.countSeen(ctx, token, usage)
	if err != nil {
		return Receipt{}, err
	}
	reported, err := usage.reported(token.Price, seen)
	if err != nil {
		return Receipt{}, err
	}
	o, err := token.settle(reported, usage.Unused)
	if err != nil {
		return Receipt{}, err
	}
	done, err := b.conclude(ctx, token, raw, o, onlyHeld)
	if err != nil {
		return Receipt{}, err
	}
	same := done.record.Body == o.hash()
	if !done.replayed && !usage.Unused && same {
		b.learnOutput(token, reported)
		b.learnInput(token, reported, done.record.ClosedAt)
	}
	if !same {
		return Receipt{}, ErrConflict
	}
	if o, err = decodeOutcome(done.record.Outcome); err != nil {
		return Receipt{}, err
	}
	receipt := token.receipt(o, done.record.Late, done.record.ClosedAt)
	receipt.Replayed = done.replayed
	if done.levels != nil {
		receipt.Holds = token.shown(done.levels)
	}
	return receipt, nil
}

// concluded is how a reservation was closed: by this call or an earlier one.
type concluded struct {
	record   Record
	replayed bool    // by an earlier one
	levels   []Level // of the holds afterwards; nil when the engine did not tell
	now      time.Time
}

// conclude closes a reservation in the engine and posts it. A silent engine is no
// error unless onlyHeld: the ledger then decides alone.
func (b *Broker) conclude(ctx context.Context, token *reservationToken, raw []byte, o outcome, onlyHeld bool) (concluded, error) {
	body := o.hash()
	answer, err := b.settleInEngine(ctx, token, raw, o, body, onlyHeld)
	if err != nil && (onlyHeld || !errors.Is(err, ErrUnavailable)) {
		return concluded{}, err
	}
	b.metrics.reclaimed(answer.Reclaimed)
	if onlyHeld && (answer.Verdict == RefundEnded || answer.Verdict == RefundForgotten) {
		return concluded{}, notHeldSince(answer.Record.ExpiresAt)
	}
	done := concluded{record: answer.Record, replayed: answer.Verdict == RefundSame, levels: answer.Levels, now: answer.Now}
	record := &done.record
	if err != nil || answer.Verdict == RefundForgotten {
		// The engine is silent or has forgotten: the ledger alone decides.
		now := answer.Now
		if now.IsZero() {
			now = b.now()
		}
		*record = Record{
			State: StateSettled, Rank: ledger.RankRefunded, Body: body, Outcome: o.encode(), ClosedAt: now,
			Late: now.After(token.ID.Minted().Add(token.Lease)),
		}
	}
	if !record.Confirmed {
		// What the engine recorded goes to the ledger first, be it ours or
		// another body's: its verdict decides.
		closing, err := token.closingOf(*record)
		if err != nil {
			return concluded{}, err
		}
		verdict, err := b.append(ctx, token, raw, closing)
		if err != nil {
			return concluded{}, err
		}
		done.replayed = done.replayed || !verdict.Posted
		record.Body, record.Outcome, record.Late, record.ClosedAt = verdict.Body, verdict.Outcome, verdict.Late, verdict.ClosedAt
	}
	b.registry.closed(token.ID)
	return done, nil
}

// countSeen counts the text that was seen of a cut answer.
func (b *Broker) countSeen(ctx context.Context, token *reservationToken, usage Usage) (quota.Tokens, error) {
	const field = "usage.seen_text"
	switch {
	case usage.SeenText == "":
		return 0, nil
	case token.Price == nil:
		return 0, &InvalidError{Field: field, Problem: "the reservation names no model to count it by", Bound: "state what was used in amounts"}
	case usage.Use == nil && usage.ProviderUsage == nil:
		return 0, &InvalidError{Field: field, Problem: "stands alone", Bound: "beside tokens that state the input, or provider_usage"}
	case len(usage.SeenText) > estimator.MaxSeenText:
		return 0, &InvalidError{Field: field, Problem: fmt.Sprintf("has %d bytes", len(usage.SeenText)), Bound: fmt.Sprintf("at most %d", estimator.MaxSeenText)}
	}
	seen, err := b.Estimator.CountSeen(ctx, token.Price.Provider, token.Price.Model, usage.SeenText, b.now())
	if errors.Is(err, estimator.ErrBusy) {
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return seen, err
}

// learnInput tells the estimator what the provider counted where a rule had to.
func (b *Broker) learnInput(token *reservationToken, reported report, at time.Time) {
	if token.RuleInput == 0 || token.Price == nil || reported.use == nil {
		return
	}
	if real, err := reported.use.Tokens.TotalInput(); err == nil {
		b.Estimator.Learn(token.Price.Provider, token.Price.Model, token.RuleInput, real, at)
	}
}

// settleInEngine asks the engine, and asks again with the holds when it lost
// the reservation.
func (b *Broker) settleInEngine(ctx context.Context, token *reservationToken, raw []byte, o outcome, body Hash, onlyHeld bool) (RefundAnswer, error) {
	request := RefundRequest{
		Account: token.Account, ID: token.ID, Lease: token.Lease, Retention: token.Retention,
		Body: body, Actual: o.Actual, Outcome: o.encode(), Token: raw,
		OnlyHeld: onlyHeld,
	}
	ask := func() (RefundAnswer, error) {
		ctx, cancel := context.WithTimeout(ctx, b.config.Deadline)
		defer cancel()
		answer, err := b.Store.Refund(ctx, request)
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return answer, err
	}
	answer, err := ask()
	if err == nil && answer.Verdict == RefundUnknown {
		request.Holds, request.Kin = token.holds(), token.Kin
		answer, err = ask()
	}
	return answer, err
}

// append posts a closing and, when the ledger has decided, lets the observer and,
// off the caller's path, the engine know. A closing that this node keeps for the ledger stays
// unposted in the engine until the ledger has it: see Drained.
func (b *Broker) append(ctx context.Context, token *reservationToken, raw []byte, closing ledger.Closing) (ledger.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, b.config.LedgerDeadline)
	defer cancel()
	verdicts, err := b.Ledger.Append(ledger.WithToken(ctx, raw), []ledger.Closing{closing})
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ledger.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ledger.ErrUnavailable, err)
	}
	if err != nil {
		return ledger.Verdict{}, err
	}
	if verdicts[0].Spooled {
		b.metrics.spooled.Inc()
		return verdicts[0], nil
	}
	b.observe(verdicts[0].Usage)
	b.confirms.enqueue(confirmation{token: token, raw: raw, verdict: verdicts[0]})
	return verdicts[0], nil
}
