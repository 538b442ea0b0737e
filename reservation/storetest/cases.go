package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// testCase is a test in Go: it returns what is wrong. It finds an empty engine
// and a clock at Epoch.
type testCase struct {
	name string
	run  func(ctx context.Context, engine Engine, clock *Clock) error
}

func runCases(t *testing.T, newEngine New, cases []testCase) {
	engine, clock := begin(t, newEngine)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			clock.Set(Epoch)
			engine.LoseData()
			if err := c.run(t.Context(), engine, clock); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// aBucket is a hold on a bucket.
func aBucket(limit string, amount, capacity quota.Amount, every time.Duration) reservation.Hold {
	return reservation.Hold{
		Counter: reservation.Counter{Limit: limit}, Kind: quota.KindBucket, Amount: amount,
		Bucket: bucketOf(capacity, 1, every), OnExpiry: quota.ExpiryGiveBack,
	}
}

// aSlot is a hold on a slot.
func aSlot(limit string, most quota.Amount) reservation.Hold {
	return reservation.Hold{
		Counter: reservation.Counter{Limit: limit}, Kind: quota.KindSlots, Amount: 1, Max: most, OnExpiry: quota.ExpiryGiveBack,
	}
}

// aQuota is a hold on the quota of the day.
func aQuota(clock *Clock, limit string, amount, most quota.Amount) reservation.Hold {
	return reservation.Hold{
		Counter: reservation.Counter{Limit: limit}, Kind: quota.KindQuota, Amount: amount, Max: most, OnExpiry: quota.ExpiryGiveBack,
		Period: quota.Account{TimeZone: "UTC"}.PeriodAt(quota.PeriodDay, clock.Now()),
	}
}

// ask is a Reserve with the defaults of the suite.
func ask(clock *Clock, account string, holds ...reservation.Hold) reservation.ReserveRequest {
	return reservation.ReserveRequest{
		Account: account, ID: reservation.NewID(clock.Now()), Holds: holds,
		Lease: defaultLease, Retention: defaultRetention, Body: hash("ask"), Token: []byte("token"),
	}
}

// closing is a Refund of what was asked, with the same amounts as used.
func closing(q reservation.ReserveRequest, body string, actual ...quota.Amount) reservation.RefundRequest {
	return reservation.RefundRequest{
		Account: q.Account, ID: q.ID, Lease: q.Lease, Retention: q.Retention,
		Body: hash(body), Outcome: []byte(body), Actual: actual, Token: q.Token,
	}
}

// confirmation is the Confirm of a closing that Sweep handed out.
func confirmation(p reservation.Pending) reservation.ConfirmRequest {
	return reservation.ConfirmRequest{
		Account: p.Account, ID: p.ID, Lease: defaultLease, Retention: defaultRetention, Rank: p.Record.Rank, Body: p.Record.Body,
		Outcome: p.Record.Outcome, Actual: p.Record.Actual, Late: p.Record.Late, ClosedAt: p.Record.ClosedAt, Token: p.Record.Token,
	}
}

// seedQuota asks until the quota's ticket comes, and seeds it.
func seedQuota(ctx context.Context, s reservation.Store, clock *Clock, account string, hold reservation.Hold, used quota.Amount) error {
	answer, err := s.Reserve(ctx, ask(clock, account, hold))
	if err != nil {
		return err
	}
	if answer.Verdict != reservation.Unseeded || len(answer.Tickets) != 1 {
		return fmt.Errorf("an unseeded quota answered %s", nameIn(reserveNames, answer.Verdict))
	}
	ok, err := s.Seed(ctx, reservation.SeedRequest{
		Account: account, Counter: hold.Counter, Period: hold.Period, Ticket: answer.Tickets[0].Ticket, Used: used, Version: 1,
	})
	if err == nil && !ok {
		err = errors.New("a Seed with the ticket that stands was not accepted")
	}
	return err
}

// remaining checks what counters show.
func remaining(ctx context.Context, s reservation.Store, account string, holds []reservation.Hold, want ...quota.Amount) error {
	levels, _, err := s.Levels(ctx, account, holds)
	if err != nil {
		return fmt.Errorf("Levels: %w", err)
	}
	for i := range want {
		if levels[i].Remaining != want[i] {
			return fmt.Errorf("account %q, %s: %d remain, not %d", account, holds[i].Limit, levels[i].Remaining, want[i])
		}
	}
	return nil
}

// reserve puts an ask and expects a verdict.
func reserve(ctx context.Context, s reservation.Store, q reservation.ReserveRequest, want reservation.ReserveVerdict) (reservation.ReserveAnswer, error) {
	answer, err := s.Reserve(ctx, q)
	if err != nil {
		return answer, fmt.Errorf("Reserve: %w", err)
	}
	if answer.Verdict != want {
		return answer, fmt.Errorf("Reserve of account %q answered %s, not %s", q.Account, nameIn(reserveNames, answer.Verdict), nameIn(reserveNames, want))
	}
	return answer, nil
}

// refund puts a Refund and expects a verdict.
func refund(ctx context.Context, s reservation.Store, q reservation.RefundRequest, want reservation.RefundVerdict) (reservation.RefundAnswer, error) {
	answer, err := s.Refund(ctx, q)
	if err != nil {
		return answer, fmt.Errorf("Refund: %w", err)
	}
	if answer.Verdict != want {
		return answer, fmt.Errorf("Refund of account %q answered %s, not %s", q.Account, nameIn(refundNames, answer.Verdict), nameIn(refundNames, want))
	}
	return answer, nil
}

// sweepAll sweeps until nothing is due, and returns everything that was handed
// out. Sweeping twice must not hand out anything twice.
func sweepAll(ctx context.Context, s reservation.Store, most int) (pending []reservation.Pending, expired int, err error) {
	seen := map[string]bool{}
	for range 100_000 {
		answer, err := s.Sweep(ctx, most)
		if err != nil {
			return pending, expired, fmt.Errorf("Sweep: %w", err)
		}
		if len(answer.Pending) > most {
			return pending, expired, fmt.Errorf("Sweep(%d) handed out %d closings", most, len(answer.Pending))
		}
		for _, p := range answer.Pending {
			key := p.Account + "\x00" + p.ID.String()
			if seen[key] {
				return pending, expired, fmt.Errorf("closing %s of account %q was handed out twice at one instant", p.ID, p.Account)
			}
			seen[key] = true
		}
		pending, expired = append(pending, answer.Pending...), expired+answer.Expired
		if !answer.More {
			return pending, expired, nil
		}
	}
	return pending, expired, errors.New("Sweep says after 100,000 calls that more is due")
}
