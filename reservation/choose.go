package reservation

import (
	"fmt"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/estimator/forecast"
	"github.com/budgetd/budgetd/quota"
)

// callOutput is what a reservation knows of its model call's output.
type callOutput struct {
	Asked   int64 // tokens of one choice that the caller would take
	Tokens  int64 // that were granted; Asked while nothing is chosen
	Choices int64
	Choice  *outputChoice // what the engine chooses from; nil once it has, or where there is nothing to choose
}

// outputChoice is the part of an [Output] that the token carries to it.
type outputChoice struct {
	Least      int64
	Forecast   int64
	Meters     []meterSlope
	Tolerances []quota.Amount // one a hold
}

// meterSlope is how a meter's amount follows from the output, without weight.
type meterSlope struct {
	Meter quota.Meter
	Slope
}

// slopesOf are those of the meters that the estimate counted: what the caller
// stated is fixed.
func slopesOf(e *estimator.Estimate, stated quota.Amounts) []meterSlope {
	if e.Output.Ceiling == 0 {
		return nil
	}
	choices := int64(e.N)
	all := []meterSlope{
		{quota.MeterCost, Slope{PerToken: choices * int64(e.OutputPrice), Per: MaxSlopePer, Rest: e.CostRest, Weight: 1}},
		{quota.MeterOutputTokens, Slope{PerToken: choices, Per: 1, Weight: 1}},
		{quota.MeterTokens, Slope{PerToken: choices, Per: 1, Weight: 1}},
	}
	var slopes []meterSlope
	for _, s := range all {
		// A price that many choices make too steep counts as fixed: more is held.
		if _, fixed := stated[s.Meter]; !fixed && s.PerToken > 0 && s.PerToken <= MaxPerToken {
			slopes = append(slopes, s)
		}
	}
	return slopes
}

// checkLeast validates min_output_tokens against the most that is asked for.
func checkLeast(least *quota.Tokens, e *estimator.Estimate) error {
	if least != nil && (*least < 0 || *least > e.MaxOutputTokens) {
		return &InvalidError{
			Field: "llm.min_output_tokens", Problem: fmt.Sprintf("%d is not between 0 and the output that is asked for", int64(*least)),
			Bound: fmt.Sprintf("0 to %d", int64(e.MaxOutputTokens)),
		}
	}
	return nil
}

// chooseOutput says what the engine may choose of the call's output, if anything.
func (w *work) chooseOutput(b *Broker, at time.Time) {
	w.token.Output = nil
	if w.estimate == nil || len(w.slopes) == 0 {
		return
	}
	asked := int64(w.estimate.MaxOutputTokens)
	out := &callOutput{Asked: asked, Tokens: asked, Choices: int64(w.estimate.N)}
	w.token.Output = out
	if w.token.Degraded {
		return
	}
	choice := outputChoice{Least: asked, Forecast: asked, Meters: w.slopes, Tolerances: make([]quota.Amount, len(w.plan.limits))}
	if w.least != nil {
		choice.Least = int64(*w.least)
	}
	tolerated := false
	for i, limit := range w.plan.limits {
		if limit.Hold == quota.HoldForecast {
			choice.Tolerances[i], tolerated = limit.Tolerance, true
		}
	}
	if tolerated {
		choice.Forecast, _ = b.forecasts.Forecast(w.token.forecastKey(), asked, at)
	}
	if choice.Least < asked || choice.Forecast < asked {
		out.Choice = &choice
	}
}

// forecastKey says which calls are like this one.
func (t *reservationToken) forecastKey() forecast.Key {
	key := forecast.Key{Account: t.Account, Route: t.Labels["route"], Bound: forecast.Bound(t.Output.Asked)}
	if t.Price != nil {
		key.Model = t.Price.Provider + "/" + t.Price.Model
	}
	return key
}

// learnOutput lets the forecasts know what a call used.
func (b *Broker) learnOutput(t *reservationToken, r report) {
	if t.Output == nil || t.Output.Choices < 1 {
		return
	}
	var tokens int64
	if r.use != nil {
		total, err := r.use.Tokens.TotalOutput()
		if err != nil {
			return
		}
		tokens = int64(total)
	} else if stated, ok := r.amounts[quota.MeterOutputTokens]; ok {
		tokens = int64(stated)
	} else {
		return
	}
	each := tokens / t.Output.Choices
	if each*t.Output.Choices < tokens {
		each++
	}
	b.forecasts.Observe(t.forecastKey(), each, each >= t.Output.Tokens, b.now())
}

// slopeOf is the slope of hold i; the zero value where the output changes nothing.
func (t *reservationToken) slopeOf(i int) Slope {
	h, choice := &t.Holds[i], t.Output.Choice
	if h.Kind == quota.KindSlots {
		return Slope{}
	}
	for _, m := range choice.Meters {
		if m.Meter == h.Meter {
			s := m.Slope
			s.Weight, s.Tolerance = h.Weight, choice.Tolerances[i]
			return s
		}
	}
	return Slope{}
}

// output is what the engine chooses from; nil when there is nothing to choose.
func (t *reservationToken) output() *Output {
	if t.Output == nil || t.Output.Choice == nil {
		return nil
	}
	o := &Output{Asked: t.Output.Asked, Least: t.Output.Choice.Least, Forecast: t.Output.Choice.Forecast, Slopes: make([]Slope, len(t.Holds))}
	for i := range t.Holds {
		o.Slopes[i] = t.slopeOf(i)
	}
	return o
}

// maxOutput is what the caller may let the model generate, for each choice.
func (t *reservationToken) maxOutput() quota.Tokens {
	if t.Output == nil {
		return 0
	}
	return quota.Tokens(t.Output.Tokens)
}

// decide makes the token the one of what the engine chose.
func (t *reservationToken) decide(d Decided) error {
	o := t.output()
	if len(d.Forecast) != len(t.Holds) {
		return errBadToken
	}
	if o == nil {
		return t.miss(d)
	}
	if d.Tokens < o.Least || d.Tokens > o.Asked {
		return errBadToken
	}
	for i, taken := range o.Taken(t.holds(), d) {
		t.Holds[i].Amount, t.Holds[i].Risk = taken.Amount, taken.Risk
	}
	asked := make(quota.Amounts, len(t.Asked))
	for meter, amount := range t.Asked {
		asked[meter] = amount
	}
	for _, m := range t.Output.Choice.Meters {
		asked[m.Meter] -= m.less(o.Asked - d.Tokens)
	}
	t.Asked = asked
	t.Output = &callOutput{Asked: o.Asked, Tokens: d.Tokens, Choices: t.Output.Choices}
	return t.miss(d)
}

// decide takes over what the engine chose.
func (w *work) decide(b *Broker, d Decided) error {
	if !w.token.undecided() {
		return nil
	}
	key, ok := b.Keys.ByID(tokenKeyID(w.raw))
	if err := w.token.decide(d); err != nil || !ok {
		return fmt.Errorf("the engine's choice can't be read: %w", errBadToken)
	}
	raw, err := w.token.sealWith(tokenKeyID(w.raw), key)
	if err == nil {
		w.raw = raw
	}
	return err
}

// openStored reads a token as an engine keeps it, with the engine's choice behind
// it, and returns also the token as callers have it.
func openStored(stored []byte, keys TokenKeys) (*reservationToken, []byte, error) {
	if len(stored) == 0 || stored[0]&tokenUndecided == 0 {
		token, err := openToken(stored, keys)
		return token, stored, err
	}
	raw, d, ok := SplitDecided(stored)
	if !ok {
		return nil, nil, errBadToken
	}
	token, err := readToken(raw, keys)
	if err != nil {
		return nil, nil, err
	}
	if err := token.decide(d); err != nil {
		return nil, nil, err
	}
	key, _ := keys.ByID(tokenKeyID(raw)) // readToken has verified with it
	raw, err = token.sealWith(tokenKeyID(raw), key)
	return token, raw, err
}

func appendOutput(b []byte, o *callOutput, undecided bool) []byte {
	if o == nil {
		return msgp.AppendBool(b, false)
	}
	b = msgp.AppendBool(b, true)
	for _, n := range []int64{o.Asked, o.Tokens, o.Choices} {
		b = msgp.AppendInt64(b, n)
	}
	c := o.Choice
	if undecided {
		b = msgp.AppendBool(b, c != nil)
	}
	if c == nil {
		return b
	}
	b = msgp.AppendInt64(b, c.Least)
	b = msgp.AppendInt64(b, c.Forecast)
	b = msgp.AppendArrayHeader(b, uint32(len(c.Meters)))
	for _, m := range c.Meters {
		b = msgp.AppendString(b, string(m.Meter))
		for _, n := range []int64{m.PerToken, m.Per, m.Rest} {
			b = msgp.AppendInt64(b, n)
		}
	}
	b = msgp.AppendArrayHeader(b, uint32(len(c.Tolerances)))
	for _, tolerance := range c.Tolerances {
		b = msgp.AppendInt64(b, int64(tolerance))
	}
	return b
}

func (r *reader) output(version byte, undecided bool) *callOutput {
	if !r.boolean() {
		return nil
	}
	o := &callOutput{Asked: r.integer(), Tokens: r.integer(), Choices: r.integer()}
	if !undecided || version > withoutShadow && !r.boolean() {
		return o
	}
	c := &outputChoice{Least: r.integer(), Forecast: r.integer()}
	c.Meters = make([]meterSlope, r.length(3))
	for i := range c.Meters {
		c.Meters[i] = meterSlope{quota.Meter(r.text()), Slope{PerToken: r.integer(), Per: r.integer(), Rest: r.integer(), Weight: 1}}
	}
	c.Tolerances = make([]quota.Amount, r.length(MaxHolds))
	for i := range c.Tolerances {
		c.Tolerances[i] = quota.Amount(r.integer())
	}
	o.Choice = c
	return o
}
