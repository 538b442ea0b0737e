package backtest

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
)

// Plan is a policy under a name.
type Plan struct {
	Name   string
	Policy *quota.Policy
}

// Current implements reservation.Policies.
func (p *Plan) Current() *quota.Policy { return p.Policy }

// MaxOpen bounds the calls that are under way at one instant.
const MaxOpen = 2_000_000

// course is one plan's way through the calls: a broker of its own, on an engine
// in memory, under a clock that each call moves to its instant. It is for one
// goroutine at a time.
type course struct {
	plan   *Plan
	clock  clock
	store  *memstore.Store
	broker *reservation.Broker
	prices *estimator.Estimator
	open   openCalls
	opened int64
	priced int64 // calls whose cost is known
	swept  time.Time
	tally  *tally
	watch  func(Step)
}

// sweepEvery is how often, in the run's time, the engine forgets what says
// nothing any more.
const sweepEvery = time.Second

// patience bounds a step by the clock on the wall, which has no part in a run.
const patience = time.Hour

func newCourse(plan *Plan, labels []string, watch func(Step)) (*course, error) {
	c := &course{plan: plan, tally: newTally(labels), watch: watch}
	var err error
	if c.store, err = memstore.New(memstore.Config{Clock: c.clock.Now}); err != nil {
		return nil, err
	}
	if c.prices, err = estimator.New(estimator.Config{Policy: plan.Current}); err != nil {
		return nil, err
	}
	c.broker = reservation.NewBroker(reservation.Parts{
		Store: forgetful{c.store}, Ledger: newBooks(&c.clock), Policies: plan, Estimator: c.prices, Keys: runKey{},
	}, reservation.Config{
		Deadline: patience, LedgerDeadline: patience, Registered: -1, AuditRate: -1, ConfirmInCall: true,
		Now: c.clock.Now, Logger: slog.New(slog.DiscardHandler),
	})
	return c, nil
}

func (c *course) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(c.broker.Close(ctx), c.store.Close())
}

// forgetful has the engine remember a reservation no longer than its lease:
// nobody repeats a call here.
type forgetful struct{ reservation.Store }

func (f forgetful) Reserve(ctx context.Context, r reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	r.Retention = 0
	return f.Store.Reserve(ctx, r)
}

func (f forgetful) Refund(ctx context.Context, r reservation.RefundRequest) (reservation.RefundAnswer, error) {
	r.Retention = 0
	return f.Store.Refund(ctx, r)
}

func (f forgetful) Confirm(ctx context.Context, r reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	r.Retention = 0
	return f.Store.Confirm(ctx, r)
}

// runKey authenticates the reservations of a run, which never leave it.
type runKey struct{}

func (runKey) Current() (uint16, []byte)            { return 1, make([]byte, 32) }
func (runKey) ByID(id uint16) (key []byte, ok bool) { return make([]byte, 32), id == 1 }

// Step is what a broker answered: to a Reserve, or to the Refund of a call that
// was granted.
type Step struct {
	Call     *trace.Call
	At       time.Time
	Decision *reservation.Decision // Reserve
	Receipt  *reservation.Receipt  // Refund
}

// arrive brings a call, which does not come before the one before it.
func (c *course) arrive(ctx context.Context, call *trace.Call) error {
	if err := c.until(ctx, call.At); err != nil {
		return err
	}
	c.clock.set(call.At)
	if err := c.sweep(ctx); err != nil {
		return err
	}
	d, err := c.broker.Reserve(ctx, AskOf(call))
	if err != nil {
		return faultOf(call, err)
	}
	if c.watch != nil {
		c.watch(Step{Call: call, At: call.At, Decision: &d})
	}
	tokens, cost, priced, err := used(call, c.prices)
	if err != nil {
		return faultOf(call, err)
	}
	if priced {
		c.priced++
	}
	if d.Grant != nil {
		if len(c.open) == MaxOpen {
			return faultOf(call, fmt.Errorf("%d calls are under way; state shorter durations", MaxOpen))
		}
		c.opened++
		own := *call // not the batch that it came in
		if wait := d.Grant.StartAt.Sub(call.At); wait > 0 {
			own.Ends = own.Ends.Add(wait)
			c.tally.waits(wait)
		}
		heap.Push(&c.open, openCall{call: &own, reservation: d.Grant.Reservation, order: c.opened})
	}
	return c.tally.decided(call, tokens, cost, d.Refusal)
}

// until ends the calls that end by an instant.
func (c *course) until(ctx context.Context, at time.Time) error {
	for len(c.open) > 0 && !c.open[0].call.Ends.After(at) {
		if err := c.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drain ends all calls that are under way.
func (c *course) drain(ctx context.Context) error {
	for len(c.open) > 0 {
		if err := c.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// finish ends the call that ends first.
func (c *course) finish(ctx context.Context) error {
	ended := heap.Pop(&c.open).(openCall)
	c.clock.set(ended.call.Ends)
	receipt, err := c.broker.Refund(ctx, ended.reservation, UsageOf(ended.call))
	if err != nil {
		return faultOf(ended.call, err)
	}
	if c.watch != nil {
		c.watch(Step{Call: ended.call, At: ended.call.Ends, Receipt: &receipt})
	}
	return nil
}

func (c *course) sweep(ctx context.Context) error {
	now := c.clock.Now()
	if now.Sub(c.swept) < sweepEvery {
		return nil
	}
	answer, err := c.store.Sweep(ctx, 0)
	if !answer.More {
		c.swept = now
	}
	return err
}

// faultOf says which call an error is about.
func faultOf(c *trace.Call, err error) error {
	return &trace.LineError{File: c.File, Line: c.Line, Problem: err.Error()}
}

// openCall is a call that is under way.
type openCall struct {
	call        *trace.Call
	reservation string
	order       int64 // of its Reserve
}

// openCalls has the call that ends first on top.
type openCalls []openCall

func (o openCalls) Len() int { return len(o) }
func (o openCalls) Less(i, j int) bool {
	if c := o[i].call.Ends.Compare(o[j].call.Ends); c != 0 {
		return c < 0
	}
	return o[i].order < o[j].order
}
func (o openCalls) Swap(i, j int) { o[i], o[j] = o[j], o[i] }
func (o *openCalls) Push(x any)   { *o = append(*o, x.(openCall)) }
func (o *openCalls) Pop() any {
	last := len(*o) - 1
	call := (*o)[last]
	(*o)[last] = openCall{}
	*o = (*o)[:last]
	return call
}
