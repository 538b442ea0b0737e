package reservation

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// Output lets the engine choose how much of a model call's output a Reserve
// holds, in the same atomic step in which it takes the holds: how many output
// tokens are granted, and which holds take a forecast instead of the maximum.
//
// The amounts in ReserveRequest.Holds are those of Asked tokens. For n tokens
// hold i takes
//
//	Holds[i].Amount - Weight * floor((Rest + PerToken*(Asked-n)) / Per)
//
// which is exact for amounts that are rounded up once from a sum of classes: Rest
// is what that rounding added at Asked tokens.
//
// The engine grants the largest n from Least to Asked at which every hold fits. A
// hold with a Tolerance takes the amount of min(n, Forecast) tokens, its forecast,
// where the counter's level covers it (a level below zero covers nothing, not
// even 0) and the open sum of its counter plus what it takes less than the amount
// of n stays within Tolerance. It then adds that difference, its risk, to the open
// sum. Otherwise it takes the amount of n. So what forecasts are short by is never
// more than Tolerance, whatever the calls really use.
//
// The open sum loses the risk when the reservation is closed or its lease ends. A
// lease's end by ExpiryCharge charges the maximum, which is the hold and its risk.
type Output struct {
	Asked    int64   // output tokens of one choice, 0 to quota.MaxAmount
	Least    int64   // fewest that are worth a grant, 0 to Asked
	Forecast int64   // how many are expected at most, 0 to Asked; Asked: no forecast
	Slopes   []Slope // one a hold
}

// Slope is how a hold's amount follows from the output tokens. The zero value is
// a hold that they do not change.
type Slope struct {
	PerToken  int64        // what one token of each choice adds, in units of 1/Per before Weight; 0 to MaxPerToken
	Per       int64        // 1 to MaxSlopePer; 0 with a PerToken of 0
	Rest      int64        // 0 to Per-1
	Weight    quota.Amount // 1 to quota.MaxWeight; 0 with a PerToken of 0
	Tolerance quota.Amount // KindBucket: how much the forecasts of the counter may be short by in all, 0 to quota.MaxAmount; 0: no forecast
}

// Bounds of a Slope. Prices are nano-dollars per million tokens, and sums with
// what is below one stay exact in engines that count in IEEE doubles.
const (
	MaxSlopePer = 1_000_000
	MaxPerToken = int64(quota.MaxAmount / 2)
)

// RiskRetry is when to come back, at the earliest, after a refusal that only
// the tolerance's being used up explains: when it is free again nobody knows.
const RiskRetry = time.Second

// Taken is what a hold took.
type Taken struct {
	Amount   quota.Amount
	Risk     quota.Amount // how much less than the maximum
	Forecast bool         // it takes the forecast
}

func (s *Slope) validate(h *Hold, asked int64) error {
	if err := checkRange("per_token", s.PerToken, 0, MaxPerToken); err != nil {
		return err
	}
	if s.PerToken == 0 {
		if *s != (Slope{}) {
			return badRequest("per_token", "it is 0 beside other values; leave all of them 0 for an amount that does not depend on the output")
		}
		return nil
	}
	if err := checkRange("per", s.Per, 1, MaxSlopePer); err != nil {
		return err
	}
	if err := checkRange("rest", s.Rest, 0, s.Per-1); err != nil {
		return err
	}
	if err := checkRange("weight", s.Weight, 1, quota.MaxWeight); err != nil {
		return err
	}
	most := quota.Amount(0)
	if h.Kind == quota.KindBucket {
		most = quota.MaxAmount
	}
	if err := checkRange("tolerance", s.Tolerance, 0, most); err != nil {
		return err
	}
	if h.Kind == quota.KindSlots {
		return badRequest("per_token", "slots do not depend on the output")
	}
	if less := s.less(asked); less > h.Amount/s.Weight {
		return badRequest("per_token", "%d tokens come to more than the hold of %d", asked, h.Amount)
	}
	return nil
}

func (o *Output) validate(r *ReserveRequest) error {
	if r.Settle != nil {
		return badRequest("output", "a charge has a known output")
	}
	if err := checkRange("output.asked", o.Asked, 0, int64(quota.MaxAmount)); err != nil {
		return err
	}
	if err := checkRange("output.least", o.Least, 0, o.Asked); err != nil {
		return err
	}
	if err := checkRange("output.forecast", o.Forecast, 0, o.Asked); err != nil {
		return err
	}
	if len(o.Slopes) != len(r.Holds) {
		return badRequest("output.slopes", "%d are given for %d holds", len(o.Slopes), len(r.Holds))
	}
	for i := range o.Slopes {
		if err := o.Slopes[i].validate(&r.Holds[i], o.Asked); err != nil {
			return err
		}
	}
	return nil
}

// less is floor((Rest + PerToken*fewer) / Per): how much less fewer tokens take
// than Asked, before Weight. At most quota.MaxAmount+1.
func (s *Slope) less(fewer int64) quota.Amount {
	if s.PerToken == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(fewer), uint64(s.PerToken))
	low, carry := bits.Add64(low, uint64(s.Rest), 0)
	high += carry
	if high >= uint64(s.Per) {
		return quota.MaxAmount + 1
	}
	less, _ := bits.Div64(high, low, uint64(s.Per))
	return quota.Amount(min(less, uint64(quota.MaxAmount)+1))
}

// fewer is the smallest number of tokens by which Asked must fall for the
// amount to be less by at least less; above quota.MaxAmount if none does.
func (s *Slope) fewer(less quota.Amount) int64 {
	if less <= 0 {
		return 0
	}
	if s.PerToken == 0 {
		return int64(quota.MaxAmount) + 1
	}
	least := (less + s.Weight - 1) / s.Weight
	// The smallest k with Rest + PerToken*k >= least*Per, in 128 bits.
	high, low := bits.Mul64(uint64(least), uint64(s.Per))
	low, borrow := bits.Sub64(low, uint64(s.Rest), 0)
	high -= borrow // least >= 1 and Rest < Per: it stays positive
	low, carry := bits.Add64(low, uint64(s.PerToken)-1, 0)
	high += carry
	if high >= uint64(s.PerToken) {
		return int64(quota.MaxAmount) + 1
	}
	k, _ := bits.Div64(high, low, uint64(s.PerToken))
	return int64(min(k, uint64(quota.MaxAmount)+1))
}

// amount is what hold i takes for n tokens, from its amount for Asked.
func (o *Output) amount(i int, asked quota.Amount, n int64) quota.Amount {
	return asked - o.Slopes[i].Weight*o.Slopes[i].less(o.Asked-n)
}

// Held says what hold h, the i-th, takes for n tokens while its counter has so
// much remaining and such an open sum, and whether it fits.
func (o *Output) Held(i int, h *Hold, n int64, remaining, open quota.Amount) (taken Taken, fits bool) {
	most := o.amount(i, h.Amount, n)
	if tolerance := o.Slopes[i].Tolerance; tolerance > 0 && o.Forecast < n {
		held := o.amount(i, h.Amount, o.Forecast)
		if risk := most - held; risk > 0 && remaining >= held && risk <= tolerance-open {
			return Taken{Amount: held, Risk: risk, Forecast: true}, true
		}
	}
	return Taken{Amount: most}, most == 0 || most <= remaining
}

// Most is the largest number of tokens, from 0 to Asked, at which hold h, the
// i-th, fits; -1 when it fits at none.
func (o *Output) Most(i int, h *Hold, remaining, open quota.Amount) int64 {
	s := &o.Slopes[i]
	n := o.Asked - s.fewer(h.Amount-max(remaining, 0))
	if s.Tolerance > open && o.Forecast < o.Asked {
		held := o.amount(i, h.Amount, o.Forecast)
		if remaining >= held {
			n = max(n, o.Asked-s.fewer(h.Amount-held-(s.Tolerance-open)))
		}
	}
	return max(n, -1)
}

// Refused is what a refusal of Least tokens asked of hold h, the i-th, and what
// it waits for: until the level is at least want, and until soonest in any case.
// want above the bucket's capacity, less Keep, is never reached.
func (o *Output) Refused(i int, h *Hold, open quota.Amount) (asked, want quota.Amount, soonest time.Duration) {
	most := o.amount(i, h.Amount, o.Least)
	tolerance := o.Slopes[i].Tolerance
	if tolerance == 0 || o.Forecast >= o.Least {
		return most, most, 0
	}
	held := o.amount(i, h.Amount, o.Forecast)
	switch risk := most - held; {
	case risk == 0 || risk > tolerance:
		return most, most, 0
	case risk <= tolerance-open:
		return held, held, 0
	case most > h.Bucket.Capacity-h.Keep:
		// The forecast would do, once others have closed.
		return held, held, RiskRetry
	}
	return most, most, 0
}

// Decided is the choice that an engine made: tokens granted, and which holds took
// their forecast or were missed.
type Decided struct {
	Tokens   int64
	Forecast []bool // one a hold
	Missed   []bool // one a hold; nil when none is
}

// Taken is what each hold took.
func (o *Output) Taken(holds []Hold, d Decided) []Taken {
	taken := make([]Taken, len(holds))
	for i := range holds {
		taken[i].Amount = o.amount(i, holds[i].Amount, d.Tokens)
		if i < len(d.Forecast) && d.Forecast[i] {
			most := taken[i].Amount
			taken[i].Amount = o.amount(i, holds[i].Amount, o.Forecast)
			taken[i].Risk, taken[i].Forecast = most-taken[i].Amount, true
		}
	}
	return taken
}

// decidedDigits is how many digits AppendTo gives the tokens.
const decidedDigits = 16

// AppendTo returns the token with the decision behind it, as an engine keeps it:
// the tokens in 16 decimal digits, one byte a hold, '1' for a forecast, '2' for a
// hold that was missed and '0' else, and one byte with the length of all that.
func (d Decided) AppendTo(token []byte) []byte {
	b := make([]byte, 0, len(token)+decidedDigits+len(d.Forecast)+1)
	b = fmt.Appendf(append(b, token...), "%0*d", decidedDigits, d.Tokens)
	for i, forecast := range d.Forecast {
		switch {
		case d.missed(i):
			b = append(b, '2')
		case forecast:
			b = append(b, '1')
		default:
			b = append(b, '0')
		}
	}
	return append(b, byte(decidedDigits+len(d.Forecast)))
}

// SplitDecided parts what AppendTo put together. ok is false when it is nothing
// of the kind.
func SplitDecided(stored []byte) (token []byte, d Decided, ok bool) {
	if len(stored) == 0 {
		return nil, Decided{}, false
	}
	size := int(stored[len(stored)-1])
	at := len(stored) - 1 - size
	if size < decidedDigits || size > decidedDigits+MaxHolds || at < 0 {
		return nil, Decided{}, false
	}
	var err error
	if d.Tokens, err = strconv.ParseInt(string(stored[at:at+decidedDigits]), 10, 64); err != nil || d.Tokens < 0 {
		return nil, Decided{}, false
	}
	d.Mark(stored[at+decidedDigits : len(stored)-1])
	return stored[:at], d, true
}

// Mark reads what AppendTo wrote of the holds, one byte each.
func (d *Decided) Mark(marks []byte) {
	d.Forecast = make([]bool, len(marks))
	for i, c := range marks {
		d.Forecast[i] = c == '1'
		if c == '2' {
			d.Miss(i, len(marks))
		}
	}
}
