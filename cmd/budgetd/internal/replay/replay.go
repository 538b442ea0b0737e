package replay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/concurrency"
	"github.com/budgetd/budgetd/quota"
)

// Bounds of [Options].
const (
	MaxConcurrency = 10_000
	MaxWorkers     = 256
)

// Options are what a replay does. An error of [Run] that is an [*OptionError]
// names the one at fault by its flag.
type Options struct {
	Traces   []string // files, replayed as one
	Requests int64    // only so many, the earliest; 0: all

	Speed       int64         // how many times faster time passes, 1 to MaxSpeed
	Concurrency int           // calls that this process has under way, 1 to MaxConcurrency
	MaxTokens   int64         // tokens that are held for the output, 1 to trace.MaxRequestTokens
	Lease       time.Duration // of each reservation, renewed when a call takes longer; 100 ms to 24 h
	MaxWait     time.Duration // how long a call may wait for its start; 0 to 1 h

	Kill    int64  // requests whose holder is killed, in parts of a million
	Workers int    // processes that hold those, 1 to MaxWorkers
	Seed    uint64 // decides which

	// A broker that runs already; empty: one of the replay's own.
	Server, Key, Account string

	// Of a broker of the replay's own.
	Limit           *quota.Rate // of tokens, in the trace's time; nil: none
	Slots           int64       // calls in flight; 0: not limited
	Redis, Postgres string      // URLs; empty: the embedded parts

	Program    string   // budgetd itself, for the broker and the workers
	WorkerArgs []string // make it a worker
	Run        string   // names this run; made up when empty

	expectDegraded bool
}

// OptionError says which option is out of its bounds.
type OptionError struct {
	Option  string // the name of the flag, without dashes
	Problem string
}

func (e *OptionError) Error() string { return "--" + e.Option + ": " + e.Problem }

// minLease leaves time to be granted, to be held, and to be killed in.
const minLease = 100 * time.Millisecond

func (o *Options) validate() error {
	fault := func(option, format string, args ...any) error {
		return &OptionError{option, fmt.Sprintf(format, args...)}
	}
	between := func(option string, value, least, most int64) error {
		if value < least || value > most {
			return fault(option, "%d is not between %d and %d", value, least, most)
		}
		return nil
	}
	if err := errors.Join(
		between("speed", o.Speed, 1, MaxSpeed),
		between("concurrency", int64(o.Concurrency), 1, MaxConcurrency),
		between("max-tokens", o.MaxTokens, 1, trace.MaxRequestTokens),
		between("workers", int64(o.Workers), 1, MaxWorkers),
		between("kill", o.Kill, 0, million),
		between("slots", o.Slots, 0, int64(quota.MaxAmount)),
		between("requests", o.Requests, 0, int64(quota.MaxAmount)),
	); err != nil {
		return err
	}
	switch {
	case o.MaxWait < 0 || o.MaxWait > concurrency.MaxWait:
		return fault("max-wait", "%v is not between 0 and %v", o.MaxWait, concurrency.MaxWait)
	case o.Lease < minLease || o.Lease > concurrency.MaxLease:
		return fault("lease", "%v is not between %v and %v", o.Lease, minLease, concurrency.MaxLease)
	case o.Redis != "" && o.Postgres == "":
		return fault("redis", "needs --postgres: a Redis is for brokers that share a ledger")
	case o.Server == "":
		return nil
	case o.Limit != nil:
		return fault("limit", "is the policy's own with --server; leave it out, or the server")
	case o.Slots != 0:
		return fault("slots", "are the policy's own with --server; leave them out, or the server")
	case o.Redis != "":
		return fault("redis", "is the broker's own with --server; leave it out, or the server")
	case o.Postgres != "":
		return fault("postgres", "is the broker's own with --server; leave it out, or the server")
	}
	return nil
}

// Progress shows how far a replay is. Its methods may be called from several
// goroutines.
type Progress interface {
	// Stage begins a part of the replay: of so many steps, or of an unknown
	// number for 0.
	Stage(what string, steps int64)
	// Add says that steps are done.
	Add(steps int)
}

// Report is what a replay came to.
type Report struct {
	Traces      []string `json:"traces"`
	Run         string   `json:"run"`
	Seed        uint64   `json:"seed"`
	Speed       int64    `json:"speed"`
	MaxTokens   int64    `json:"maxTokens"`
	Assumption  string   `json:"assumption"`
	Account     string   `json:"account"`
	Interrupted bool     `json:"interrupted,omitempty"`

	Totals
	Leaked int64 `json:"leaked"` // reservations that are still held
	Kills  Kills `json:"kills"`

	ElapsedSeconds    float64 `json:"elapsedSeconds"`    // from the first request to the last answer
	RequestsPerSecond float64 `json:"requestsPerSecond"` // sent in that time
	Reserve           Latency `json:"reserve"`
	Refund            Latency `json:"refund"`
	Behind            Latency `json:"behind"` // how late requests were sent, by the trace

	Sums []Sum    `json:"sums"`
	Gaps []string `json:"gaps"` // empty: everything agrees
}

// Sum is one way to add up what was charged.
type Sum struct {
	Of       string `json:"of"`
	Tokens   *int64 `json:"tokens,omitempty"`   // nil: not counted there
	Requests *int64 `json:"requests,omitempty"` // nil: not counted there
}

// ErrInterrupted says that a replay was stopped before its end, so nothing was
// checked.
var ErrInterrupted = errors.New("interrupted: what was begun was finished, and nothing was checked")

// Run replays traces against a broker and checks what came of it. The report's
// Gaps list what does not add up. When ctx ends it stops as soon as what was
// begun is finished, and returns the report so far with ErrInterrupted.
func Run(ctx context.Context, o Options, progress Progress) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	survey, err := SurveyTraces(o.Traces, o.Requests)
	if err != nil {
		return nil, err
	}
	schedule := Schedule{First: survey.First, Speed: o.Speed}
	if takes := survey.Span() / time.Duration(o.Speed); takes > maxRun {
		return nil, &OptionError{"speed", fmt.Sprintf("%d makes the replay of %v take %v; at most %v is accepted", o.Speed, survey.Span(), takes, maxRun)}
	}
	if o.Run == "" {
		o.Run = newRun()
	}
	children := newSpawner()
	defer children.close()
	target := Target{Server: o.Server, Key: o.Key, Account: o.Account, Lease: o.Lease, MaxWait: o.MaxWait}
	stop := func() error { return nil }
	if o.Server == "" {
		c := BrokerConfig{Program: o.Program, Redis: o.Redis, Postgres: o.Postgres, Run: o.Run, Slots: o.Slots, Now: time.Now()}
		if o.Limit != nil {
			bucket, err := schedule.Bucket(*o.Limit)
			if err != nil {
				return nil, &OptionError{"limit", err.Error()}
			}
			c.Bucket = &bucket
		}
		progress.Stage("starting a broker", 0)
		own, err := startBroker(ctx, children, c)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ErrInterrupted
			}
			return nil, err
		}
		stop = own.Stop
		target.Server, target.Key, target.Account = own.Server, own.Key, own.Account
	}
	report, err := drive(ctx, o, target, schedule, survey, children, progress)
	if stopped := stop(); stopped != nil {
		if report == nil {
			return nil, errors.Join(err, stopped)
		}
		report.Gaps = append(report.Gaps, stopped.Error())
	}
	return report, err
}

// drive replays the traces against a broker that runs.
func drive(ctx context.Context, o Options, target Target, schedule Schedule, survey Survey, children *spawner, progress Progress) (*Report, error) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if sleep(lasting, lingering) == nil {
			cancel()
		}
	})()
	c, err := newCaller(target, o.Concurrency+inspectors)
	if err != nil {
		return nil, err
	}
	defer c.idle()
	d := &driver{
		options: o, caller: c, schedule: schedule, tally: newTally(), lag: newRecorder(),
		ctx: ctx, lasting: lasting, plain: map[string]bool{},
	}
	for _, path := range o.Traces {
		d.names = append(d.names, plainName(path))
	}
	before, err := c.quota(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ErrInterrupted
		}
		return nil, err
	}
	crew := newCrew(d, children, o.Program, o.WorkerArgs, o.Workers, o.Seed)

	progress.Stage("replaying", survey.Requests)
	began := time.Now()
	failed := d.run(crew, survey, progress)
	elapsed := time.Since(began)
	crew.finish(ctx)

	report := &Report{
		Traces: o.Traces, Run: o.Run, Seed: o.Seed, Speed: o.Speed, MaxTokens: o.MaxTokens, Assumption: Assumption, Account: c.Account,
		ElapsedSeconds: elapsed.Seconds(), Gaps: []string{},
	}
	describe := func() {
		report.Kills = crew.result()
		report.Reserve, report.Refund, report.Behind = c.reserves.result(), c.refunds.result(), d.lag.result()
		report.RequestsPerSecond = float64(report.Offered.Requests) / elapsed.Seconds()
	}
	if failed != nil {
		return nil, failed
	}
	var e Evidence
	if ctx.Err() == nil {
		e, err = d.inspect(ctx, before, began, progress)
	}
	if ctx.Err() != nil {
		report.Interrupted = true
		report.Totals, _ = d.tally.result()
		describe()
		return report, ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	report.Totals, report.Leaked, report.Gaps = e.Totals, e.Leaked, append(report.Gaps, Check(e)...)
	report.Sums = sums(e)
	if report.Offered.Requests != survey.Requests || report.Offered.Tokens != survey.Tokens {
		report.Gaps = append(report.Gaps, fmt.Sprintf("the trace has %d requests of %d tokens; %d of %d were sent", survey.Requests, survey.Tokens, report.Offered.Requests, report.Offered.Tokens))
	}
	describe()
	return report, nil
}

// newRun makes a name for a run, fit for an account, a plan and a Redis key.
func newRun() string {
	var random [5]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	return strings.ToLower(hex.EncodeToString(random[:]))
}

// sums puts what was charged side by side.
func sums(e Evidence) []Sum {
	tokens := e.Totals.Refunded.Tokens + e.ExpiredTokens
	list := []Sum{
		{Of: "trace", Tokens: &tokens, Requests: &e.Totals.Refunded.Requests},
		{Of: "ledger", Tokens: &e.LedgerTokens, Requests: &e.LedgerRequests},
	}
	for i := range e.Counters {
		c := &e.Counters[i]
		sum := Sum{Of: "counter " + c.Limit}
		if c.Meter == "tokens" {
			sum.Tokens = &c.Used
		} else {
			sum.Requests = &c.Used
		}
		list = append(list, sum)
	}
	return list
}
