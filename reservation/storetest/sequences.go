package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/budgetd/budgetd/reservation"
)

// The property suite: a great many short sequences of Reserve, Refund, Renew,
// ends of leases, steps of the clock and changed limits, on any mix of
// algorithms. The answers are compared with the model's, and with books that
// know only what was asked and answered.

var (
	sequenceCount = flag.Int("sequences", 0, "how many sequences the property suite plays; 0: as many as the engine's test says")
	sequenceSeed  = flag.Uint64("sequences.seed", 0, "seed of the property suite; 0: another one each time")
	sequenceOnly  = flag.Int("sequences.only", -1, "play this one of the property suite's sequences alone")
)

// Sequences says how an engine is put through the property suite.
type Sequences struct {
	Count   int // sequences, unless the flag -sequences says how many
	Workers int // each has an engine of its own and plays one sequence after the other

	// LookEvery is after how many steps all counters are looked at. What a Reserve or
	// a Refund shows of its counters is looked at each time, and everything at the end.
	LookEvery int
}

// RunSequences plays sequences against engines and the model. A sequence is the
// same whoever plays it. The seed is printed. A sequence that fails is made as short
// as it can be and printed as a scenario.
func RunSequences(t *testing.T, newEngine func(tb testing.TB, clock *Clock) Engine, how Sequences) {
	count, workers := how.Count, how.Workers
	if *sequenceCount > 0 {
		count = *sequenceCount
	}
	seed := *sequenceSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	first := 0
	if *sequenceOnly >= 0 {
		first, count, workers = *sequenceOnly, *sequenceOnly+1, 1
	}
	t.Logf("%d sequences of the seed %d (again: -sequences=%d -sequences.seed=%d)", count-first, seed, count, seed)

	var next atomic.Int64
	next.Store(int64(first))
	var steps, calls atomic.Int64
	start := time.Now()
	var playing sync.WaitGroup
	for range min(workers, count-first) {
		engine, clock := begin(t, newEngine)
		playing.Go(func() {
			for !t.Failed() {
				n := int(next.Add(1)) - 1
				if n >= count {
					return
				}
				s := drawSequence(seed, n, engine)
				made, err := playSequence(s, engine, clock, nil, how.LookEvery)
				steps.Add(int64(len(s.moves)))
				calls.Add(int64(made))
				if err != nil {
					shrunk, err := shrinkSequence(s, engine, clock, err)
					t.Errorf("sequence %d of the seed %d (again: -sequences.seed=%d -sequences.only=%d): %v\n\nas a scenario for testdata/:\n\n%s",
						n, seed, seed, n, err, scenarioOf(shrunk, engine, clock))
					return
				}
			}
		})
	}
	playing.Wait()
	t.Logf("%d steps, %d calls in %s", steps.Load(), calls.Load(), time.Since(start).Round(time.Second))
}

// sequence is what is done one after the other. Its moves say everything: they
// are drawn without a look at any answer, and may be left out one by one.
type sequence struct {
	limits []seqLimit
	moves  []move

	// back says that the clock may step back. What a limit shows then depends on
	// when a state that said nothing was dropped: the model is not asked, and the
	// books check what holds all the same.
	back bool

	unmodelled bool // the model is not asked, so that the books show what they find
}

// move is one step. It plays itself, and writes its scenario's lines with
// [sequencePlayer.line].
type move interface {
	play(p *sequencePlayer) error
}

// caller is an engine as a sequence sees it: [lockstep], or an engine by itself.
type caller interface {
	Reserve(ctx context.Context, q reservation.ReserveRequest) (reservation.ReserveAnswer, error)
	Refund(ctx context.Context, q reservation.RefundRequest) (reservation.RefundAnswer, error)
	Renew(ctx context.Context, q reservation.RenewRequest) (reservation.RenewAnswer, error)
	Confirm(ctx context.Context, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error)
	Seed(ctx context.Context, s reservation.SeedRequest) (bool, error)
	GiveBack(ctx context.Context, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error)
	Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error)
	Lookup(ctx context.Context, account string, id reservation.ID) (reservation.Record, error)
	Sweep(ctx context.Context) (reservation.SweepAnswer, error)
}

// alone is an engine without the model.
type alone struct{ reservation.Store }

func (a alone) Sweep(ctx context.Context) (reservation.SweepAnswer, error) {
	return a.Store.Sweep(ctx, 1000)
}

// playSequence plays a sequence from the beginning and returns how many calls it
// took. What is played is written to out as a scenario, if it is not nil.
func playSequence(s sequence, engine Engine, clock *Clock, out *strings.Builder, lookEvery int) (calls int, err error) {
	clock.Set(Epoch)
	engine.LoseData()
	p := &sequencePlayer{
		caller: alone{engine.Store}, clock: clock, out: out, books: newBooks(clock),
		limits: slices.Clone(s.limits), made: map[int]*reservation.ReserveRequest{}, taken: map[reservation.ID][]reservation.Hold{}, closings: map[reservation.ID]reservation.Record{},
		ledger: map[string]*posted{},
	}
	p.books.loose = s.back
	if !s.back && !s.unmodelled {
		p.caller = newLockstep(engine, clock)
	}
	defer func() {
		if r := recover(); r != nil {
			if !*recoverSequences {
				panic(r)
			}
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	for _, l := range p.limits {
		p.limitLine(l)
	}
	for i, m := range s.moves {
		if err := m.play(p); err != nil {
			return p.calls, err
		}
		if (i+1)%lookEvery != 0 && i < len(s.moves)-1 {
			continue
		}
		if err := p.lookAtAll(); err != nil {
			return p.calls, err
		}
	}
	return p.calls, nil
}

// recoverSequences is set where mutants are played, which may break the model's
// own assumptions.
var recoverSequences = new(bool)

// maxShrinks bounds how often a sequence is played to make it shorter.
const maxShrinks = 2000

// shrinkSequence leaves out what the failure does not need, limits and moves, and
// returns the error of what is left.
func shrinkSequence(s sequence, engine Engine, clock *Clock, failure error) (sequence, error) {
	plays := 0
	fails := func(shorter sequence) bool {
		if plays >= maxShrinks {
			return false
		}
		plays++
		_, err := playSequence(shorter, engine, clock, nil, 1)
		if err == nil || errors.Is(err, errNotPlayable) {
			return false
		}
		s, failure = shorter, err
		return true
	}
	for size := max(len(s.moves)/2, 1); ; size = max(size/2, 1) {
		shorter := false
		for i := 0; i+size <= len(s.moves); {
			shorterOne := s
			shorterOne.moves = slices.Delete(slices.Clone(s.moves), i, i+size)
			if fails(shorterOne) {
				shorter = true
				continue
			}
			i++
		}
		if size == 1 && !shorter {
			break
		}
	}
	for name := range s.names() {
		fails(s.without(name))
	}
	return s, failure
}

// scenarioOf writes a sequence as a scenario; the last line is where it failed.
func scenarioOf(s sequence, engine Engine, clock *Clock) string {
	var out strings.Builder
	if _, err := playSequence(s, engine, clock, &out, 1); err != nil {
		fmt.Fprintf(&out, "# %s\n", strings.ReplaceAll(err.Error(), "\n", "\n# "))
	}
	return out.String()
}

var errNotPlayable = errors.New("the sequence can't be played")
