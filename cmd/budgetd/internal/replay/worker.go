package replay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// The words between the driver and a worker process: lines of JSON, orders on
// the worker's standard input after one greeting, events on its standard
// output.

// greeting is the first line that a worker reads.
type greeting struct {
	Server      string `json:"server"`
	Key         string `json:"key"`
	Account     string `json:"account"`
	LeaseMicros int64  `json:"leaseMicros"`

	MaxWaitMicros int64 `json:"maxWaitMicros,omitempty"`
}

// order asks a worker to make one call.
type order struct {
	Job         int64  `json:"job"`
	Do          string `json:"do"` // doReserve or doRefund
	Key         string `json:"key,omitempty"`
	Reservation string `json:"reservation,omitempty"`
	Tokens      int64  `json:"tokens"`
}

const (
	doReserve = "reserve"
	doRefund  = "refund"
)

// event is what a worker reports of a job.
type event struct {
	Job         int64  `json:"job"`
	What        string `json:"what"`
	Reservation string `json:"reservation,omitempty"`
	Micros      int64  `json:"micros,omitempty"` // how long the call took, repeats included
	RefusedBy   string `json:"refusedBy,omitempty"`
	GivenBack   int64  `json:"givenBack,omitempty"`
	Overrun     int64  `json:"overrun,omitempty"`
	Late        bool   `json:"late,omitempty"`
	Problem     string `json:"problem,omitempty"`
}

// What an event says.
const (
	saysSending    = "sending"    // the call is about to be made; what became of it, the next event says
	saysHeld       = "held"       // Reserve was granted, and this process holds it
	saysRefused    = "refused"    // Reserve was refused
	saysRefunded   = "refunded"   // Refund was answered
	saysUnanswered = "unanswered" // no answer came, however often it was asked
	saysFailed     = "failed"     // the call can't succeed
)

// Work is the whole life of a worker process: it makes the calls that it is
// ordered to and holds what it was granted until it is killed, or its input
// ends.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	var hello greeting
	if err := readJSON(lines, &hello); err != nil {
		return fmt.Errorf("the greeting: %w", err)
	}
	c, err := newCaller(Target{Server: hello.Server, Key: hello.Key, Account: hello.Account, Lease: time.Duration(hello.LeaseMicros) * time.Microsecond, MaxWait: time.Duration(hello.MaxWaitMicros) * time.Microsecond}, 16)
	if err != nil {
		return err
	}
	defer c.idle()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &worker{caller: c, out: json.NewEncoder(out)}
	var running sync.WaitGroup
	defer running.Wait()
	for {
		var o order
		switch err := readJSON(lines, &o); {
		case err == io.EOF:
			cancel()
			return nil
		case err != nil:
			return fmt.Errorf("an order: %w", err)
		}
		running.Go(func() { w.do(ctx, o) })
	}
}

func readJSON(lines *bufio.Reader, to any) error {
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, to)
}

type worker struct {
	caller *caller
	mu     sync.Mutex
	out    *json.Encoder
}

// say reports an event. The driver must have it before what follows happens, so
// it is written straight through.
func (w *worker) say(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(e) // without a reader there is nobody to tell
}

func (w *worker) do(ctx context.Context, o order) {
	w.say(event{Job: o.Job, What: saysSending})
	began := time.Now()
	e := event{Job: o.Job}
	switch o.Do {
	case doReserve:
		granted, err := w.caller.reserve(ctx, o.Key, o.Tokens)
		switch {
		case err != nil:
			e.fail(err)
		case granted.state != budgetv1.ReservationState_RESERVATION_STATE_HELD:
			e.What, e.Problem = saysFailed, fmt.Sprintf("the reservation is %v and not held", granted.state)
		default:
			e.What, e.Reservation = saysHeld, granted.id
		}
		began = began.Add(granted.waited) // what is reported is how long the broker took
	case doRefund:
		answer, err := w.caller.refund(ctx, o.Reservation, o.Tokens)
		if err != nil {
			e.fail(err)
			break
		}
		e.What, e.Late = saysRefunded, answer.Late
		e.GivenBack, e.Overrun = answer.GivenBack["tokens"], answer.Overrun["tokens"]
	default:
		e.What, e.Problem = saysFailed, fmt.Sprintf("the order %q is unknown", o.Do)
	}
	e.Micros = time.Since(began).Microseconds()
	w.say(e)
}

func (e *event) fail(err error) {
	var refused *budget.RefusedError
	var silent *unansweredError
	switch {
	case errors.As(err, &refused):
		e.What, e.RefusedBy = saysRefused, refusedBy(refused)
	case errors.As(err, &silent):
		e.What, e.Problem = saysUnanswered, err.Error()
	default:
		e.What, e.Problem = saysFailed, err.Error()
	}
}
