package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// lockstep puts every call to an engine and to the model and returns the
// engine's answer, with an error when the two differ.
type lockstep struct {
	engine  Engine
	model   *Model
	tickets map[int64]int64 // the engine's ticket -> the model's

	epoch, modelEpoch string // of the last sweep
}

func newLockstep(engine Engine, clock *Clock) *lockstep {
	return &lockstep{engine: engine, model: NewModel(clock), tickets: map[int64]int64{}}
}

func (l *lockstep) loseData() {
	l.engine.LoseData()
	l.model.LoseData()
}

func (l *lockstep) incarnate() {
	l.engine.Incarnate()
	l.model.Incarnate()
}

// settleForgetting asks the engine whether it still knows a record that the
// contract allows it to forget, and lets the model follow.
func (l *lockstep) settleForgetting(ctx context.Context, account string, id reservation.ID) error {
	if !l.model.Forgettable(account, id) {
		return nil
	}
	record, err := l.engine.Store.Lookup(ctx, account, id)
	if err != nil {
		return fmt.Errorf("Lookup: %w", err)
	}
	if record.State == reservation.StateUnknown {
		l.model.Forget(account, id)
	}
	return nil
}

// oneError returns nil when both or neither failed.
func oneError(call string, engine, model error) (failed bool, err error) {
	if (engine == nil) != (model == nil) {
		return true, fmt.Errorf("%s differs from the model:\n\terror: engine %v, model %v", call, engine, model)
	}
	return engine != nil, nil
}

func (l *lockstep) Reserve(ctx context.Context, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	if err := l.settleForgetting(ctx, q.Account, q.ID); err != nil {
		return reservation.ReserveAnswer{}, err
	}
	got, engineErr := l.engine.Store.Reserve(ctx, q)
	want, modelErr := l.model.Reserve(ctx, q)
	if failed, err := oneError("Reserve", engineErr, modelErr); failed {
		return got, err
	}
	var d differences
	d.check(got.Verdict == want.Verdict, "verdict", nameIn(reserveNames, got.Verdict), nameIn(reserveNames, want.Verdict))
	d.instant("now", got.Now, want.Now)
	d.check(got.Reclaimed == want.Reclaimed, "reclaimed", got.Reclaimed, want.Reclaimed)
	if got.Verdict != want.Verdict {
		return got, d.err("Reserve")
	}
	switch want.Verdict {
	case reservation.Granted:
		d.instant("start", got.StartAt, want.StartAt)
		if q.Settle == nil {
			d.instant("expires", got.ExpiresAt, want.ExpiresAt)
		}
		d.levels(want.Now, q.Holds, got.Levels, want.Levels)
		d.check(got.Decided.Tokens == want.Decided.Tokens, "tokens granted", got.Decided.Tokens, want.Decided.Tokens)
		d.check(slices.Equal(got.Decided.Forecast, want.Decided.Forecast), "forecasts", got.Decided.Forecast, want.Decided.Forecast)
		d.shadows(got, want)
	case reservation.Refused:
		d.check(got.Refusal.Asked == want.Refusal.Asked, "refused asked", got.Refusal.Asked, want.Refusal.Asked)
		d.check(got.Refusal.Hold == want.Refusal.Hold, "refused hold", got.Refusal.Hold, want.Refusal.Hold)
		d.check(got.Refusal.Reason == want.Refusal.Reason, "reason", nameIn(reasonNames, got.Refusal.Reason), nameIn(reasonNames, want.Refusal.Reason))
		d.check(got.Refusal.Remaining == want.Refusal.Remaining, "refused remaining", got.Refusal.Remaining, want.Refusal.Remaining)
		d.instant("retry at", got.Refusal.RetryAt, want.Refusal.RetryAt)
		d.check(got.Place == want.Place, "place in line", got.Place, want.Place)
		d.check(got.Refusal.Sharing == want.Refusal.Sharing, "refused sharing", got.Refusal.Sharing, want.Refusal.Sharing)
		d.levels(want.Now, q.Holds, got.Levels, want.Levels)
	case reservation.Replayed:
		var r *modelRecord
		for _, candidate := range l.model.records {
			if candidate.account == q.Account && candidate.key == q.Key {
				r = candidate
			}
		}
		d.record("record", want.Now, r, got.Record, want.Record)
	case reservation.Unseeded:
		l.compareTickets(&d, q, got.Tickets, want.Tickets)
	}
	return got, d.err("Reserve")
}

// compareTickets checks that the engine gives a new ticket where the model
// does, and the old one where it still stands.
func (l *lockstep) compareTickets(d *differences, q reservation.ReserveRequest, got, want []reservation.Ticket) {
	if len(got) != len(want) {
		d.check(false, "tickets", got, want)
		return
	}
	for i := range want {
		d.check(got[i].Hold == want[i].Hold, "ticket for hold", got[i].Hold, want[i].Hold)
		if want[i].Ticket == 0 { // a DryRun stores none
			continue
		}
		if known, ok := l.tickets[got[i].Ticket]; ok {
			d.check(known == want[i].Ticket, "ticket", "a former one", "another")
			continue
		}
		for _, given := range l.tickets {
			d.check(given != want[i].Ticket, "ticket", "a new one", "the one that stands")
		}
		d.check(got[i].Ticket != 0, "ticket", 0, "not zero")
		l.tickets[got[i].Ticket] = want[i].Ticket
	}
}

func (l *lockstep) Refund(ctx context.Context, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
	if err := l.settleForgetting(ctx, q.Account, q.ID); err != nil {
		return reservation.RefundAnswer{}, err
	}
	got, engineErr := l.engine.Store.Refund(ctx, q)
	want, modelErr := l.model.Refund(ctx, q)
	if failed, err := oneError("Refund", engineErr, modelErr); failed {
		return got, err
	}
	var d differences
	d.check(got.Verdict == want.Verdict, "verdict", nameIn(refundNames, got.Verdict), nameIn(refundNames, want.Verdict))
	d.instant("now", got.Now, want.Now)
	d.check(got.Reclaimed == want.Reclaimed, "reclaimed", got.Reclaimed, want.Reclaimed)
	if r := l.model.find(q.Account, q.ID); got.Verdict == want.Verdict && r != nil {
		d.record("record", want.Now, r, got.Record, want.Record)
		if want.Verdict == reservation.RefundSettled {
			d.levels(want.Now, r.plan(), got.Levels, want.Levels)
		}
	}
	return got, d.err("Refund")
}

func (l *lockstep) Renew(ctx context.Context, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
	if err := l.settleForgetting(ctx, q.Account, q.ID); err != nil {
		return reservation.RenewAnswer{}, err
	}
	got, engineErr := l.engine.Store.Renew(ctx, q)
	want, modelErr := l.model.Renew(ctx, q)
	if failed, err := oneError("Renew", engineErr, modelErr); failed {
		return got, err
	}
	var d differences
	d.check(got.State == want.State, "state", stateName(got.State), stateName(want.State))
	d.instant("now", got.Now, want.Now)
	d.check(got.Reclaimed == want.Reclaimed, "reclaimed", got.Reclaimed, want.Reclaimed)
	if want.State == reservation.StateHeld {
		d.instant("expires", got.ExpiresAt, want.ExpiresAt)
		d.standing(q, got, want)
	}
	return got, d.err("Renew")
}

func (l *lockstep) Confirm(ctx context.Context, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	if err := l.settleForgetting(ctx, q.Account, q.ID); err != nil {
		return 0, err
	}
	got, engineErr := l.engine.Store.Confirm(ctx, q)
	want, modelErr := l.model.Confirm(ctx, q)
	if failed, err := oneError("Confirm", engineErr, modelErr); failed {
		return got, err
	}
	var d differences
	d.check(got == want, "verdict", nameIn(confirmNames, got), nameIn(confirmNames, want))
	return got, d.err("Confirm")
}

func (l *lockstep) Restore(ctx context.Context, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
	if err := l.settleForgetting(ctx, q.Account, q.ID); err != nil {
		return 0, err
	}
	got, engineErr := l.engine.Store.Restore(ctx, q)
	want, modelErr := l.model.Restore(ctx, q)
	if failed, err := oneError("Restore", engineErr, modelErr); failed {
		return got, err
	}
	var d differences
	d.check(got == want, "verdict", nameIn(restoreNames, got), nameIn(restoreNames, want))
	return got, d.err("Restore")
}

func (l *lockstep) Push(ctx context.Context, account string, usage []reservation.CounterUsage) error {
	engineErr := l.engine.Store.Push(ctx, account, usage)
	modelErr := l.model.Push(ctx, account, usage)
	_, err := oneError("Push", engineErr, modelErr)
	return err
}

func (l *lockstep) GiveBack(ctx context.Context, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error) {
	got, engineErr := l.engine.Store.GiveBack(ctx, account, holds)
	want, modelErr := l.model.GiveBack(ctx, account, holds)
	if failed, err := oneError("GiveBack", engineErr, modelErr); failed {
		return got, err
	}
	var d differences
	d.check(slices.Equal(got.Given, want.Given), "given", got.Given, want.Given)
	d.instant("now", got.Now, want.Now)
	d.levels(want.Now, holds, got.Levels, want.Levels)
	return got, d.err("GiveBack")
}

func (l *lockstep) drift(account string, h reservation.Hold, held, unposted quota.Amount) {
	l.engine.Drift(account, h.Counter, h.Period, held, unposted)
	l.model.Drift(account, h.Counter, h.Period, held, unposted)
}

func (l *lockstep) Audit(ctx context.Context, q reservation.AuditRequest) (reservation.AuditAnswer, error) {
	got, engineErr := l.engine.Store.Audit(ctx, q)
	want, modelErr := l.model.Audit(ctx, q)
	if failed, err := oneError("Audit", engineErr, modelErr); failed {
		return got, err
	}
	var d differences
	d.instant("now", got.Now, want.Now)
	d.check(got.Records == want.Records, "records", got.Records, want.Records)
	d.check(got.Waiting == want.Waiting, "waiting", got.Waiting, want.Waiting)
	d.check(got.TooMany == want.TooMany, "too many", got.TooMany, want.TooMany)
	d.check(len(got.Counters) == len(want.Counters), "number of counters", len(got.Counters), len(want.Counters))
	for i := range min(len(got.Counters), len(want.Counters)) {
		g, w := got.Counters[i], want.Counters[i]
		if known := l.model.quotaOf(nameOf(q.Account, w.Counter), w.PeriodKey); known == nil || l.model.now() >= known.end {
			// The counter of a past period may have been dropped when nothing was open.
			g.Seeded, g.Used, g.Version = w.Seeded, w.Used, w.Version
		}
		d.check(g == w, fmt.Sprintf("counter %d", i), fmt.Sprintf("%+v", g), fmt.Sprintf("%+v", w))
	}
	return got, d.err("Audit")
}

// Open walks through the pages, which must be the model's one by one.
func (l *lockstep) Open(ctx context.Context, account string, most int) ([]reservation.OpenReservation, error) {
	var all []reservation.OpenReservation
	cursor, modelCursor := "", ""
	for {
		got, err := l.engine.Store.Open(ctx, account, cursor, most)
		if err != nil {
			return all, fmt.Errorf("Open: %w", err)
		}
		want, _ := l.model.Open(ctx, account, modelCursor, most)
		var d differences
		d.instant("now", got.Now, want.Now)
		d.check(len(got.Open) == len(want.Open), "reservations on the page", len(got.Open), len(want.Open))
		for i := range min(len(got.Open), len(want.Open)) {
			g, w := got.Open[i], want.Open[i]
			d.check(g.ID == w.ID, fmt.Sprintf("open %d", i), g.ID, w.ID)
			d.instant(fmt.Sprintf("open %d expires", i), g.ExpiresAt, w.ExpiresAt)
			d.check(bytes.Equal(g.Token, w.Token), fmt.Sprintf("open %d token", i), string(g.Token), string(w.Token))
		}
		d.check((got.Cursor == "") == (want.Cursor == ""), "last page", got.Cursor == "", want.Cursor == "")
		if len(d) > 0 {
			return all, d.err("Open")
		}
		all = append(all, got.Open...)
		if got.Cursor == "" {
			return all, nil
		}
		cursor, modelCursor = got.Cursor, want.Cursor
	}
}

func (l *lockstep) Seed(ctx context.Context, s reservation.SeedRequest) (bool, error) {
	got, engineErr := l.engine.Store.Seed(ctx, s)
	forModel := s
	forModel.Ticket = -1 // one that was never given
	if known, ok := l.tickets[s.Ticket]; ok {
		forModel.Ticket = known
	}
	want, modelErr := l.model.Seed(ctx, forModel)
	if failed, err := oneError("Seed", engineErr, modelErr); failed {
		return got, err
	}
	var d differences
	// When a period is over its counter, and the ticket with it, is dropped
	// sooner or later; nobody can take from it any more.
	if l.model.clock.Now().Before(s.Period.End) {
		d.check(got == want, "accepted", got, want)
	}
	return got, d.err("Seed")
}

// Sweep sweeps until nothing is due, in any number of calls, and compares the
// sum of what was found.
func (l *lockstep) Sweep(ctx context.Context) (reservation.SweepAnswer, error) {
	var got reservation.SweepAnswer
	for range 10_000 {
		part, err := l.engine.Store.Sweep(ctx, 1000)
		if err != nil {
			return got, fmt.Errorf("Sweep: %w", err)
		}
		got.Pending = append(got.Pending, part.Pending...)
		got.Expired += part.Expired
		if got.Epoch != "" && part.Epoch != got.Epoch {
			return got, fmt.Errorf("Sweep: the epoch is %q and then %q, and nothing was lost", got.Epoch, part.Epoch)
		}
		got.Now, got.More, got.Epoch = part.Now, part.More, part.Epoch
		if !part.More {
			break
		}
	}
	want, _ := l.model.Sweep(ctx, len(l.model.records))
	var d differences
	d.check(got.Epoch != "", "epoch", "none", "one")
	if l.epoch != "" {
		d.check((got.Epoch == l.epoch) == (want.Epoch == l.modelEpoch), "epoch is that of the last sweep", got.Epoch == l.epoch, want.Epoch == l.modelEpoch)
	}
	l.epoch, l.modelEpoch = got.Epoch, want.Epoch
	d.check(!got.More, "more", "after 10,000 sweeps", "nothing")
	d.instant("now", got.Now, want.Now)
	d.check(got.Expired == want.Expired, "expired", got.Expired, want.Expired)
	for _, p := range got.Pending {
		same := func(o reservation.Pending) bool { return o.Account == p.Account && o.ID == p.ID }
		i := slices.IndexFunc(want.Pending, same)
		if i < 0 {
			d.check(false, fmt.Sprintf("pending %s of account %q", p.ID, p.Account), "handed out", "not due, or handed out twice")
			continue
		}
		d.record("pending "+p.ID.String(), want.Now, l.model.find(p.Account, p.ID), p.Record, want.Pending[i].Record)
		want.Pending = slices.Delete(want.Pending, i, i+1)
	}
	for _, p := range want.Pending {
		d.check(false, fmt.Sprintf("pending %s of account %q", p.ID, p.Account), "not handed out", "due")
	}
	return got, d.err("Sweep")
}

func (l *lockstep) Lookup(ctx context.Context, account string, id reservation.ID) (reservation.Record, error) {
	if err := l.settleForgetting(ctx, account, id); err != nil {
		return reservation.Record{}, err
	}
	got, err := l.engine.Store.Lookup(ctx, account, id)
	if err != nil {
		return got, fmt.Errorf("Lookup: %w", err)
	}
	want, _ := l.model.Lookup(ctx, account, id)
	var d differences
	d.record("record", l.model.clock.Now(), l.model.find(account, id), got, want)
	return got, d.err("Lookup")
}

func (l *lockstep) Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error) {
	got, now, err := l.engine.Store.Levels(ctx, account, holds)
	if err != nil {
		return got, now, fmt.Errorf("Levels: %w", err)
	}
	want, wantNow, _ := l.model.Levels(ctx, account, holds)
	var d differences
	d.instant("now", now, wantNow)
	d.levels(wantNow, holds, got, want)
	return got, now, d.err("Levels")
}
