package reservation

import (
	"context"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

// dryRunUnseeded decides a dry run that met quotas whose counters are not
// seeded. A dry run writes nothing, so it can't seed them: they are compared
// with the ledger here, and the engine is asked about the rest.
func (b *Broker) dryRunUnseeded(ctx context.Context, w *work, request ReserveRequest, tickets []Ticket) (Decision, error) {
	keys := make([]ledger.UsageKey, len(tickets))
	holds := append([]Hold(nil), request.Holds...)
	for i, ticket := range tickets {
		keys[i] = w.token.usageKey(ticket.Hold)
		holds[ticket.Hold].Amount = 0 // the engine then lets it pass
	}
	rows, err := b.Ledger.Usage(ctx, keys)
	if err != nil {
		return b.withoutEngine(ctx, w, err)
	}
	request.Holds = holds
	if request.Output != nil {
		for _, ticket := range tickets {
			request.Output.Slopes[ticket.Hold] = Slope{}
		}
	}
	answer, err := b.Store.Reserve(ctx, request)
	if err != nil {
		return b.withoutEngine(ctx, w, err)
	}
	if answer.Verdict != Granted && answer.Verdict != Refused {
		return b.withoutEngine(ctx, w, fmt.Errorf("a dry run got verdict %d: %w", answer.Verdict, ErrUnavailable))
	}
	if answer.Verdict == Granted {
		if err := w.decide(b, answer.Decided); err != nil {
			return Decision{}, err
		}
	}
	for i, ticket := range tickets {
		h := &request.Holds[ticket.Hold]
		asked := w.token.Holds[ticket.Hold].Amount
		level := &answer.Levels[ticket.Hold]
		level.Used, level.Remaining, level.ResetsAt, level.Seeded = rows[i].Used, h.Max-countable(rows[i].Used), h.Period.End, true
		refusal := Refusal{Hold: ticket.Hold, Reason: QuotaExhausted, Asked: asked, Remaining: level.Remaining, RetryAt: h.Period.End}
		switch {
		case asked > h.Max:
			refusal.Reason, refusal.RetryAt = ExceedsCapacity, time.Time{}
		case asked <= level.Remaining:
			level.Remaining -= asked
			level.Held += asked
			continue
		}
		if h.Shadow {
			if answer.Verdict == Granted {
				w.token.Holds[ticket.Hold].leaveOut()
				answer.Shadow = append(answer.Shadow, refusal)
			}
			continue
		}
		if answer.Verdict == Granted || refusal.Stricter(answer.Refusal) {
			answer.Verdict, answer.Refusal = Refused, refusal
		}
	}
	if answer.Verdict == Refused {
		return w.refused(b, answer), nil
	}
	return Decision{Grant: w.grant(answer)}, nil
}
