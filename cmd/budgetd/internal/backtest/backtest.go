package backtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
)

// Options say what is run.
type Options struct {
	Plans    []Plan   // at least 1; each is a broker of its own
	Defaults Defaults // for what a record does not say
	By       []string // labels whose values are told apart, at most MaxBy; the account always is
	SkipBad  int64    // calls that may be left out because something is wrong with them

	// Watch sees every answer of the first plan's broker, in order; nil: nobody.
	Watch func(Step)

	alike bool // all plans have the same accounts and prices
}

// MaxBy bounds the labels whose values are told apart.
const MaxBy = 8

// Report is what became of the calls.
type Report struct {
	Sources []string  `json:"sources"`
	First   time.Time `json:"first"` // call
	Last    time.Time `json:"last"`
	Offered Sum       `json:"offered"`
	Skipped []string  `json:"skipped"`         // the first MaxShown calls that were left out, and why
	Bad     int64     `json:"bad"`             // calls that were left out
	Assumed []string  `json:"assumed"`         // in words
	Notes   []string  `json:"notes,omitempty"` // what the source cannot tell
	Plans   []Outcome `json:"plans"`

	Suggestion *Suggestion `json:"suggestion,omitempty"`
}

// MaxShown bounds the calls that a report names.
const MaxShown = 20

// Outcome is what one plan did to the calls.
type Outcome struct {
	Plan         string          `json:"plan"`
	Admitted     Sum             `json:"admitted"`
	Refused      Sum             `json:"refused"` // what it would have saved
	Priced       int64           `json:"priced"`  // calls whose cost is known
	FirstRefused *time.Time      `json:"firstRefused,omitempty"`
	LastRefused  *time.Time      `json:"lastRefused,omitempty"`
	Delayed      int64           `json:"delayed"`                // admitted requests that a leaky queue lets wait
	LongestDelay string          `json:"longestDelay,omitempty"` // of these, such as 4.5s
	Limits       []LimitRefusals `json:"limits"`
	Groups       []Grouping      `json:"groups"`
	Timeline     []Slice         `json:"timeline"`
	Width        string          `json:"width"` // of a slice
}

// batchSize is how many calls go from the reader to the plans at a time, and
// batches how many wait for one.
const (
	batchSize = 256
	batches   = 8
)

// run is a Run under way.
type run struct {
	options Options
	courses []*course
	assumed assumed
	report  Report
}

// Run takes the calls through the plans. They have to come in the order of
// time. An error of a call names its file and line.
func Run(ctx context.Context, calls trace.Calls, o Options) (_ *Report, err error) {
	r := &run{options: o, report: Report{Skipped: []string{}}}
	for i := range o.Plans {
		watch := o.Watch
		if i > 0 {
			watch = nil
		}
		c, err := newCourse(&o.Plans[i], o.By, watch)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, c.close()) }()
		r.courses = append(r.courses, c)
	}
	group, ctx := errgroup.WithContext(ctx)
	var ways []chan []trace.Call
	for _, c := range r.courses {
		way := make(chan []trace.Call, batches)
		ways = append(ways, way)
		group.Go(func() error { return c.follow(ctx, way) })
	}
	group.Go(func() error {
		defer func() {
			for _, way := range ways {
				close(way)
			}
		}()
		return r.read(ctx, calls, ways)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	r.finish()
	return &r.report, nil
}

// follow takes the calls of one plan, until there are no more.
func (c *course) follow(ctx context.Context, way <-chan []trace.Call) error {
	for batch := range way {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range batch {
			if err := c.arrive(ctx, &batch[i]); err != nil {
				return err
			}
		}
	}
	return c.drain(ctx)
}

// read hands out the calls that every plan can take.
func (r *run) read(ctx context.Context, calls trace.Calls, ways []chan []trace.Call) error {
	for {
		batch := make([]trace.Call, 0, batchSize)
		var ended bool
		for len(batch) < batchSize && !ended {
			call, err := calls.Next()
			if err == nil {
				r.options.Defaults.complete(&call, &r.assumed)
				err = r.check(&call)
			}
			var line *trace.LineError
			switch {
			case err == nil:
				batch = append(batch, call)
			case err == io.EOF:
				ended = true
			case errors.As(err, &line):
				if err := r.skip(line); err != nil {
					return err
				}
			default:
				return err
			}
		}
		for _, way := range ways {
			select {
			case way <- batch:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if len(batch) > 0 {
			if r.report.First.IsZero() {
				r.report.First = batch[0].At
			}
			r.report.Last = batch[len(batch)-1].At
		}
		if ended {
			return nil
		}
	}
}

// skip leaves a call out, as often as that is allowed.
func (r *run) skip(line *trace.LineError) error {
	if r.report.Bad >= r.options.SkipBad {
		if r.options.SkipBad > 0 {
			return fmt.Errorf("%w (%d were left out before it)", line, r.report.Bad)
		}
		return line
	}
	r.report.Bad++
	if len(r.report.Skipped) < MaxShown {
		r.report.Skipped = append(r.report.Skipped, line.Error())
	}
	return nil
}

// check finds what no plan's broker could take.
func (r *run) check(c *trace.Call) error {
	if c.Account == "" {
		return &trace.LineError{File: c.File, Line: c.Line, Field: "account", Problem: "is missing; add the column, or name the account of all calls"}
	}
	courses := r.courses
	if r.options.alike {
		courses = courses[:1]
	}
	for _, course := range courses {
		if _, known := course.plan.Policy.Accounts[c.Account]; !known {
			return &trace.LineError{File: c.File, Line: c.Line, Field: "account", Problem: fmt.Sprintf("%q is not in %s; add it to the policy, or name a plan for accounts that it does not state", c.Account, course.plan.Name)}
		}
		if c.Tokens && c.Model != "" {
			if _, err := course.prices.ModelAt(c.Provider, c.Model, c.At); err != nil {
				return &trace.LineError{File: c.File, Line: c.Line, Field: "model", Problem: err.Error()}
			}
		}
	}
	return nil
}

// finish makes the report of what was added up.
func (r *run) finish() {
	for _, c := range r.courses {
		t := c.tally
		o := Outcome{
			Plan: c.plan.Name, Admitted: t.admitted, Refused: t.refused, Priced: c.priced,
			Limits: t.limitRefusals(), Groups: t.groupings(), Timeline: t.timeline.slices, Width: widths[t.timeline.width].String(),
		}
		if !t.first.IsZero() {
			o.FirstRefused, o.LastRefused = &t.first, &t.last
		}
		if o.Delayed = t.delayed; o.Delayed > 0 {
			o.LongestDelay = t.longest.String()
		}
		r.report.Plans = append(r.report.Plans, o)
	}
	r.report.Assumed = r.options.Defaults.inWords(r.assumed)
	r.report.Offered = r.courses[0].tally.offered
}

// Share is how many parts of a million of the requests were refused, rounded
// up.
func (o *Outcome) Share() int64 {
	all := o.Admitted.Requests + o.Refused.Requests
	if all == 0 {
		return 0
	}
	return (o.Refused.Requests*million + all - 1) / all
}

const million = 1_000_000
