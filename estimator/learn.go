package estimator

import (
	"math"
	"strings"
	"time"

	"github.com/budgetd/budgetd/estimator/family"
	"github.com/budgetd/budgetd/quota"
)

// Learn tells of a settled call whose input was counted by a rule: the provider
// and the model of its [Price], the [Estimate.RuleInput], and all prompt tokens
// that the provider counted. Later estimates of the model go by what such calls
// showed: see [family.Learner]. A ruleInput of 0 says nothing.
func (e *Estimator) Learn(provider, model string, ruleInput, real quota.Tokens, at time.Time) {
	e.learner.Observe(learnedKey(provider, model), ruleInput, real, at)
}

func learnedKey(provider, model string) string { return provider + "/" + model }

// applyLearned puts what was learned of the model on an input that a rule
// counted.
func (e *Estimator) applyLearned(out *Estimate, at time.Time) {
	if !out.isByRuleAlone() || out.Input.Ceiling < family.LearnFrom {
		return
	}
	out.RuleInput = out.Input.Ceiling
	learned, ok := e.learner.Of(learnedKey(out.Price.Provider, out.Price.Model), at)
	if !ok {
		return
	}
	out.Method += learnedMethod
	out.Input = Figures{}
	for i := range out.Parts {
		part := &out.Parts[i]
		part.Method += learnedMethod
		part.Tokens = scaled(part.Tokens, learned)
		out.Input = out.Input.plus(part.Tokens)
	}
}

// learnedMethod marks figures that were learned.
const learnedMethod = " learned"

// isByRuleAlone says whether nothing is in the input but text, by a rule, and
// what comes round text.
func (e *Estimate) isByRuleAlone() bool {
	if !strings.HasPrefix(e.Method, "rule/") {
		return false
	}
	for _, part := range e.Parts {
		switch part.Kind {
		case KindText, KindJSON, KindRequest, KindMessages, KindNames, KindTools:
		default:
			return false
		}
	}
	return true
}

// scaled is the figures times what was learned, rounded up: at most
// family.MostFactor times 2^53, which an int64 holds.
func scaled(f Figures, learned family.Learned) Figures {
	times := func(factor float64) quota.Tokens {
		return quota.Tokens(min(math.Ceil(float64(f.Ceiling)*factor), float64(quota.MaxAmount)))
	}
	most := times(learned.Most)
	likely := min(times(learned.Mean), most)
	return Figures{min(f.Floor, likely), likely, most}
}
