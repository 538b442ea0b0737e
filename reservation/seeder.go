package reservation

import (
	"context"
	"fmt"

	"golang.org/x/sync/singleflight"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// seeder brings quota counters their ledger value. Concurrent Reserves that
// need the same counter share one read, and a read goes on when its callers'
// deadlines have passed: the next Reserve finds the counter seeded.
type seeder struct {
	broker *Broker
	flight singleflight.Group
	ctx    context.Context // ends reads under way at close
	close  context.CancelFunc
}

func newSeeder(b *Broker) *seeder {
	ctx, stop := context.WithCancel(context.Background())
	return &seeder{broker: b, ctx: ctx, close: stop}
}

func (s *seeder) seed(ctx context.Context, token *reservationToken, tickets []Ticket) error {
	results := make([]<-chan singleflight.Result, len(tickets))
	for i, ticket := range tickets {
		h := token.Holds[ticket.Hold]
		key := token.usageKey(ticket.Hold)
		request := SeedRequest{Account: token.Account, Counter: h.Counter, Period: h.Period, Ticket: ticket.Ticket}
		// The ticket is part of the name: a read may only be shared by those
		// whose ticket was given before it began.
		name := fmt.Sprintf("%q %d", key, ticket.Ticket)
		results[i] = s.flight.DoChan(name, func() (any, error) {
			return nil, s.fetch(key, request)
		})
	}
	for _, result := range results {
		select {
		case r := <-result:
			if r.Err != nil {
				return r.Err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *seeder) fetch(key ledger.UsageKey, request SeedRequest) error {
	b := s.broker
	ctx, cancel := context.WithTimeout(s.ctx, b.config.LedgerDeadline)
	defer cancel()
	rows, err := b.Ledger.Usage(ctx, []ledger.UsageKey{key})
	if err != nil {
		b.metrics.seedsFailed.Inc()
		return err
	}
	request.Used, request.Version = countable(rows[0].Used), rows[0].Version
	if _, err := b.Store.Seed(ctx, request); err != nil {
		b.metrics.seedsFailed.Inc()
		return err
	}
	// Not accepted means that a newer ticket or a newer value is there: the
	// next attempt at Reserve sees it.
	b.metrics.seeds.Inc()
	return nil
}

// countable bounds what the ledger holds to what an engine counts. No limit is
// above the bound, so beyond it the answer is the same.
func countable(used quota.Amount) quota.Amount {
	return max(min(used, quota.MaxAmount), -quota.MaxAmount)
}
