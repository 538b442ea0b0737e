package replay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
)

// fate is when in its life a doomed reservation's worker is killed.
type fate int

const (
	whileHeld  fate = iota // while the worker holds it
	midReserve             // right after the worker began to ask for it
	midRefund              // right after the worker began to refund it
)

// fateOf gives each tenth doomed request a kill in mid-Reserve, and each tenth
// one in mid-Refund.
func fateOf(ordinal int64) fate {
	switch ordinal % 10 {
	case 3:
		return midReserve
	case 7:
		return midRefund
	}
	return whileHeld
}

// Kills are what became of worker processes.
type Kills struct {
	Workers    int64 `json:"workers"`    // processes that were killed with SIGKILL
	Holding    int64 `json:"holding"`    // reservations that they held then
	MidReserve int64 `json:"midReserve"` // Reserves that were on their way
	MidRefund  int64 `json:"midRefund"`  // Refunds that were on their way
}

// stage is how far a job has come, as the driver knows it.
type stage int

const (
	ordered   stage = iota // not begun
	reserving              // Reserve is on its way
	held
	refunding // Refund is on its way
	over
)

// job is a doomed request in the hands of a worker.
type job struct {
	request trace.Request
	fate    fate
	stage   stage
	id      string // of the reservation, once it is held
	endsBy  time.Time
}

// crew runs the worker processes: a fixed number of places, each with a process
// that is replaced when it was killed.
type crew struct {
	driver   *driver
	children *spawner
	program  string
	args     []string

	mu     sync.Mutex
	rng    *rand.Rand
	places []*process
	next   int // place of the next job
	jobs   int64
	open   int64 // jobs of which nobody knows yet what became
	kills  Kills

	running sync.WaitGroup // processes that have not been cleared up
}

// process is one worker.
type process struct {
	crew  *crew
	cmd   *exec.Cmd
	input io.WriteCloser
	words chan []byte // lines for its standard input
	noise tail        // its standard error

	// Under crew.mu.
	jobs      map[int64]*job
	condemned bool // a kill is on its way; no more jobs
	timed     bool // a kill is set for later
}

func newCrew(d *driver, children *spawner, program string, args []string, places int, seed uint64) *crew {
	return &crew{
		driver: d, children: children, program: program, args: args,
		rng: rand.New(rand.NewPCG(seed, 0x63726577)), places: make([]*process, places),
	}
}

// take gives a doomed request to a worker.
func (c *crew) take(r trace.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := c.jobs
	c.jobs++
	c.open++
	return c.assign(number, &job{request: r, fate: fateOf(number)})
}

func (c *crew) assign(number int64, j *job) error {
	place := c.next % len(c.places)
	c.next++
	p := c.places[place]
	if p == nil || p.condemned {
		var err error
		if p, err = c.spawn(); err != nil {
			return err
		}
		c.places[place] = p
	}
	p.jobs[number] = j
	p.order(order{Job: number, Do: doReserve, Key: c.driver.key(j.request), Tokens: c.driver.asked(j.request)})
	return nil
}

func (c *crew) spawn() (*process, error) {
	p := &process{crew: c, cmd: exec.Command(c.program, c.args...), words: make(chan []byte, 1024), jobs: map[int64]*job{}}
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = &p.noise
	if err := c.children.start(p.cmd); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	go p.write()
	t := c.driver.caller.Target
	p.send(greeting{Server: t.Server, Key: t.Key, Account: t.Account, LeaseMicros: t.Lease.Microseconds(), MaxWaitMicros: t.MaxWait.Microseconds()})
	c.running.Go(func() { p.watch(output) })
	return p, nil
}

// write passes on words until the process ends. It is apart from those who
// order, whom a full pipe must not stop.
func (p *process) write() {
	for line := range p.words {
		if _, err := p.input.Write(line); err != nil {
			break // it has ended; watch learns what became of its jobs
		}
	}
	p.input.Close()
	for range p.words { // until closed
	}
}

func (p *process) send(message any) {
	line, err := json.Marshal(message)
	if err != nil {
		panic("replay: a word to a worker can't be written: " + err.Error()) // plain strings and numbers
	}
	p.words <- append(line, '\n')
}

func (p *process) order(o order) { p.send(o) }

// watch follows a process to its end and then learns what became of its jobs.
func (p *process) watch(output io.Reader) {
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // a line without an end was cut off by the kill
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			p.crew.driver.problem("a worker wrote %q", line)
			continue
		}
		p.hear(e)
	}
	err := p.cmd.Wait()
	c := p.crew
	c.mu.Lock()
	dismissed := p.condemned
	p.condemned = true
	jobs := p.jobs
	p.jobs = nil
	close(p.words)
	killed := wasKilled(p.cmd)
	if killed {
		c.kills.Workers++
	}
	c.mu.Unlock()
	if !killed && (err != nil || !dismissed) {
		c.driver.problem("a worker ended by itself (%v): %s", p.cmd.ProcessState, p.noise.String())
	}
	for number, j := range jobs {
		c.aftermath(number, j)
	}
}

func wasKilled(cmd *exec.Cmd) bool {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// hear takes in what a worker says.
func (p *process) hear(e event) {
	c := p.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	j := p.jobs[e.Job]
	if j == nil {
		c.driver.problem("a worker spoke of a job %d that it does not have", e.Job)
		return
	}
	took := time.Duration(e.Micros) * time.Microsecond
	switch e.What {
	case saysSending:
		if j.stage == held {
			j.stage = refunding
			if j.fate == midRefund {
				p.killIn(c.instant())
			}
			return
		}
		j.stage = reserving
		if j.fate == midReserve {
			p.killIn(c.instant())
		}
	case saysHeld:
		c.driver.caller.reserves.record(took)
		j.stage, j.id, j.endsBy = held, e.Reservation, time.Now().Add(c.driver.caller.Lease)
		if j.fate == midRefund {
			duration := min(c.driver.schedule.Duration(j.request), c.driver.caller.Lease/8)
			time.AfterFunc(duration, func() { c.refund(p, e.Job) })
		} else if !p.timed {
			p.timed = true
			// Long before the lease ends, and some time after the grant.
			lease := c.driver.caller.Lease
			p.killIn(lease/20 + time.Duration(c.rng.Int64N(int64(lease/5)+1)))
		}
	case saysRefused:
		c.driver.caller.reserves.record(took)
		c.driver.tally.refused(j.request, e.RefusedBy)
		c.finished(j)
	case saysRefunded:
		c.driver.caller.refunds.record(took)
		c.driver.refunded(j.request, j.id, c.driver.asked(j.request), e.GivenBack, e.Overrun, e.Late)
		c.finished(j)
	case saysUnanswered:
		if j.stage == refunding {
			return // aftermath asks the broker at the end
		}
		c.driver.lost(j.request, errors.New(e.Problem))
		c.finished(j)
	default:
		if j.stage == refunding {
			c.driver.problem("Refund of %s: %s", c.driver.where(j.request), e.Problem)
			return
		}
		c.driver.lost(j.request, errors.New(e.Problem))
		c.finished(j)
	}
}

// finished notes that it is known what became of a job. Under crew.mu.
func (c *crew) finished(j *job) {
	j.stage = over
	c.open--
}

// instant is a time in which a call over loopback may have come anywhere
// between its first byte and its answer.
func (c *crew) instant() time.Duration {
	return time.Duration(c.rng.Int64N(int64(2 * time.Millisecond)))
}

// refund orders the Refund of a job, unless its worker was killed meanwhile.
func (c *crew) refund(p *process, number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := p.jobs[number]
	if j == nil || p.condemned {
		return
	}
	p.order(order{Job: number, Do: doRefund, Reservation: j.id, Tokens: j.request.Tokens()})
}

// killIn kills the process after a while, once. Under crew.mu.
func (p *process) killIn(wait time.Duration) {
	time.AfterFunc(wait, func() {
		p.crew.mu.Lock()
		defer p.crew.mu.Unlock()
		if p.condemned {
			return
		}
		p.condemned = true
		_ = p.cmd.Process.Kill() // it fails when the process has ended, which watch sees
	})
}

// aftermath learns what became of a job whose worker is gone.
func (c *crew) aftermath(number int64, j *job) {
	if j.stage == over {
		return
	}
	d := c.driver
	if j.stage == ordered && !d.interrupted() {
		// The worker never began it: another one does, and holds it.
		c.mu.Lock()
		defer c.mu.Unlock()
		j.fate = whileHeld
		if err := c.assign(number, j); err != nil {
			d.lost(j.request, err)
			c.finished(j)
		}
		return
	}
	reached := j.stage
	switch reached {
	case reserving:
		// The same key asks for the same reservation, whether or not the dead
		// worker's call has come through, or still will.
		asked := d.asked(j.request)
		granted, err := d.caller.reserve(d.lasting, d.key(j.request), asked)
		if err != nil {
			d.refusedOrLost(j.request, err)
			// Should the call still come through, its lease runs from then.
			d.leaseEnds(d.caller.latest().Add(time.Second))
			break
		}
		d.granted(granted, asked)
		d.abandoned(j.request, granted.id, granted.endsBy)
	case held:
		d.abandoned(j.request, j.id, j.endsBy)
	case refunding:
		d.uncertain(j.request, j.id, j.endsBy)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch reached {
	case reserving:
		c.kills.MidReserve++
	case held:
		c.kills.Holding++
	case refunding:
		c.kills.MidRefund++
	}
	c.finished(j)
}

// finish waits until every doomed reservation was left by a dead worker, and
// dismisses the rest.
func (c *crew) finish(ctx context.Context) {
	for !c.idle() {
		if sleep(ctx, 10*time.Millisecond) != nil {
			break
		}
	}
	c.mu.Lock()
	for _, p := range c.places {
		if p == nil || p.condemned {
			continue
		}
		// Interrupted, or it holds nothing.
		p.condemned = true
		if ctx.Err() != nil {
			_ = p.cmd.Process.Kill()
		} else {
			_ = p.input.Close()
		}
	}
	c.mu.Unlock()
	c.running.Wait()
}

// idle says whether it is known of every job what became of it.
func (c *crew) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open == 0
}

func (c *crew) result() Kills {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kills
}

// tail keeps the last bytes that are written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 2048
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	t.last = bytes.Clone(t.last[max(0, len(t.last)-most):])
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.last))
}
