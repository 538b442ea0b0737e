package backtest

import (
	"fmt"
	"maps"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Labels by which a policy knows a model and its provider.
const (
	labelModel    = "model"
	labelProvider = "provider"
)

// Defaults are what a call is taken to be where its record does not say.
type Defaults struct {
	Account   string // "": a record has to say
	Model     string // "": a call without a model has no price
	MaxOutput int64  // tokens of output that are held, 1 to trace.MaxRequestTokens
	// Duration is how long a call takes; nil: trace.Duration of its output.
	Duration *time.Duration
}

// assumed counts the calls for which a default stood in.
type assumed struct{ account, model, output, end int64 }

// complete fills in what a record does not say.
func (d *Defaults) complete(c *trace.Call, a *assumed) {
	if c.Account == "" {
		c.Account = d.Account
		a.account++
	}
	if c.Model == "" && c.Tokens && d.Model != "" {
		c.Model = d.Model
		a.model++
	}
	if c.MaxOutput == 0 && c.Tokens {
		c.MaxOutput = d.MaxOutput
		a.output++
	}
	if c.Ends.IsZero() {
		a.end++
		if d.Duration != nil {
			c.Ends = c.At.Add(*d.Duration)
		} else {
			c.Ends = c.At.Add(min(trace.Duration(c.Output), trace.MaxDuration))
		}
	}
}

// inWords says for how many calls which default stood in.
func (d *Defaults) inWords(a assumed) []string {
	words := []string{}
	say := func(calls int64, format string, args ...any) {
		if calls > 0 {
			words = append(words, fmt.Sprintf("%d calls ", calls)+fmt.Sprintf(format, args...))
		}
	}
	say(a.account, "are of account %s", d.Account)
	say(a.model, "are of model %s", d.Model)
	say(a.output, "allowed %d tokens of output", d.MaxOutput)
	if d.Duration != nil {
		say(a.end, "took %s", *d.Duration)
	} else {
		say(a.end, "took %s + %s per token of output", trace.BaseDuration, trace.DurationPerToken)
	}
	return words
}

// AskOf is the Reserve that a complete call would have sent. What was reserved
// is held where it is recorded. Else a model call holds its input and the
// output that it allowed, priced where the model is recorded, and any other
// what it used.
func AskOf(c *trace.Call) reservation.Ask {
	lease := max(c.Ends.Sub(c.At)+time.Second, reservationLease)
	ask := reservation.Ask{Account: c.Account, Labels: c.Labels, Amounts: quota.Amounts{}, Lease: &lease}
	if !c.HeldAll {
		maps.Copy(ask.Amounts, c.Amounts)
	}
	maps.Copy(ask.Amounts, c.Held)
	switch {
	case c.Tokens && c.Model != "":
		input, output := quota.Tokens(c.Input), quota.Tokens(c.MaxOutput)
		ask.LLM = &estimator.Call{Provider: c.Provider, Model: c.Model, InputTokens: &input, MaxOutputTokens: &output}
	case c.Tokens:
		addMissing(ask.Amounts, tokenAmounts(c.Input, c.MaxOutput))
	}
	for meter, amount := range ask.Amounts {
		if amount == 0 { // what a caller leaves out
			delete(ask.Amounts, meter)
		}
	}
	if ask.LLM == nil && (c.Model != "" || c.Provider != "") {
		ask.Labels = withModel(c)
	}
	return ask
}

// reservationLease is the shortest lease of a call: what callers get that name
// none.
const reservationLease = time.Minute

// UsageOf is the Refund of a call that was granted.
func UsageOf(c *trace.Call) reservation.Usage {
	usage := reservation.Usage{Amounts: maps.Clone(c.Amounts)}
	switch {
	case c.Tokens && c.Model != "":
		usage.Use = useOf(c)
	case c.Tokens:
		if usage.Amounts == nil {
			usage.Amounts = quota.Amounts{}
		}
		addMissing(usage.Amounts, tokenAmounts(c.Input, c.Output))
	case len(usage.Amounts) == 0:
		usage.Amounts = quota.Amounts{quota.MeterRequests: 1}
	}
	return usage
}

func useOf(c *trace.Call) *estimator.Use {
	return &estimator.Use{Tokens: estimator.TokenClasses{Input: quota.Tokens(c.Input), Output: quota.Tokens(c.Output)}}
}

func tokenAmounts(input, output int64) quota.Amounts {
	return quota.Amounts{
		quota.MeterInputTokens: quota.Amount(input), quota.MeterOutputTokens: quota.Amount(output),
		quota.MeterTokens: quota.Amount(input + output),
	}
}

func addMissing(to, more quota.Amounts) {
	for meter, amount := range more {
		if _, stated := to[meter]; !stated {
			to[meter] = amount
		}
	}
}

// withModel are the labels of a call that states its model in amounts only.
func withModel(c *trace.Call) map[string]string {
	labels := map[string]string{}
	if c.Model != "" {
		labels[labelModel] = c.Model
	}
	if c.Provider != "" {
		labels[labelProvider] = c.Provider
	}
	maps.Copy(labels, c.Labels)
	return labels
}

// used is what a call used, for the sums of a report: all its tokens, and what it
// cost where that is known.
func used(c *trace.Call, prices reservation.Estimator) (tokens int64, cost quota.NanoUSD, priced bool, err error) {
	tokens = c.Input + c.Output
	if stated, ok := c.Amounts[quota.MeterTokens]; ok {
		tokens = int64(stated)
	}
	if stated, ok := c.Amounts[quota.MeterCost]; ok {
		return tokens, quota.NanoUSD(stated), true, nil
	}
	if !c.Tokens || c.Model == "" {
		return tokens, 0, false, nil
	}
	model, err := prices.ModelAt(c.Provider, c.Model, c.At)
	if err != nil {
		return 0, 0, false, err
	}
	cost, err = model.Price.Cost(*useOf(c))
	return tokens, cost, err == nil, err
}
