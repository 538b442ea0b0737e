package reservation_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// lesson is what an estimator was told of a settled call.
type lesson struct {
	provider, model string
	ruleInput, real quota.Tokens
}

// pupil is the real estimator, and remembers what it was told.
type pupil struct {
	*estimator.Estimator
	mu      sync.Mutex
	lessons []lesson
}

func (p *pupil) Learn(provider, model string, ruleInput, real quota.Tokens, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lessons = append(p.lessons, lesson{provider, model, ruleInput, real})
	p.Estimator.Learn(provider, model, ruleInput, real, at)
}

// A settled call teaches once, and only where a rule counted and the provider's
// count is known.
func TestSettledCallsTeachTheEstimator(t *testing.T) {
	r := newRig(t, plainPolicy)
	p := &pupil{Estimator: oneEstimator()}
	r.Broker.Estimator = p
	text := strings.Repeat("A budget is a promise. ", 100)
	reserve := func(model string) (string, quota.Tokens) {
		g := r.reserve(reservation.Ask{Account: "acme", LLM: &estimator.Call{Model: model, Prompt: text, MaxOutputTokens: new(quota.Tokens)}})
		return g.Reservation, g.Estimate.RuleInput
	}
	used := reservation.Usage{Use: &estimator.Use{Tokens: estimator.TokenClasses{Input: 300, CacheRead: 200, CacheWrite: 100, Output: 7}}}

	id, ruleInput := reserve("claude-sonnet-4-5")
	r.refund(id, used)
	r.refund(id, used) // replayed
	id, _ = reserve("gpt-4o-mini")
	r.refund(id, used)
	id, _ = reserve("claude-sonnet-4-5")
	r.refund(id, reservation.Usage{Amounts: quota.Amounts{quota.MeterTokens: 500}})
	id, _ = reserve("claude-sonnet-4-5")
	r.refund(id, reservation.Usage{Unused: true})

	want := lesson{"anthropic", "claude-sonnet-4-5", ruleInput, 600}
	if len(p.lessons) != 1 || p.lessons[0] != want {
		t.Errorf("the estimator was told %+v, want %+v once", p.lessons, want)
	}
}
