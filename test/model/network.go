package model

import (
	"context"
	"sync"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/reservation"
)

// fate is what becomes of one message.
type fate int

const (
	arrives   fate = iota // call and answer arrive
	loses                 // the call has its effect, the answer is lost
	drops                 // the call never arrives
	lingersOn             // the call arrives later, after its caller gave up
)

// network decides the fate of every call to engine and ledger. The fates of the
// next calls are set by the history; when none is left, calls arrive.
type network struct {
	mu         sync.Mutex
	engine     reservation.Store
	ledger     ledger.Ledger
	engineNext []fate
	ledgerNext []fate
	ledgerAway bool
	confirms   fate // of Confirms, which come on their own time
	lingering  []func()
	late       int // calls that arrived late
}

func (n *network) engineFate() fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.engineNext) == 0 {
		return arrives
	}
	f := n.engineNext[0]
	n.engineNext = n.engineNext[1:]
	return f
}

func (n *network) ledgerFate() fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ledgerAway {
		return drops
	}
	if len(n.ledgerNext) == 0 {
		return arrives
	}
	f := n.ledgerNext[0]
	n.ledgerNext = n.ledgerNext[1:]
	return f
}

func (n *network) store() reservation.Store {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine
}

// linger keeps a call for later.
func (n *network) linger(call func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lingering = append(n.lingering, call)
}

// waiting is how many calls linger.
func (n *network) waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.lingering)
}

// thaw lets the i-th lingering call arrive.
func (n *network) thaw(i int) {
	n.mu.Lock()
	call := n.lingering[i]
	n.lingering = append(n.lingering[:i], n.lingering[i+1:]...)
	n.late++
	n.mu.Unlock()
	call()
}

// deliver carries one call to the engine by its fate.
func deliver[A any](n *network, f fate, call func(reservation.Store) (A, error)) (A, error) {
	var none A
	switch f {
	case drops:
		return none, reservation.ErrUnavailable
	case lingersOn:
		// It reaches the engine of its time, or, after a loss of data, an
		// engine that never heard of it.
		n.linger(func() { _, _ = call(n.store()) })
		return none, reservation.ErrUnavailable
	case loses:
		_, _ = call(n.store())
		return none, reservation.ErrUnavailable
	}
	return call(n.store())
}

// wire is a broker's connection to the engine.
type wire struct{ *network }

func (w wire) Reserve(ctx context.Context, r reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	return deliver(w.network, w.engineFate(), func(s reservation.Store) (reservation.ReserveAnswer, error) {
		return s.Reserve(context.WithoutCancel(ctx), r)
	})
}

func (w wire) Refund(ctx context.Context, r reservation.RefundRequest) (reservation.RefundAnswer, error) {
	return deliver(w.network, w.engineFate(), func(s reservation.Store) (reservation.RefundAnswer, error) {
		return s.Refund(context.WithoutCancel(ctx), r)
	})
}

func (w wire) Seed(ctx context.Context, r reservation.SeedRequest) (bool, error) {
	return deliver(w.network, w.engineFate(), func(s reservation.Store) (bool, error) {
		return s.Seed(context.WithoutCancel(ctx), r)
	})
}

func (w wire) Renew(ctx context.Context, r reservation.RenewRequest) (reservation.RenewAnswer, error) {
	return deliver(w.network, w.engineFate(), func(s reservation.Store) (reservation.RenewAnswer, error) {
		return s.Renew(context.WithoutCancel(ctx), r)
	})
}

func (w wire) Confirm(ctx context.Context, r reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	w.mu.Lock()
	f := w.confirms
	w.mu.Unlock()
	return deliver(w.network, f, func(s reservation.Store) (reservation.ConfirmVerdict, error) {
		return s.Confirm(context.WithoutCancel(ctx), r)
	})
}

func (w wire) Restore(ctx context.Context, r reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
	return deliver(w.network, w.engineFate(), func(s reservation.Store) (reservation.RestoreVerdict, error) {
		return s.Restore(context.WithoutCancel(ctx), r)
	})
}

func (w wire) Push(ctx context.Context, account string, usage []reservation.CounterUsage) error {
	_, err := deliver(w.network, w.engineFate(), func(s reservation.Store) (struct{}, error) {
		return struct{}{}, s.Push(context.WithoutCancel(ctx), account, usage)
	})
	return err
}

func (w wire) GiveBack(ctx context.Context, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error) {
	return deliver(w.network, w.engineFate(), func(s reservation.Store) (reservation.GiveBackAnswer, error) {
		return s.GiveBack(context.WithoutCancel(ctx), account, holds)
	})
}

func (w wire) Leave(ctx context.Context, r reservation.LeaveRequest) error {
	_, err := deliver(w.network, w.engineFate(), func(s reservation.Store) (struct{}, error) {
		return struct{}{}, s.Leave(context.WithoutCancel(ctx), r)
	})
	return err
}

func (w wire) Watch(account string, slots reservation.Counter, wake func()) (stop func()) {
	return w.store().Watch(account, slots, wake)
}

func (w wire) Open(ctx context.Context, account, cursor string, most int) (reservation.OpenPage, error) {
	return w.store().Open(ctx, account, cursor, most)
}

func (w wire) Audit(ctx context.Context, r reservation.AuditRequest) (reservation.AuditAnswer, error) {
	return w.store().Audit(ctx, r)
}

func (w wire) Sweep(ctx context.Context, most int) (reservation.SweepAnswer, error) {
	return deliver(w.network, w.engineFate(), func(s reservation.Store) (reservation.SweepAnswer, error) {
		return s.Sweep(context.WithoutCancel(ctx), most)
	})
}

func (w wire) Lookup(ctx context.Context, account string, id reservation.ID) (reservation.Record, error) {
	return w.store().Lookup(ctx, account, id)
}

func (w wire) Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error) {
	return w.store().Levels(ctx, account, holds)
}

func (w wire) Ping(ctx context.Context) error { return w.store().Ping(ctx) }

func (w wire) Close() error { return nil }

// books is a broker's connection to the ledger.
type books struct {
	ledger.Ledger
	network *network
}

func (b books) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	switch b.network.ledgerFate() {
	case drops:
		return nil, ledger.ErrUnavailable
	case loses:
		_, _ = b.Ledger.Append(context.WithoutCancel(ctx), closings)
		return nil, ledger.ErrUnavailable
	case lingersOn:
		b.network.linger(func() { _, _ = b.Ledger.Append(context.WithoutCancel(ctx), closings) })
		return nil, ledger.ErrUnavailable
	}
	return b.Ledger.Append(ctx, closings)
}

func (b books) Ping(ctx context.Context) error {
	if f := b.network.ledgerFate(); f == drops || f == lingersOn {
		return ledger.ErrUnavailable
	}
	return b.Ledger.Ping(ctx)
}

func (b books) Changes(ctx context.Context, mark string, limit int) (ledger.ChangesPage, error) {
	if f := b.network.ledgerFate(); f == drops || f == lingersOn {
		return ledger.ChangesPage{}, ledger.ErrUnavailable
	}
	return b.Ledger.Changes(ctx, mark, limit)
}

func (b books) Usage(ctx context.Context, keys []ledger.UsageKey) ([]ledger.Usage, error) {
	if f := b.network.ledgerFate(); f == drops || f == lingersOn {
		return nil, ledger.ErrUnavailable
	}
	return b.Ledger.Usage(ctx, keys)
}
