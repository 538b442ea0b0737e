package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/estimator/forecast"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// The limit that holds forecasts. Calls read input tokens and may write up to
// three times what they are expected to: together far more than the tolerance.
const (
	outputs              = "outputs"
	outputBurst          = quota.Amount(200) // which refills 1 a day
	tolerance            = quota.Amount(120)
	callInput            = quota.Amount(10)
	callLeast, callMost  = 30, 90
	callExpected         = 20
	lengthsThatWereKnown = 64
)

func forecastLimit() quota.Limit {
	return quota.Limit{
		Name: outputs, Meter: quota.MeterOutputTokens, Kind: quota.KindBucket, Rate: quota.Rate{Amount: 1, Every: 24 * time.Hour},
		Burst: outputBurst, Hold: quota.HoldForecast, Tolerance: tolerance,
	}
}

// known is the store of forecasts of a deployment that has run for long: every
// kind of calls was seen to use callExpected.
type known struct{}

func (known) Merge(_ context.Context, cells []forecast.Cell, now time.Time) ([]forecast.Cell, error) {
	merged := make([]forecast.Cell, len(cells))
	for i, c := range cells {
		merged[i].Key = c.Key
		for n := range int64(lengthsThatWereKnown) {
			merged[i].Lengths = append(merged[i].Lengths, forecast.Length{Tokens: callExpected, At: now.UnixMicro() - n})
		}
		merged[i].Lengths = forecast.Union(merged[i].Lengths, c.Lengths)
	}
	return merged, nil
}

// callOf asks for a call of at most so many output tokens, and at least so many.
func callOf(most, least quota.Tokens) reservation.Ask {
	input, length := quota.Tokens(callInput), lease
	return reservation.Ask{
		Account: "acme", Lease: &length, MinOutputTokens: &least,
		LLM: &estimator.Call{Provider: "openai", Model: "gpt-4o-mini", InputTokens: &input, MaxOutputTokens: &most},
	}
}

// warm has a new node learn what the others know: it asks for the kinds of calls
// that it meets.
func (w *world) warm(n *node) {
	for _, most := range []quota.Tokens{callLeast, callMost / 2, callMost} {
		ask := callOf(most, most)
		ask.DryRun = true
		_, _ = n.Reserve(context.Background(), ask) // the engine may be silent: it is the asking that counts
	}
	if _, err := n.ShareForecasts(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// reserveCall reserves a model call, whose output is held by forecast where the
// tolerance has room.
func (w *world) reserveCall(*rapid.T) {
	w.disturb()
	most := quota.Tokens(rapid.IntRange(callLeast, callMost).Draw(w.t, "most"))
	least := most
	if rapid.Bool().Draw(w.t, "takes less") {
		least = most / 2
	}
	w.keys++
	ask := callOf(most, least)
	ask.Key = fmt.Sprint("key-", w.keys)
	for try := range rapid.IntRange(1, 3).Draw(w.t, "tries") {
		d, err := w.node().Reserve(context.Background(), ask)
		switch {
		case errors.Is(err, reservation.ErrUnavailable):
			continue
		case err != nil:
			w.t.Fatalf("Reserve of a call, try %d: %v", try, err)
		case d.Grant != nil && d.Grant.State == reservation.StateHeld:
			w.grantedCall(d.Grant, most, least)
		}
		return
	}
}

// grantedCall notes the grant of a call.
func (w *world) grantedCall(g *reservation.Grant, most, least quota.Tokens) {
	if g.MaxOutput < least || g.MaxOutput > most {
		w.t.Fatalf("%d output tokens granted of %d to %d", g.MaxOutput, least, most)
	}
	w.granted(g, callInput+g.MaxOutput.Amount())
	p := w.promises[len(w.promises)-1]
	p.output = g.MaxOutput.Amount()
	p.uses = callInput + rapid.SampledFrom([]quota.Amount{0, callExpected, p.output, p.output}).Draw(w.t, "uses")
	for i := range g.Holds {
		h := &g.Holds[i]
		if h.Limit != outputs {
			continue
		}
		p.risk = p.output - h.Amount
		if p.risk < 0 {
			w.t.Fatalf("%d held for %d output tokens", h.Amount, p.output)
		}
		if p.risk > 0 {
			forecasts.Add(1)
		}
	}
}

// used is what a Refund of so many tokens reports.
func (p *promise) used(amount quota.Amount) quota.Amounts {
	amounts := quota.Amounts{quota.MeterTokens: amount}
	if p.output > 0 {
		amounts[quota.MeterOutputTokens] = max(amount-callInput, 0)
		amounts[quota.MeterInputTokens] = min(amount, callInput)
	}
	return amounts
}

// checkTolerance: at every moment forecasts are short of their maxima by no more
// than the tolerance, and by as much at least as calls that are known to be open
// are. And what passed is at most the burst, what refilled, and the tolerance,
// while no call uses more than its maximum, and none is charged after its hold
// went back.
func (w *world) checkTolerance(*rapid.T) {
	if !w.lossless {
		return // W1: what comes back may find that others took its place
	}
	level := w.outputs()
	if level.Risk > tolerance {
		w.t.Fatalf("forecasts are short by %d, the tolerance is %d", level.Risk, tolerance)
	}
	open, excused := quota.Amount(0), false
	for _, p := range w.promises {
		if !p.tried && w.clock.Now().Before(p.made.Add(lease)) {
			open += p.risk
		}
		excused = excused || p.output > 0 && (p.overrun || p.late || p.kept)
	}
	if level.Risk < open {
		w.t.Fatalf("forecasts are short by %d, the open sum says %d", open, level.Risk)
	}
	if level.Remaining < -tolerance && !excused {
		w.t.Fatalf("%d more than the burst of %d passed, the tolerance is %d", -level.Remaining, outputBurst, tolerance)
	}
	if level.Remaining < 0 {
		beyond.Add(1)
	}
}

// outputs is the level of the limit that holds forecasts, as the engine has it.
func (w *world) outputs() reservation.Level {
	limits, err := fixedPolicy().Limits("acme")
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range limits {
		if l := limits[i].Limit; l.Name == outputs {
			levels, _, err := w.network.store().Levels(context.Background(), "acme", []reservation.Hold{{
				Counter: reservation.Counter{Limit: limits[i].ID}, Kind: l.Kind, Bucket: l.Bucket(), OnExpiry: quota.ExpiryGiveBack,
			}})
			if err != nil {
				w.t.Fatal(err)
			}
			return levels[0]
		}
	}
	w.t.Fatal("the policy has no such limit")
	return reservation.Level{}
}
