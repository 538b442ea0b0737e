package rpc

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

var reasons = map[reservation.Reason]budgetv1.RefusalReason{
	reservation.RateLimited:        budgetv1.RefusalReason_REFUSAL_REASON_RATE_LIMITED,
	reservation.ConcurrencyLimited: budgetv1.RefusalReason_REFUSAL_REASON_CONCURRENCY_LIMITED,
	reservation.QuotaExhausted:     budgetv1.RefusalReason_REFUSAL_REASON_QUOTA_EXHAUSTED,
	reservation.ExceedsCapacity:    budgetv1.RefusalReason_REFUSAL_REASON_EXCEEDS_CAPACITY,
	reservation.QuotaHeld:          budgetv1.RefusalReason_REFUSAL_REASON_QUOTA_HELD,

	reservation.Banned:            budgetv1.RefusalReason_REFUSAL_REASON_BANNED,
	reservation.EnvelopeExhausted: budgetv1.RefusalReason_REFUSAL_REASON_ENVELOPE_EXHAUSTED,
}

// refused is the answer to a call that a limit refused. A quota whose period
// ends later than callers should wait is not retryable: they come back at a
// bounded pace, in case a grant or a larger plan has come meanwhile.
func (s *service) refused(account string, refusal *reservation.RefusedLimit) *connect.Error {
	used := refusal.Reason == reservation.QuotaExhausted
	code := connect.CodeResourceExhausted
	if used && s.quotaForbidden {
		code = connect.CodePermissionDenied
	}
	tooLong := used && refusal.Retryable() && refusal.RetryAt.Sub(refusal.Now)-refusal.Spread > s.maxRetryAfter
	err := connect.NewError(code, errors.New(refusalText(account, refusal, tooLong)))
	addDetail(err, refusalOut(refusal, refusal.Retryable() && !tooLong))
	refusedHeaders(refusal, err.Meta())
	if code == connect.CodeResourceExhausted && refusal.Retryable() {
		wait := refusal.RetryAfter()
		if used {
			wait = min(wait, s.maxRetryAfter)
		}
		err.Meta().Set("Retry-After", strconv.FormatInt(wholeSeconds(wait), 10))
	}
	return err
}

// refusalOut is a refusal as callers get it, with when to come back if that helps.
func refusalOut(refusal *reservation.RefusedLimit, retryable bool) *budgetv1.Refusal {
	detail := &budgetv1.Refusal{
		Reason:      reasons[refusal.Reason],
		Limit:       refusal.Limit,
		Pool:        refusal.Pool,
		Scope:       refusal.Scope,
		Meter:       string(refusal.Meter),
		Asked:       int64(refusal.Asked),
		Remaining:   int64(refusal.Remaining),
		LimitAmount: int64(refusal.Max),
		Retryable:   retryable,
		Kept:        int64(refusal.Kept),
		Sharing:     int32(refusal.Sharing),
		ResetsAt:    timeOut(refusal.ResetsAt),
	}
	if retryable {
		detail.RetryAt = timestamppb.New(refusal.RetryAt)
	}
	return detail
}

// refusalText explains a refusal to somebody in a hurry, as in
//
//	limit tokens (account demo): asked 7000, 6000 left of 10000; retry in 6.0 s
//	limit spend (account demo): asked $1.00, $0.20 left of $100.00; resets at 2026-04-01T00:00:00Z
//
// and of a call that does not say how long its answer may get
//
//	...; the call states no bound of its output, so that all 16384 tokens that the model can write are asked for: set max_completion_tokens
func refusalText(account string, refusal *reservation.RefusedLimit, tooLong bool) string {
	text := limitText(account, refusal, tooLong)
	if refusal.Kept > 0 {
		text += fmt.Sprintf("; it keeps %s for calls of higher priority", quota.ShowAmount(refusal.Meter, refusal.Kept))
	}
	switch bound := refusal.WaitBound; {
	case bound.Limit == "":
	case bound.Most == 0:
		text += fmt.Sprintf("; %s lets no call wait", bound.Limit)
	default:
		text += fmt.Sprintf("; %s lets calls wait %s at most", bound.Limit, quota.FormatSpan(bound.Most))
	}
	if refusal.Sharing > 0 {
		text += fmt.Sprintf("; the account is ahead of its fair share, which %d use now, and leaves a quarter of the limit to the others", refusal.Sharing)
	}
	if refusal.Unbounded != "" {
		text += fmt.Sprintf("; the call states no bound of its output, so that all %d tokens that the model can write are asked for: set %s", int64(refusal.Output), refusal.Unbounded)
	}
	return text
}

func limitText(account string, refusal *reservation.RefusedLimit, tooLong bool) string {
	whose := "account " + account
	if refusal.Pool != "" {
		whose = "pool " + refusal.Pool
	}
	if refusal.Scope != "" {
		whose += ", " + refusal.Scope
	}
	text := fmt.Sprintf("limit %s (%s): ", refusal.Limit, whose)
	show := func(amount quota.Amount) string { return quota.ShowAmount(refusal.Meter, amount) }
	switch refusal.Reason {
	case reservation.ExceedsCapacity:
		return text + fmt.Sprintf("asked %s, and it never holds more than %s; waiting does not help, ask for less", show(refusal.Asked), show(refusal.Max-refusal.Kept))
	case reservation.EnvelopeExhausted:
		return text + fmt.Sprintf("asked %s, %s left in the parent; ask for less, or again when another call of the parent has ended", show(refusal.Asked), show(refusal.Remaining))
	case reservation.QuotaHeld:
		text += fmt.Sprintf("asked %s, %s left of %s while open calls hold %s", show(refusal.Asked), show(refusal.Remaining), show(refusal.Max), show(refusal.Held))
	case reservation.Banned:
		text += fmt.Sprintf("banned for %s, after it refused %d calls within %s", quota.FormatSpan(refusal.Ban.For), refusal.Ban.Refusals, quota.FormatSpan(refusal.Ban.Within))
	case reservation.ConcurrencyLimited:
		text += fmt.Sprintf("all %s slots are taken", show(refusal.Max-refusal.Kept))
	default:
		text += fmt.Sprintf("asked %s, %s left of %s", show(refusal.Asked), show(refusal.Remaining), show(refusal.Max))
	}
	if tooLong {
		return text + "; resets at " + refusal.RetryAt.Add(-refusal.Spread).UTC().Format(time.RFC3339)
	}
	return text + "; retry in " + waitText(refusal.RetryAt.Sub(refusal.Now))
}

// waitText rounds up: whoever waits so long does not come too early.
func waitText(wait time.Duration) string {
	const tenth = time.Second / 10
	if wait = max(wait, 0); wait > 0 {
		wait = ((wait-1)/tenth + 1) * tenth
	}
	if wait < 2*time.Minute {
		return fmt.Sprintf("%d.%d s", wait/time.Second, wait%time.Second/tenth)
	}
	return (time.Duration(wholeSeconds(wait)) * time.Second).String()
}
