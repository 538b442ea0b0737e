package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// ending is how a reservation that was granted was left.
type ending uint8

const (
	endRefunded  ending = iota // the Refund was answered
	endCrashed                 // its worker was killed, and nobody refunds it
	endUncertain               // a Refund was sent, and its answer never came
)

// record is a reservation that was granted.
type record struct {
	request trace.Request
	id      string
	end     ending
}

// driver makes the calls of a replay and keeps account of them.
type driver struct {
	options  Options
	caller   *caller
	schedule Schedule
	names    []string // of the traces, fit for a key
	tally    *tally
	lag      *recorder

	ctx     context.Context // ends with an interrupt
	lasting context.Context // ends some time after that: what was begun is finished

	mu       sync.Mutex
	records  []record
	problems []string
	more     int             // problems beyond maxProblems
	lastEnd  time.Time       // the last lease that nobody closes has ended by then
	plain    map[string]bool // limits that take what is asked, unweighted
}

// maxProblems bounds how many problems are told one by one.
const maxProblems = 20

// lingering is how long calls go on after an interrupt.
const lingering = 5 * time.Second

func (d *driver) interrupted() bool { return d.ctx.Err() != nil }

// key is the idempotency key of a request. It begins with the run, so that two
// runs on one account do not share reservations.
func (d *driver) key(r trace.Request) string {
	return fmt.Sprintf("replay/%s/%d.%s/%d/%d", d.options.Run, r.Trace, d.names[r.Trace], r.Line, d.options.Seed)
}

// plainName is a file's name, fit for a key and bounded.
func plainName(path string) string {
	name := strings.Map(func(r rune) rune {
		if r > 0x20 && r < 0x7f && r != '/' {
			return r
		}
		return '_'
	}, filepath.Base(path))
	return name[:min(len(name), 64)]
}

// where names a request in a message.
func (d *driver) where(r trace.Request) string {
	return fmt.Sprintf("%s:%d", d.options.Traces[r.Trace], r.Line)
}

// asked is how many tokens a request reserves: what it reads, which is known
// before the call, and the most that it may write.
func (d *driver) asked(r trace.Request) int64 { return r.Context + d.options.MaxTokens }

// run sends every request of the traces at its time, and returns when all have
// been answered.
func (d *driver) run(crew *crew, survey Survey, progress Progress) error {
	traces, err := OpenTraces(d.options.Traces, d.options.Requests)
	if err != nil {
		return err
	}
	defer traces.Close()
	doomed := newDraw(d.options.Seed, d.options.Kill, survey.Requests)
	free := make(chan struct{}, d.options.Concurrency)
	var running sync.WaitGroup
	defer running.Wait()
	start := time.Now()
	for {
		request, err := traces.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		due := start.Add(d.schedule.Arrival(request))
		if sleep(d.ctx, time.Until(due)) != nil {
			return nil
		}
		if doomed.next() {
			d.tally.offered(request)
			d.lag.record(time.Since(due))
			if err := crew.take(request); err != nil {
				return err
			}
			progress.Add(1)
			continue
		}
		select {
		case free <- struct{}{}:
		case <-d.ctx.Done():
			return nil
		}
		d.tally.offered(request)
		d.lag.record(time.Since(due))
		running.Go(func() {
			defer func() { <-free; progress.Add(1) }()
			d.serve(request)
		})
	}
}

// serve is the life of one request in this process.
func (d *driver) serve(r trace.Request) {
	held := d.asked(r)
	granted, err := d.caller.reserve(d.lasting, d.key(r), held)
	if err != nil {
		d.refusedOrLost(r, err)
		return
	}
	d.granted(granted, held)
	if granted.state != budgetv1.ReservationState_RESERVATION_STATE_HELD {
		// A repeat was answered after the lease of the first try had ended.
		d.abandoned(r, granted.id, granted.endsBy)
		return
	}
	d.hold(granted.id, d.schedule.Duration(r))
	answer, err := d.caller.refund(d.lasting, granted.id, r.Tokens())
	if err != nil {
		d.problem("Refund of %s: %v", d.where(r), err)
		d.uncertain(r, granted.id, time.Now().Add(d.caller.Lease))
		return
	}
	if charged := answer.Charged["tokens"]; charged != r.Tokens() {
		d.problem("Refund of %s charged %d tokens; it used %d", d.where(r), charged, r.Tokens())
	}
	d.refunded(r, granted.id, held, answer.GivenBack["tokens"], answer.Overrun["tokens"], answer.Late)
}

// hold keeps a reservation for as long as the call takes.
func (d *driver) hold(id string, duration time.Duration) {
	for {
		step := min(duration, d.caller.Lease/3)
		if sleep(d.ctx, step) != nil {
			return // interrupted: it is refunded at once
		}
		if duration -= step; duration <= 0 {
			return
		}
		if err := d.caller.renew(d.lasting, id); err != nil {
			d.problem("Renew: %v", err)
			continue
		}
		d.tally.update(func(t *Totals) { t.Renewed++ })
	}
}

// granted looks at the first answers for limits that weigh what they take.
func (d *driver) granted(g grant, asked int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.degrade && !d.options.expectDegraded {
		d.addProblem("a grant was degraded: the broker's store did not answer, so its counters can't be exact")
		d.options.expectDegraded = true // told once
	}
	for _, hold := range g.holds {
		want := int64(1)
		if hold.Meter == "tokens" {
			want = asked
		}
		if hold.Pool == "" && hold.Scope == "" && hold.Amount == want {
			d.plain[hold.Limit] = true
		}
	}
}

func (d *driver) refusedOrLost(r trace.Request, err error) {
	var refused *budget.RefusedError
	if errors.As(err, &refused) {
		d.tally.refused(r, refusedBy(refused))
		return
	}
	d.lost(r, err)
}

// lost counts a request of which nobody knows whether it was granted. If it
// was, it expires.
func (d *driver) lost(r trace.Request, err error) {
	d.tally.unanswered(r)
	d.problem("Reserve of %s: %v", d.where(r), err)
	d.leaseEnds(d.caller.latest())
}

func (d *driver) keep(r record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records = append(d.records, r)
}

func (d *driver) refunded(r trace.Request, id string, held, givenBack, overrun int64, late bool) {
	d.tally.refunded(r, held, givenBack, overrun)
	if late {
		d.tally.update(func(t *Totals) { t.Late++ })
	}
	d.keep(record{r, id, endRefunded})
}

// abandoned notes a reservation that is left to expire.
func (d *driver) abandoned(r trace.Request, id string, endsBy time.Time) {
	d.leaseEnds(endsBy)
	d.keep(record{r, id, endCrashed})
}

// uncertain notes a reservation of which only the broker knows whether it was
// refunded.
func (d *driver) uncertain(r trace.Request, id string, endsBy time.Time) {
	d.leaseEnds(endsBy)
	d.keep(record{r, id, endUncertain})
}

func (d *driver) leaseEnds(by time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if by.After(d.lastEnd) {
		d.lastEnd = by
	}
}

// problem notes something that a replay without gaps does not have.
func (d *driver) problem(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addProblem(format, args...)
}

func (d *driver) addProblem(format string, args ...any) {
	if len(d.problems) == maxProblems {
		d.more++
		return
	}
	d.problems = append(d.problems, fmt.Sprintf(format, args...))
}

func (d *driver) allProblems() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := append([]string(nil), d.problems...)
	if d.more > 0 {
		all = append(all, fmt.Sprintf("and %d more like these", d.more))
	}
	return all
}
