package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/big"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// The suite must be able to fail. Its own model is an engine too: behind a
// lock it passes everything, and with one fault at a time it is caught.

// faulty is an engine made of a model. Each function, when it is set, stands
// for the call.
type faulty struct {
	mu sync.Mutex
	*Model

	reserve func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error)
	refund  func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error)
	renew   func(m *Model, q reservation.RenewRequest) (reservation.RenewAnswer, error)
	confirm func(m *Model, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error)
	seed    func(m *Model, q reservation.SeedRequest) (bool, error)
	restore func(m *Model, q reservation.RestoreRequest) (reservation.RestoreVerdict, error)
	open    func(m *Model, account, cursor string, most int) (reservation.OpenPage, error)
	push    func(m *Model, account string, usage []reservation.CounterUsage) error
	give    func(m *Model, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error)
	audit   func(m *Model, q reservation.AuditRequest) (reservation.AuditAnswer, error)
	sweep   func(m *Model, most int) (reservation.SweepAnswer, error)
	lookup  func(m *Model, account string, id reservation.ID) (reservation.Record, error)

	// spoil, when set, runs after each call that changes something.
	spoil func(m *Model)
	// unlocked lets another call in between the decision and the taking.
	unlocked bool
}

func (f *faulty) after() {
	if f.spoil != nil {
		f.spoil(f.Model)
	}
}

func (f *faulty) Reserve(ctx context.Context, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	if err := validReserve(ctx, q); err != nil {
		return reservation.ReserveAnswer{}, err
	}
	q.Holds, q.Token = slices.Clone(q.Holds), slices.Clone(q.Token)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	if f.unlocked {
		dry := q
		dry.DryRun = true
		if answer, err := f.Model.Reserve(ctx, dry); err != nil || answer.Verdict != reservation.Granted {
			return answer, err
		}
		f.mu.Unlock()
		runtime.Gosched()
		f.mu.Lock()
		for i := range q.Holds {
			if q.Holds[i].Kind == quota.KindBucket {
				f.change(nameOf(q.Account, q.Holds[i].Counter), q.Holds[i].Bucket, q.Holds[i].Amount)
			}
			q.Holds[i].Amount = 0
		}
	}
	if f.reserve != nil {
		return f.reserve(f.Model, q)
	}
	return f.Model.Reserve(ctx, q)
}

func (f *faulty) Refund(ctx context.Context, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
	if err := validRefund(ctx, q); err != nil {
		return reservation.RefundAnswer{}, err
	}
	q.Outcome, q.Actual = slices.Clone(q.Outcome), slices.Clone(q.Actual)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	if f.refund != nil {
		return f.refund(f.Model, q)
	}
	return f.Model.Refund(ctx, q)
}

func (f *faulty) Renew(ctx context.Context, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
	if q.Lease < time.Millisecond || q.Lease > 24*time.Hour {
		return reservation.RenewAnswer{}, fmt.Errorf("lease: %s", q.Lease)
	}
	if err := ctx.Err(); err != nil {
		return reservation.RenewAnswer{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	if f.renew != nil {
		return f.renew(f.Model, q)
	}
	return f.Model.Renew(ctx, q)
}

func (f *faulty) Confirm(ctx context.Context, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	if q.Rank != ledger.RankExpired && q.Rank != ledger.RankRefunded {
		return 0, fmt.Errorf("rank: %d", q.Rank)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	if f.confirm != nil {
		return f.confirm(f.Model, q)
	}
	return f.Model.Confirm(ctx, q)
}

func (f *faulty) Seed(ctx context.Context, q reservation.SeedRequest) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	if f.seed != nil {
		return f.seed(f.Model, q)
	}
	return f.Model.Seed(ctx, q)
}

func (f *faulty) Restore(ctx context.Context, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
	if err := errors.Join(q.Validate(), ctx.Err()); err != nil {
		return 0, err
	}
	q.Holds, q.Token = slices.Clone(q.Holds), slices.Clone(q.Token)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	if f.restore != nil {
		return f.restore(f.Model, q)
	}
	return f.Model.Restore(ctx, q)
}

func (f *faulty) Audit(ctx context.Context, q reservation.AuditRequest) (reservation.AuditAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	if f.audit != nil {
		return f.audit(f.Model, q)
	}
	answer, err := f.Model.Audit(ctx, q)
	return answer, errors.Join(err, ctx.Err())
}

func (f *faulty) Open(ctx context.Context, account, cursor string, most int) (reservation.OpenPage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open != nil {
		return f.open(f.Model, account, cursor, most)
	}
	page, err := f.Model.Open(ctx, account, cursor, most)
	return page, errors.Join(err, ctx.Err())
}

func (f *faulty) Push(ctx context.Context, account string, usage []reservation.CounterUsage) error {
	if err := errors.Join(reservation.ValidatePush(account, usage), ctx.Err()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	if f.push != nil {
		return f.push(f.Model, account, usage)
	}
	return f.Model.Push(ctx, account, usage)
}

func (f *faulty) Leave(ctx context.Context, r reservation.LeaveRequest) error {
	if err := errors.Join(r.Validate(), ctx.Err()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	return f.Model.Leave(ctx, r)
}

func (f *faulty) GiveBack(ctx context.Context, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error) {
	if err := errors.Join(reservation.ValidateGiveBack(account, holds), ctx.Err()); err != nil {
		return reservation.GiveBackAnswer{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	if f.give != nil {
		return f.give(f.Model, account, holds)
	}
	return f.Model.GiveBack(ctx, account, holds)
}

func (f *faulty) Sweep(ctx context.Context, most int) (reservation.SweepAnswer, error) {
	if err := ctx.Err(); err != nil {
		return reservation.SweepAnswer{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.after()
	if f.sweep != nil {
		return f.sweep(f.Model, most)
	}
	return f.Model.Sweep(ctx, most)
}

func (f *faulty) Lookup(ctx context.Context, account string, id reservation.ID) (reservation.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lookup != nil {
		return f.lookup(f.Model, account, id)
	}
	record, _ := f.Model.Lookup(ctx, account, id)
	return record, ctx.Err()
}

func (f *faulty) Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	levels, now, _ := f.Model.Levels(ctx, account, holds)
	return levels, now, ctx.Err()
}

// validReserve is what the model leaves to the broker.
func validReserve(ctx context.Context, q reservation.ReserveRequest) error {
	if q.Settle == nil && (q.Lease < time.Millisecond || q.Lease > 24*time.Hour) {
		return fmt.Errorf("lease: %s", q.Lease)
	}
	if q.Settle != nil && len(q.Settle.Outcome) > reservation.MaxOutcomeBytes {
		return fmt.Errorf("outcome: too long")
	}
	if q.Account == "" || len(q.Holds) > reservation.MaxHolds || q.Retention < 0 || q.Retention > 24*time.Hour ||
		len(q.Key) > reservation.MaxKeyBytes || len(q.Token) > reservation.MaxTokenBytes {
		return fmt.Errorf("request: out of bounds")
	}
	seen := map[reservation.Counter]bool{}
	for _, h := range q.Holds {
		if seen[h.Counter] || h.Amount.Check() != nil || h.Kind < quota.KindBucket || h.Kind > quota.KindLeakyQueue {
			return fmt.Errorf("hold: out of bounds")
		}
		seen[h.Counter] = true
	}
	return ctx.Err()
}

func validRefund(ctx context.Context, q reservation.RefundRequest) error {
	for _, amount := range q.Actual {
		if err := amount.Check(); err != nil {
			return err
		}
	}
	if q.Account == "" || q.Lease > 24*time.Hour || len(q.Outcome) > reservation.MaxOutcomeBytes {
		return fmt.Errorf("request: out of bounds")
	}
	return ctx.Err()
}

// newFaulty is an engine with a fault; without one it is right.
func newFaulty(fault func(f *faulty)) New {
	return func(tb testing.TB, clock *Clock) Engine {
		f := &faulty{Model: NewModel(clock)}
		if fault != nil {
			fault(f)
		}
		return Engine{
			Store: f, Checks: 200,
			LoseData:  func() { f.mu.Lock(); f.Model.LoseData(); f.mu.Unlock() },
			Incarnate: func() { f.mu.Lock(); f.Model.Incarnate(); f.mu.Unlock() },
			Drift: func(account string, c reservation.Counter, p quota.Period, held, unposted quota.Amount) {
				f.mu.Lock()
				f.Model.Drift(account, c, p, held, unposted)
				f.mu.Unlock()
			},
		}
	}
}

func TestModelPassesItsSuite(t *testing.T) { Run(t, newFaulty(nil)) }

// mutant is one fault. byHistory says that random histories find it too; the
// others need what a history does not do.
type mutant struct {
	name      string
	byHistory bool
	fault     func(f *faulty)
}

// eachBucket changes the levels of buckets after each call.
func eachBucket(change func(b *modelBucket)) func(f *faulty) {
	return func(f *faulty) {
		f.spoil = func(m *Model) {
			for _, b := range m.buckets {
				change(b)
			}
		}
	}
}

// eachRate changes the states of GCRAs and windows after each call.
func eachRate(change func(m *Model, s *modelRate)) func(f *faulty) {
	return func(f *faulty) {
		f.spoil = func(m *Model) {
			for _, s := range m.rates {
				change(m, s)
			}
		}
	}
}

// afterReserve changes the answer to a Reserve, or the state after it.
func afterReserve(change func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer)) func(f *faulty) {
	return func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			answer, err := m.Reserve(context.Background(), q)
			change(m, q, &answer)
			return answer, err
		}
	}
}

func afterRefund(change func(m *Model, q reservation.RefundRequest, a *reservation.RefundAnswer)) func(f *faulty) {
	return func(f *faulty) {
		f.refund = func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
			answer, err := m.Refund(context.Background(), q)
			change(m, q, &answer)
			return answer, err
		}
	}
}

// afterRestore changes the record that was just restored.
func afterRestore(change func(m *Model, r *modelRecord)) func(f *faulty) {
	return func(f *faulty) {
		f.restore = func(m *Model, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
			verdict, err := m.Restore(context.Background(), q)
			if verdict == reservation.Restored {
				change(m, m.find(q.Account, q.ID))
			}
			return verdict, err
		}
	}
}

// afterAudit changes each counter of an audit's answer.
func afterAudit(change func(m *Model, q reservation.AuditRequest, a *reservation.AuditAnswer)) func(f *faulty) {
	return func(f *faulty) {
		f.audit = func(m *Model, q reservation.AuditRequest) (reservation.AuditAnswer, error) {
			answer, err := m.Audit(context.Background(), q)
			change(m, q, &answer)
			return answer, err
		}
	}
}

// onExpiry changes each record that has just expired.
func onExpiry(change func(m *Model, r *modelRecord)) func(f *faulty) {
	return func(f *faulty) {
		done := map[*modelRecord]bool{}
		f.spoil = func(m *Model) {
			for _, r := range m.records {
				if r.state == reservation.StateExpired && !r.confirmed && !done[r] {
					done[r] = true
					change(m, r)
				}
			}
		}
	}
}

// unkept changes what Reserves must leave.
func unkept(change func(h *reservation.Hold)) func(f *faulty) {
	return func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			for i := range q.Holds {
				change(&q.Holds[i])
			}
			return m.Reserve(context.Background(), q)
		}
	}
}

// eachShare changes the share that a grant of a fair limit leaves.
func eachShare(change func(m *Model, account string, h reservation.Hold, before, start int64)) func(f *faulty) {
	return func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			before := make([]int64, len(q.Holds))
			for i, h := range q.Holds {
				before[i] = m.shareOf(q.Account, h)
			}
			a, err := m.Reserve(context.Background(), q)
			if a.Verdict != reservation.Granted || q.DryRun || q.Parent != (reservation.ID{}) || q.Decides() {
				return a, err
			}
			for i, h := range q.Holds {
				if h.Fair && h.Amount > 0 {
					change(m, q.Account, h, before[i], a.StartAt.UnixMicro())
				}
			}
			return a, err
		}
	}
}

var mutants = []mutant{
	{"a fair limit is first come first served", true, unkept(func(h *reservation.Hold) { h.Fair = false })},
	{"a share counts one account only", true, eachShare(func(m *Model, account string, h reservation.Hold, before, start int64) {
		m.putShare(account, h, quota.FairShare(h.Bucket).Take(before, start, h.Amount, 1))
	})},
	{"a share forgets what was taken before", true, eachShare(func(m *Model, account string, h reservation.Hold, before, start int64) {
		m.putShare(account, h, quota.FairShare(h.Bucket).Take(0, start, h.Amount, max(len(m.sharers(h)), 1)))
	})},
	{"some of those who have left go on sharing", true, func(f *faulty) {
		f.spoil = func(m *Model) {
			for i := range m.shared {
				m.shared[i].until = max(m.shared[i].until, m.now()+1)
			}
		}
	}},
	{"a Refund leaves the share as it was", true, func(f *faulty) {
		f.refund = func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
			before := m.shared
			defer func() { m.shared = before }()
			return m.Refund(context.Background(), q)
		}
	}},
	{"who is ahead of its share leaves nothing", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			for i, h := range q.Holds {
				if m.isAhead(q.Account, h) {
					q.Holds[i].Fair = false
				}
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"nothing is kept for higher priorities", true, unkept(func(h *reservation.Hold) { h.Keep = 0 })},
	{"quotas and slots keep nothing", true, unkept(func(h *reservation.Hold) {
		if h.Kind == quota.KindQuota || h.Kind == quota.KindSlots {
			h.Keep = 0
		}
	})},
	{"the retry forgets what is kept", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		if a.Verdict != reservation.Refused || q.Holds[a.Refusal.Hold].Keep == 0 || q.Holds[a.Refusal.Hold].Kind != quota.KindBucket {
			return
		}
		h := q.Holds[a.Refusal.Hold]
		level := m.levelAt(nameOf(q.Account, h.Counter), h.Bucket, m.now())
		a.Refusal.RetryAt = after(m.now(), microsUntil(level, h.Bucket, h.Amount))
	})},
	{"what a full bucket did not take is given later", true, func(f *faulty) {
		kept := map[counterName]*big.Rat{}
		f.refund = func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
			over := map[counterName]*big.Rat{}
			if r := m.find(q.Account, q.ID); r != nil && len(q.Actual) == len(r.holds) {
				for i, h := range r.holds {
					if back := h.charged - q.Actual[i]; h.Kind == quota.KindBucket && back > 0 {
						level := m.levelAt(nameOf(r.account, h.Counter), h.Bucket, m.now())
						level.Add(level, whole(int64(back-h.Bucket.Capacity)))
						over[nameOf(r.account, h.Counter)] = level
					}
				}
			}
			answer, err := m.Refund(context.Background(), q)
			for name, spill := range over {
				if answer.Verdict == reservation.RefundSettled && spill.Sign() > 0 {
					kept[name] = spill
				}
			}
			return answer, err
		}
		f.spoil = func(m *Model) {
			for name, spill := range kept {
				if b := m.bucket(name); b != nil && !b.fullBy(m.now()) {
					b.level = new(big.Rat).Add(b.level, spill)
					delete(kept, name)
				}
			}
		}
	}},
	{"debt is forgiven", true, eachBucket(func(b *modelBucket) {
		if b.level.Sign() < 0 {
			b.level = new(big.Rat)
		}
	})},
	{"debt is clamped at minus the capacity", false, eachBucket(func(b *modelBucket) {
		if floor := whole(-int64(b.params.Capacity)); b.level.Cmp(floor) < 0 {
			b.level = floor
		}
	})},
	{"the remainder is dropped", true, eachBucket(func(b *modelBucket) { b.level = whole(int64(floor(b.level))) })},
	{"the remainder is rounded up", true, eachBucket(func(b *modelBucket) {
		if !b.level.IsInt() {
			b.level = whole(int64(floor(b.level)) + 1)
		}
	})},
	{"a refund goes to the window of the present", true, func(f *faulty) {
		f.refund = func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
			if r := m.find(q.Account, q.ID); r != nil {
				for i := range r.holds {
					r.holds[i].at = m.now()
				}
			}
			return m.Refund(context.Background(), q)
		}
	}},
	{"a window forgets what it counted before", true, eachRate(func(m *Model, s *modelRate) { s.counted.Before = 0 })},
	{"a log keeps its last entry only", true, eachRate(func(m *Model, s *modelRate) {
		if n := len(s.counted.Log); n > 1 {
			s.counted.Log = s.counted.Log[n-1:]
		}
	})},
	{"a calendar window begins with its first call", true, eachRate(func(m *Model, s *modelRate) {
		if s.counted.Calendar && s.counted.Start%s.counted.Length == 0 {
			s.counted.Start = max(s.counted.Start, m.now())
		}
	})},
	{"GCRA keeps what came back beyond whole", true, eachRate(func(m *Model, s *modelRate) {
		if s.arrival == m.now() {
			s.arrival -= time.Second.Microseconds()
		}
		if s.arrival > m.now() {
			s.arrival--
		}
	})},
	{"a refusal deducts", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		if a.Verdict == reservation.Refused && !q.DryRun {
			for _, h := range q.Holds {
				if h.Kind == quota.KindBucket {
					m.change(nameOf(q.Account, h.Counter), h.Bucket, 1)
				}
			}
		}
	})},
	{"a refusal takes what fits", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		if a.Verdict == reservation.Refused && !q.DryRun {
			for i, h := range q.Holds {
				if h.Kind == quota.KindBucket && i < a.Refusal.Hold {
					m.change(nameOf(q.Account, h.Counter), h.Bucket, h.Amount)
				}
			}
		}
	})},
	{"the last refusal is reported, not the strictest", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		for i := range q.Holds {
			if a.Verdict != reservation.Refused || q.Settle != nil && q.Holds[i].Kind == quota.KindSlots {
				continue
			}
			if refusal, fits := m.refusal(q.Account, i, q.Holds[i]); !fits {
				a.Refusal = refusal
			}
		}
	})},
	{"too much is told to wait", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		if a.Refusal.Reason == reservation.ExceedsCapacity {
			a.Refusal.Reason, a.Refusal.RetryAt = reservation.RateLimited, a.Now.Add(time.Hour)
		}
	})},
	{"the retry is a microsecond early", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		if a.Refusal.Reason == reservation.RateLimited {
			a.Refusal.RetryAt = a.Refusal.RetryAt.Add(-time.Microsecond)
		}
	})},
	{"a slot's retry is the latest lease", false, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		if a.Refusal.Reason == reservation.ConcurrencyLimited {
			ends := m.holders(nameOf(q.Account, q.Holds[a.Refusal.Hold].Counter))
			a.Refusal.RetryAt = instant(ends[len(ends)-1])
		}
	})},
	{"traffic extends other leases", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		for _, r := range m.records {
			if a.Verdict == reservation.Granted && !q.DryRun && r.account == q.Account && r.state == reservation.StateHeld {
				r.expires = max(r.expires, a.ExpiresAt.UnixMicro())
			}
		}
	})},
	{"a key is replayed whatever the body", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			for _, r := range m.records {
				if q.Key != "" && r.key == q.Key && r.account == q.Account {
					q.Body = r.ask
				}
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"keys are shared by accounts", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			for _, r := range m.records {
				if q.Key != "" && r.key == q.Key && r.account != q.Account {
					return reservation.ReserveAnswer{Verdict: reservation.Replayed, Now: instant(m.now()), Record: r.show(m.now())}, nil
				}
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"keys are ignored", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			q.Key = ""
			return m.Reserve(context.Background(), q)
		}
	}},
	{"a known id holds again", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			if r := m.find(q.Account, q.ID); r != nil && r.state == reservation.StateSettled && !q.DryRun {
				m.Forget(q.Account, q.ID)
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"a replay shows the first state", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		if a.Verdict == reservation.Replayed {
			a.Record.State = reservation.StateHeld
		}
	})},
	{"an old id is not stale", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			answer, err := m.Reserve(context.Background(), q)
			if age := answer.Now.Sub(q.ID.Minted()); answer.Verdict == reservation.Stale && age > 0 && age < time.Hour {
				at := m.clock.Now()
				m.clock.Set(q.ID.Minted())
				answer, err = m.Reserve(context.Background(), q)
				m.clock.Set(at)
			}
			return answer, err
		}
	}},
	{"the clock is given to the second", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		a.Now = a.Now.Truncate(time.Second)
	})},
	{"a DryRun takes", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			q.DryRun = false
			return m.Reserve(context.Background(), q)
		}
	}},
	{"a Charge takes a slot", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			settle := q.Settle
			q.Settle = nil
			if settle != nil {
				q.Lease = time.Minute
			}
			answer, err := m.Reserve(context.Background(), q)
			if r := m.find(q.Account, q.ID); settle != nil && r != nil && answer.Verdict == reservation.Granted {
				r.state, r.rank, r.body, r.outcome = reservation.StateSettled, ledger.RankRefunded, settle.Body, settle.Outcome
				r.closedAt, r.due = m.now(), m.now()+reservation.OutboxDelay.Microseconds()
			}
			return answer, err
		}
	}},
	{"forecasts are tolerated twice", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			if q.Output != nil {
				o := *q.Output
				o.Slopes = slices.Clone(o.Slopes)
				for i := range o.Slopes {
					o.Slopes[i].Tolerance *= 2
				}
				q.Output = &o
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"open risks are forgotten", true, func(f *faulty) {
		f.spoil = func(m *Model) {
			for _, r := range m.records {
				for i := range r.holds {
					r.holds[i].Risk = 0
				}
			}
		}
	}},
	{"the least is granted where more fits", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			dry := q
			dry.DryRun = true
			if answer, err := m.Reserve(context.Background(), dry); err == nil && q.Output != nil && answer.Decided.Tokens > q.Output.Least {
				o := *q.Output
				for i := range o.Slopes {
					q.Holds[i].Amount = amountFor(&o, i, q.Holds[i], o.Least)
				}
				o.Asked, o.Forecast = o.Least, min(o.Forecast, o.Least)
				q.Output = &o
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"Renew revives", true, func(f *faulty) {
		f.renew = func(m *Model, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
			answer, err := m.Renew(context.Background(), q)
			if r := m.find(q.Account, q.ID); r != nil && r.state == reservation.StateExpired {
				r.state, r.rank, r.expires = reservation.StateHeld, 0, m.now()+q.Lease.Microseconds()
				answer.State, answer.ExpiresAt = reservation.StateHeld, instant(r.expires)
			}
			return answer, err
		}
	}},
	{"Renew shortens", true, func(f *faulty) {
		f.renew = func(m *Model, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
			answer, err := m.Renew(context.Background(), q)
			if r := m.find(q.Account, q.ID); r != nil && r.state == reservation.StateHeld {
				r.expires = m.now() + q.Lease.Microseconds()
				answer.ExpiresAt = instant(r.expires)
			}
			return answer, err
		}
	}},
	{"an expiry frees twice", true, onExpiry(func(m *Model, r *modelRecord) {
		for _, h := range r.holds {
			if h.Kind == quota.KindBucket && h.OnExpiry == quota.ExpiryGiveBack && h.Amount > 0 {
				m.change(nameOf(r.account, h.Counter), h.Bucket, -h.Amount)
			}
		}
	})},
	{"an expiry frees the quota at once", true, onExpiry(func(m *Model, r *modelRecord) {
		for i := range r.holds {
			r.holds[i].unposted = 0
		}
	})},
	{"an expiry gives back what it should charge", true, onExpiry(func(m *Model, r *modelRecord) {
		for i, h := range r.holds {
			if h.OnExpiry == quota.ExpiryCharge {
				m.correct(r, i, 0)
			}
		}
	})},
	{"an expiry tells the ledger nothing", true, onExpiry(func(m *Model, r *modelRecord) { r.confirmed = true })},
	{"leases end a microsecond late", true, func(f *faulty) {
		f.lookup = func(m *Model, account string, id reservation.ID) (reservation.Record, error) {
			if r := m.find(account, id); r != nil && r.state == reservation.StateHeld && r.expires == m.now() {
				return r.show(m.now() - 1), nil
			}
			return m.Lookup(context.Background(), account, id)
		}
	}},
	{"a repeated Refund charges again", true, afterRefund(func(m *Model, q reservation.RefundRequest, a *reservation.RefundAnswer) {
		if r := m.find(q.Account, q.ID); a.Verdict == reservation.RefundSame {
			for i, h := range r.holds {
				if h.Kind == quota.KindBucket && q.Actual[i] > 0 {
					m.change(nameOf(r.account, h.Counter), h.Bucket, q.Actual[i])
				}
			}
		}
	})},
	{"a conflict is taken for the same", true, afterRefund(func(m *Model, q reservation.RefundRequest, a *reservation.RefundAnswer) {
		if a.Verdict == reservation.RefundConflict {
			a.Verdict = reservation.RefundSame
		}
	})},
	{"a conflict replaces the first", true, func(f *faulty) {
		f.refund = func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
			if r := m.find(q.Account, q.ID); r != nil && r.state == reservation.StateSettled && r.body != q.Body {
				r.state, r.rank = reservation.StateExpired, ledger.RankExpired
			}
			return m.Refund(context.Background(), q)
		}
	}},
	{"a late Refund is refused", true, func(f *faulty) {
		f.refund = func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
			reclaimed := m.reclaim(q.Account, reservation.ReclaimBatch)
			if r := m.find(q.Account, q.ID); r != nil && r.state == reservation.StateExpired {
				return reservation.RefundAnswer{Verdict: reservation.RefundForgotten, Now: instant(m.now()), Reclaimed: reclaimed}, nil
			}
			answer, err := m.Refund(context.Background(), q)
			answer.Reclaimed += reclaimed
			return answer, err
		}
	}},
	{"a late Refund is not marked", true, afterRefund(func(m *Model, q reservation.RefundRequest, a *reservation.RefundAnswer) {
		if r := m.find(q.Account, q.ID); r != nil && a.Verdict == reservation.RefundSettled {
			r.late, a.Record.Late = false, false
		}
	})},
	{"an orphan is not charged", true, func(f *faulty) {
		f.refund = func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
			known := m.find(q.Account, q.ID) != nil
			answer, err := m.Refund(context.Background(), q)
			if !known && answer.Verdict == reservation.RefundSettled {
				for i, h := range q.Holds {
					if h.Kind == quota.KindBucket && q.Actual[i] > 0 {
						m.change(nameOf(q.Account, h.Counter), h.Bucket, -q.Actual[i])
					}
				}
			}
			return answer, err
		}
	}},
	{"an unknown id is taken for forgotten", true, afterRefund(func(m *Model, q reservation.RefundRequest, a *reservation.RefundAnswer) {
		if a.Verdict == reservation.RefundUnknown {
			a.Verdict = reservation.RefundForgotten
		}
	})},
	{"a lower rank wins", true, func(f *faulty) {
		f.confirm = func(m *Model, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
			if r := m.find(q.Account, q.ID); r != nil && r.rank > q.Rank && !r.confirmed && len(q.Actual) == len(r.holds) {
				r.rank = 0
			}
			return m.Confirm(context.Background(), q)
		}
	}},
	{"a Confirm leaves the unposted", true, func(f *faulty) {
		f.confirm = func(m *Model, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
			verdict, err := m.Confirm(context.Background(), q)
			if verdict == reservation.ConfirmAdopted {
				for i := range m.find(q.Account, q.ID).holds {
					h := &m.find(q.Account, q.ID).holds[i]
					if h.Kind == quota.KindQuota {
						h.unposted = h.charged
					}
				}
			}
			return verdict, err
		}
	}},
	{"a Confirm does not correct the bucket", true, func(f *faulty) {
		f.confirm = func(m *Model, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
			buckets := m.cloneBuckets()
			verdict, err := m.Confirm(context.Background(), q)
			if verdict == reservation.ConfirmAdopted {
				m.buckets = buckets
			}
			return verdict, err
		}
	}},
	{"an older usage is pushed", true, func(f *faulty) {
		f.confirm = func(m *Model, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
			for _, u := range q.Usage {
				if c := m.quotaOf(nameOf(q.Account, u.Counter), u.Period.Key); c != nil {
					c.version = 0
				}
			}
			return m.Confirm(context.Background(), q)
		}
	}},
	{"a push seeds", true, func(f *faulty) {
		f.confirm = func(m *Model, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
			verdict, err := m.Confirm(context.Background(), q)
			for _, u := range q.Usage {
				if c := m.quotaOf(nameOf(q.Account, u.Counter), u.Period.Key); c != nil {
					c.incarnation = m.incarnation
				}
			}
			return verdict, err
		}
	}},
	{"any ticket seeds", true, func(f *faulty) {
		f.seed = func(m *Model, q reservation.SeedRequest) (bool, error) {
			if c := m.quotaOf(nameOf(q.Account, q.Counter), q.Period.Key); c != nil && c.ticketOf == m.incarnation && c.ticket != 0 {
				q.Ticket = c.ticket
			}
			return m.Seed(context.Background(), q)
		}
	}},
	{"a ticket stays after its Seed", true, func(f *faulty) {
		f.seed = func(m *Model, q reservation.SeedRequest) (bool, error) {
			ok, err := m.Seed(context.Background(), q)
			if c := m.quotaOf(nameOf(q.Account, q.Counter), q.Period.Key); ok {
				c.ticket = q.Ticket
			}
			return ok, err
		}
	}},
	{"an older version seeds", true, func(f *faulty) {
		f.seed = func(m *Model, q reservation.SeedRequest) (bool, error) {
			if c := m.quotaOf(nameOf(q.Account, q.Counter), q.Period.Key); c != nil {
				c.version = 0
			}
			return m.Seed(context.Background(), q)
		}
	}},
	{"a restart keeps quotas seeded", true, func(f *faulty) {
		f.spoil = func(m *Model) {
			for _, c := range m.quotas {
				if c.incarnation != 0 {
					c.incarnation, c.ticketOf = 1, 1
				}
			}
			m.incarnation = 1
		}
	}},
	{"each ask gives a new ticket", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			if !q.DryRun {
				for _, c := range m.quotas {
					c.ticket = 0
				}
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"a quota's amount is posted to the present period", true, afterRefund(func(m *Model, q reservation.RefundRequest, a *reservation.RefundAnswer) {
		if a.Verdict != reservation.RefundSettled {
			return
		}
		for i := range m.find(q.Account, q.ID).holds {
			h := &m.find(q.Account, q.ID).holds[i]
			if h.Kind == quota.KindQuota && m.now() >= h.Period.End.UnixMicro() {
				h.Period = quota.Account{TimeZone: "UTC"}.PeriodAt(unitOf(h.Limit), m.clock.Now())
			}
		}
	})},
	{"the outbox waits for ever", true, func(f *faulty) {
		f.sweep = func(m *Model, most int) (reservation.SweepAnswer, error) {
			answer, err := m.Sweep(context.Background(), most)
			for _, p := range answer.Pending {
				m.find(p.Account, p.ID).due = farMicros
			}
			return answer, err
		}
	}},
	{"the outbox waits for nothing", true, func(f *faulty) {
		f.spoil = func(m *Model) {
			for _, r := range m.records {
				r.due = min(r.due, m.now())
			}
		}
	}},
	{"a sweep hands out more than asked", false, func(f *faulty) {
		f.sweep = func(m *Model, most int) (reservation.SweepAnswer, error) { return m.Sweep(context.Background(), 1<<30) }
	}},
	{"a call reclaims without a bound", false, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			n := m.reclaim(q.Account, 1<<30)
			answer, err := m.Reserve(context.Background(), q)
			answer.Reclaimed += n
			return answer, err
		}
	}},
	{"an ended lease keeps its slot until it is reclaimed", false, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		waiting := 0
		for _, r := range m.records {
			if r.account == q.Account && r.state == reservation.StateHeld && r.expires <= m.now() {
				waiting++
			}
		}
		if waiting > 0 && a.Verdict == reservation.Granted {
			m.Forget(q.Account, q.ID)
			*a = reservation.ReserveAnswer{Verdict: reservation.Refused, Now: a.Now, Reclaimed: a.Reclaimed}
		}
	})},
	{"a confirmed record is forgotten early", true, func(f *faulty) {
		f.spoil = func(m *Model) {
			m.records = slices.DeleteFunc(m.records, func(r *modelRecord) bool { return r.confirmed })
		}
	}},
	{"an unconfirmed record is forgotten in time", true, func(f *faulty) {
		f.spoil = func(m *Model) {
			m.records = slices.DeleteFunc(m.records, func(r *modelRecord) bool {
				return r.state == reservation.StateSettled && m.now() > r.expires+r.retention
			})
		}
	}},
	{"a changed burst is cut by old reservations", true, func(f *faulty) {
		f.refund = func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
			if r := m.find(q.Account, q.ID); r != nil && r.state == reservation.StateHeld {
				for _, h := range r.holds {
					if b := m.bucket(nameOf(r.account, h.Counter)); h.Kind == quota.KindBucket && b != nil && !b.fullBy(m.now()) {
						b.level, b.at = m.levelAt(b.name, h.Bucket, m.now()), m.now()
						b.params = h.Bucket
					}
				}
			}
			return m.Refund(context.Background(), q)
		}
	}},
	{"a Restore holds a known id again", true, func(f *faulty) {
		f.restore = func(m *Model, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
			m.reclaim(q.Account, reservation.ReclaimBatch)
			if r := m.find(q.Account, q.ID); r != nil && r.state == reservation.StateExpired {
				m.Forget(q.Account, q.ID)
			}
			return m.Restore(context.Background(), q)
		}
	}},
	{"a Restore holds what has ended", true, func(f *faulty) {
		f.restore = func(m *Model, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
			if !q.ExpiresAt.After(m.clock.Now()) {
				q.ExpiresAt = m.clock.Now().Add(time.Second)
			}
			return m.Restore(context.Background(), q)
		}
	}},
	{"a Restore leaves the bucket full", true, afterRestore(func(m *Model, r *modelRecord) {
		for i, h := range r.holds {
			if h.Kind == quota.KindBucket && h.Amount > 0 {
				m.correct(r, i, 0)
				r.holds[i].charged = h.Amount
			}
		}
	})},
	{"a Restore takes no slot", true, afterRestore(func(m *Model, r *modelRecord) {
		for i, h := range r.holds {
			if h.Kind == quota.KindSlots {
				r.holds[i].held = 0
			}
		}
	})},
	{"a Restore waits for the seed with the quota's hold", true, afterRestore(func(m *Model, r *modelRecord) {
		for i, h := range r.holds {
			if h.Kind == quota.KindQuota && !m.seeded(nameOf(r.account, h.Counter), h.Period.Key) {
				r.holds[i].held = 0
			}
		}
	})},
	{"a Restore seeds", true, afterRestore(func(m *Model, r *modelRecord) {
		for _, h := range r.holds {
			if h.Kind == quota.KindQuota && h.Amount > 0 {
				m.quotaOf(nameOf(r.account, h.Counter), h.Period.Key).incarnation = m.incarnation
			}
		}
	})},
	{"a Restore refuses what does not fit", true, func(f *faulty) {
		f.restore = func(m *Model, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
			for i, h := range q.Holds {
				if _, fits := m.refusal(q.Account, i, h); !fits && m.find(q.Account, q.ID) == nil {
					return reservation.RestoreEnded, nil
				}
			}
			return m.Restore(context.Background(), q)
		}
	}},
	{"a Restore takes the key from who has it", true, func(f *faulty) {
		f.restore = func(m *Model, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
			verdict, err := m.Restore(context.Background(), q)
			if verdict == reservation.Restored && q.Key != "" {
				for _, r := range m.records {
					if r.account == q.Account && r.key == q.Key {
						r.key = ""
					}
				}
				m.find(q.Account, q.ID).key = q.Key
			}
			return verdict, err
		}
	}},
	{"a Restore loses the key", true, func(f *faulty) {
		f.restore = func(m *Model, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
			q.Key = ""
			return m.Restore(context.Background(), q)
		}
	}},
	{"a Restore begins the lease anew", true, func(f *faulty) {
		f.restore = func(m *Model, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
			if lease := q.ExpiresAt.Sub(q.ID.Minted()); lease > 0 && lease <= reservation.MaxRestoredLease && q.ExpiresAt.After(m.clock.Now()) {
				q.ExpiresAt = m.clock.Now().Add(lease)
			}
			return m.Restore(context.Background(), q)
		}
	}},
	{"Open shows what has ended", true, func(f *faulty) {
		f.open = func(m *Model, account, cursor string, most int) (reservation.OpenPage, error) {
			at := m.clock.Now()
			m.clock.Add(-time.Microsecond)
			page, err := m.Open(context.Background(), account, cursor, most)
			m.clock.Set(at)
			page.Now = at
			return page, err
		}
	}},
	{"Open shows what waits for the ledger", true, func(f *faulty) {
		f.open = func(m *Model, account, cursor string, most int) (reservation.OpenPage, error) {
			var closed []*modelRecord
			for _, r := range m.records {
				if r.state == reservation.StateSettled && !r.confirmed {
					closed, r.state = append(closed, r), reservation.StateHeld
				}
			}
			page, err := m.Open(context.Background(), account, cursor, most)
			for _, r := range closed {
				r.state = reservation.StateSettled
			}
			return page, err
		}
	}},
	{"Open skips one between two pages", true, func(f *faulty) {
		f.open = func(m *Model, account, cursor string, most int) (reservation.OpenPage, error) {
			page, err := m.Open(context.Background(), account, cursor, most)
			if cursor != "" && len(page.Open) > 0 {
				page.Open = page.Open[1:]
			}
			return page, err
		}
	}},
	{"a page of Open ends where others end at the same instant", false, func(f *faulty) {
		f.open = func(m *Model, account, cursor string, most int) (reservation.OpenPage, error) {
			page, err := m.Open(context.Background(), account, cursor, most)
			if page.Cursor != "" {
				last := page.Open[len(page.Open)-1]
				page.Cursor = reservation.OpenPlace{Ends: last.ExpiresAt.UnixMicro() + 1}.Cursor()
			}
			return page, err
		}
	}},
	{"a Push seeds", true, func(f *faulty) {
		f.push = func(m *Model, account string, usage []reservation.CounterUsage) error {
			for _, u := range usage {
				if c := m.quotaOf(nameOf(account, u.Counter), u.Period.Key); c != nil {
					c.incarnation = m.incarnation
				}
			}
			return m.Push(context.Background(), account, usage)
		}
	}},
	{"a Push brings an older value", true, func(f *faulty) {
		f.push = func(m *Model, account string, usage []reservation.CounterUsage) error {
			for _, u := range usage {
				if c := m.quotaOf(nameOf(account, u.Counter), u.Period.Key); c != nil && c.incarnation == m.incarnation {
					c.version = -1
				}
			}
			return m.Push(context.Background(), account, usage)
		}
	}},
	{"a Push leaves what the engine has at the same version", false, func(f *faulty) {
		f.push = func(m *Model, account string, usage []reservation.CounterUsage) error {
			newer := usage[:0:0]
			for _, u := range usage {
				if c := m.quotaOf(nameOf(account, u.Counter), u.Period.Key); c == nil || u.Version > c.version {
					newer = append(newer, u)
				}
			}
			return m.Push(context.Background(), account, newer)
		}
	}},
	{"a Push leaves an unseeded counter's version", false, func(f *faulty) {
		f.push = func(m *Model, account string, usage []reservation.CounterUsage) error {
			for _, u := range usage {
				if c := m.quotaOf(nameOf(account, u.Counter), u.Period.Key); c != nil && c.incarnation != m.incarnation && u.Version > c.version {
					c.used, c.version = u.Used, u.Version
				}
			}
			return m.Push(context.Background(), account, usage)
		}
	}},
	{"a Push is lost", true, func(f *faulty) {
		f.push = func(m *Model, account string, usage []reservation.CounterUsage) error { return nil }
	}},
	{"what is given back goes above the capacity", false, func(f *faulty) {
		f.give = func(m *Model, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error) {
			answer := reservation.GiveBackAnswer{Now: instant(m.now())}
			for _, h := range holds {
				p := h.Bucket
				p.Capacity = quota.MaxAmount
				m.change(nameOf(account, h.Counter), p, -h.Amount)
				answer.Given = append(answer.Given, h.Amount)
			}
			answer.Levels = m.levels(account, holds)
			return answer, nil
		}
	}},
	{"an audit shows the counters as the sums", false, afterAudit(func(m *Model, q reservation.AuditRequest, a *reservation.AuditAnswer) {
		for i := range a.Counters {
			a.Counters[i].HeldSum, a.Counters[i].UnpostedSum = a.Counters[i].Held, a.Counters[i].Unposted
		}
	})},
	{"an audit repairs nothing", false, func(f *faulty) {
		f.audit = func(m *Model, q reservation.AuditRequest) (reservation.AuditAnswer, error) {
			before := m.cloneQuotas()
			answer, err := m.Audit(context.Background(), q)
			m.quotas = before
			return answer, err
		}
	}},
	{"an audit repairs unasked", false, func(f *faulty) {
		f.audit = func(m *Model, q reservation.AuditRequest) (reservation.AuditAnswer, error) {
			q.Repair = true
			return m.Audit(context.Background(), q)
		}
	}},
	{"an audit leaves out what it was not told to look at", true, afterAudit(func(m *Model, q reservation.AuditRequest, a *reservation.AuditAnswer) {
		a.Counters = a.Counters[:len(q.Counters)]
	})},
	{"an audit ends leases", true, func(f *faulty) {
		f.audit = func(m *Model, q reservation.AuditRequest) (reservation.AuditAnswer, error) {
			m.reclaim(q.Account, reservation.ReclaimBatch)
			return m.Audit(context.Background(), q)
		}
	}},
	{"an audit counts what is confirmed", true, afterAudit(func(m *Model, q reservation.AuditRequest, a *reservation.AuditAnswer) {
		for _, r := range m.records {
			if r.account == q.Account && r.confirmed {
				a.Records++
			}
		}
	})},
	{"a loss keeps the epoch", true, func(f *faulty) {
		f.sweep = func(m *Model, most int) (reservation.SweepAnswer, error) {
			answer, err := m.Sweep(context.Background(), most)
			answer.Epoch = "always"
			return answer, err
		}
	}},
	{"every sweep has its own epoch", true, func(f *faulty) {
		n := 0
		f.sweep = func(m *Model, most int) (reservation.SweepAnswer, error) {
			answer, err := m.Sweep(context.Background(), most)
			n++
			answer.Epoch += fmt.Sprint(" ", n)
			return answer, err
		}
	}},
	{"a scope is left out of the counter", false, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			for i := range q.Holds {
				q.Holds[i].Scope = strings.TrimRight(q.Holds[i].Scope, "0123456789")
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"a name is cut at its first NUL", false, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			for i := range q.Holds {
				q.Holds[i].Scope, _, _ = strings.Cut(q.Holds[i].Scope, "\x00")
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"the decision and the taking are two steps", false, func(f *faulty) { f.unlocked = true }},
	{"a start is given before the last one", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		m.starts = nil
	})},
	{"the lease of one that waits runs from the Reserve", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			answer, err := m.Reserve(context.Background(), q)
			if r := m.find(q.Account, q.ID); r != nil && answer.Verdict == reservation.Granted && r.start != 0 {
				r.expires -= r.start - m.now()
			}
			return answer, err
		}
	}},
	{"a caller waits longer than it can", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			if q.MaxWait > 0 {
				q.MaxWait = time.Hour
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"any booking gives its place in a queue back", true, afterRefund(func(m *Model, q reservation.RefundRequest, a *reservation.RefundAnswer) {
		for _, s := range m.rates {
			if s.kind == quota.KindLeakyQueue && a.Verdict == reservation.RefundSettled && s.arrival > m.now() {
				s.arrival = m.now()
			}
		}
	})},
	{"a shadow queue takes only who starts at once", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			q.Holds = slices.Clone(q.Holds)
			for i, h := range q.Holds {
				if h.Shadow && h.Kind == quota.KindLeakyQueue && m.rateOf(nameOf(q.Account, h.Counter), h.Kind).arrival > m.now() {
					q.Holds[i].Amount = 0
				}
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"a start that has passed is ahead again", false, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		for _, h := range q.Holds {
			if a.Verdict == reservation.Granted && h.Kind.HasRate() {
				m.starts = append(m.starts, modelStart{nameOf(q.Account, h.Counter), h.Kind, m.now(), 0})
			}
		}
	})},
	{"what comes back fills a bucket beside those who start", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		for i := range m.starts {
			m.starts[i].booked = 0
		}
	})},
	{"a replay does not tell the start", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		a.Record.StartAt = time.Time{}
	})},
	{"a shadow limit refuses", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			for i := range q.Holds {
				q.Holds[i].Shadow = false
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"a shadow limit counts nothing", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			for i := range q.Holds {
				if q.Holds[i].Shadow {
					q.Holds[i].Amount = 0
				}
			}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"a missed hold is taken all the same", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		for i := range a.Decided.Missed {
			if h := q.Holds[i]; a.Decided.Missed[i] && h.Kind == quota.KindBucket && !q.DryRun {
				m.change(nameOf(q.Account, h.Counter), h.Bucket, 1)
			}
		}
	})},
	{"what a shadow limit would have refused is not said", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		a.Shadow = nil
	})},
	{"a refusal counts in shadow limits", true, afterReserve(func(m *Model, q reservation.ReserveRequest, a *reservation.ReserveAnswer) {
		for _, h := range q.Holds {
			if a.Verdict == reservation.Refused && h.Shadow && h.Kind == quota.KindBucket && !q.DryRun {
				m.change(nameOf(q.Account, h.Counter), h.Bucket, h.Amount)
			}
		}
	})},
	{"a call in an envelope takes from the limit", true, func(f *faulty) {
		f.reserve = func(m *Model, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
			q.Parent = reservation.ID{}
			return m.Reserve(context.Background(), q)
		}
	}},
	{"what a call leaves of its envelope is the limit's", true, func(f *faulty) {
		f.refund = func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
			if r := m.find(q.Account, q.ID); r != nil {
				r.kin.Taken = 0
			}
			return m.Refund(context.Background(), q)
		}
	}},
	{"an envelope that is closed leaves its calls open", true, func(f *faulty) {
		f.refund = func(m *Model, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
			for _, r := range m.records {
				if r.account == q.Account && r.kin.Parent == q.ID {
					r.kin = reservation.Kin{}
				}
			}
			return m.Refund(context.Background(), q)
		}
	}},
	{"a lease is renewed beyond its envelope", true, func(f *faulty) {
		f.renew = func(m *Model, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
			if r := m.find(q.Account, q.ID); r != nil {
				r.kin.Parent = reservation.ID{}
			}
			return m.Renew(context.Background(), q)
		}
	}},
	{"what was used so far falls", true, func(f *faulty) {
		f.renew = func(m *Model, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
			if r := m.find(q.Account, q.ID); r != nil && len(q.Used) == len(r.holds) {
				for i := range r.holds {
					r.holds[i].used = 0
				}
			}
			return m.Renew(context.Background(), q)
		}
	}},
	{"a lease's end forgets what was told", true, func(f *faulty) {
		f.renew = func(m *Model, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
			answer, err := m.Renew(context.Background(), q)
			if r := m.find(q.Account, q.ID); r != nil {
				for i := range r.holds {
					r.holds[i].used = 0
				}
			}
			return answer, err
		}
	}},
	{"an envelope's own use is room of its calls", false, func(f *faulty) {
		f.renew = func(m *Model, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
			answer, err := m.Renew(context.Background(), q)
			if r := m.find(q.Account, q.ID); r != nil && m.parentOf(r) != nil {
				for i := range answer.Standing {
					if own := m.parentOf(r).fund(r.holds[i].Hold); own != nil && answer.Standing[i].Funded {
						answer.Standing[i].Room = own.charged
					}
				}
			}
			return answer, err
		}
	}},
}

// likelyWorlds is how the names of the worlds begin in which a mutant is found soon, by
// its name.
var likelyWorlds = map[string]string{}

// caught returns what finds the mutant: the name of the first scenario and of
// the first case, and whether a history does where it should.
func caught(t *testing.T, m mutant) (by []string, byHistory bool) {
	t.Helper()
	engine, clock := begin(t, newFaulty(m.fault))
	guard := func(run func() error) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v", r) // a mutant may break the model's own assumptions
			}
		}()
		clock.Set(Epoch)
		engine.LoseData()
		return run()
	}
	files, err := scenarios.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := scenarios.ReadFile(path.Join("testdata", file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseScenario(string(text))
		if err != nil {
			t.Fatal(err)
		}
		if guard(func() error { return playScenario(s, engine, clock) }) != nil {
			by = append(by, file.Name())
			break
		}
	}
	for _, c := range slices.Concat(edgeCases, concurrencyCases, forecastCases) {
		if guard(func() error { return c.run(t.Context(), engine, clock) }) != nil {
			by = append(by, c.name)
			break
		}
	}
	if !m.byHistory {
		return by, false
	}
	names := slices.Collect(maps.Keys(worlds))
	slices.SortStableFunc(names, func(a, b string) int { // those that are made for it first
		likely := func(name string) bool {
			return likelyWorlds[m.name] != "" && strings.HasPrefix(name, likelyWorlds[m.name])
		}
		switch {
		case likely(a) == likely(b):
			return 0
		case likely(a):
			return -1
		}
		return 1
	})
	for _, name := range names {
		w := worlds[name]
		recorder := &recorder{name: name}
		recorder.run(func() {
			check(recorder, 0, func(rt *rapid.T) { history(rt, engine, clock, w) })
		})
		if recorder.failed {
			return by, true
		}
	}
	return by, false
}

// recorder lets a property fail without failing the test.
type recorder struct {
	name   string
	failed bool
}

func (r *recorder) run(property func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		property()
	}()
	<-done
}

func (r *recorder) Helper()               {}
func (r *recorder) Name() string          { return r.name }
func (r *recorder) Logf(string, ...any)   {}
func (r *recorder) Log(...any)            {}
func (r *recorder) Skipf(string, ...any)  { runtime.Goexit() }
func (r *recorder) Skip(...any)           { runtime.Goexit() }
func (r *recorder) SkipNow()              { runtime.Goexit() }
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Error(...any)          { r.failed = true }
func (r *recorder) Fatalf(string, ...any) { r.FailNow() }
func (r *recorder) Fatal(...any)          { r.FailNow() }
func (r *recorder) FailNow()              { r.failed = true; runtime.Goexit() }
func (r *recorder) Fail()                 { r.failed = true }
func (r *recorder) Failed() bool          { return r.failed }

// setFlag sets a flag of rapid's for the test.
func setFlag(t *testing.T, name, value string) {
	t.Helper()
	f := flag.Lookup(name)
	before := f.Value.String()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Value.Set(before) })
}

func TestNeverOverCatchesGenerosity(t *testing.T) {
	setFlag(t, "rapid.nofailfile", "true")
	setFlag(t, "rapid.shrinktime", "0s")
	setFlag(t, "rapid.seed", "20261115")
	for _, m := range mutants {
		switch m.name {
		case "what a full bucket did not take is given later", "the remainder is dropped", "the remainder is rounded up", "the retry is a microsecond early":
			engine, clock := begin(t, newFaulty(m.fault))
			r := &recorder{name: m.name}
			r.run(func() { check(r, 400, func(rt *rapid.T) { neverOver(rt, engine, clock) }) })
			if !r.failed {
				t.Errorf("%s: not caught", m.name)
			}
		}
	}
}

func TestFairnessCatchesUnfairness(t *testing.T) {
	caught := 0
	for _, m := range mutants {
		switch m.name {
		case "a fair limit is first come first served", "a share counts one account only", "a share forgets what was taken before", "who is ahead of its share leaves nothing":
			caught++
			engine, clock := begin(t, newFaulty(m.fault))
			if seen, err := crowds[0].check(t.Context(), engine, clock, true); err == nil {
				t.Errorf("%s: not caught, %v of %v calls were admitted", m.name, seen.got, seen.asked)
			}
		}
	}
	engine, clock := begin(t, newFaulty(func(f *faulty) {
		for _, m := range mutants {
			if m.name == "some of those who have left go on sharing" {
				m.fault(f)
			}
		}
	}))
	if manyLeave(t.Context(), engine, clock) == nil {
		t.Error("that those who have left go on sharing is not caught")
	}
	if caught != 4 {
		t.Errorf("%d mutants were played, not 4", caught)
	}
}

func TestSpansCatchesTooMuch(t *testing.T) {
	rate := big.NewRat(1, 1_000_000)
	ok := []flow{{0, 10}, {5_000_000, 5}, {5_000_000, -3}, {5_000_000, 3}}
	if err := spans(ok, 10, rate); err != nil {
		t.Errorf("what may pass: %v", err)
	}
	if err := spans(append(ok, flow{5_000_000, 1}), 10, rate); err == nil {
		t.Error("one too many is not caught")
	}
}
