package family

import (
	"math"
	"sync"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// The learner's figures are choices of this project: they trade tokens that are
// held for nothing against calls that are counted too low.
const (
	// LearnFrom is the least input, by the rule's ceiling, of a call that is
	// learned from and whose ceiling is then lowered. Below it the frame of the
	// conversation weighs more than the text.
	LearnFrom quota.Tokens = 256

	// enough is how many calls, decayed, must be known before a ceiling is
	// lowered: the fewest for which the rank of the quantile exists.
	enough = 200

	// missed is the share of calls, in thousandths, that may be above the
	// quantile of real / ceiling that is taken.
	missed = 5

	// headroom is put on what was seen.
	headroom = 1.05

	// LeastFactor and MostFactor bound what is learned: whatever calls report,
	// a ceiling is no less than half of the rule's, and no more than four times.
	LeastFactor = 0.5
	MostFactor  = 4.0

	// halfLife is the time in which what was seen loses half of its weight.
	halfLife = 7 * 24 * time.Hour

	// raisedHalfLife is the time in which a ceiling that was raised after it had
	// been too low comes half way down again.
	raisedHalfLife = 24 * time.Hour

	// MaxModels bounds the models that are remembered. Of more, those that were
	// heard of longest ago are forgotten: callers can invent names.
	MaxModels = 1024
)

// The ratios of real to ceiling are kept in buckets that each are 1 percent
// wider than the one below, from leastRatio up.
const (
	leastRatio = 0.05
	buckets    = 441 // up to MostFactor
)

// bucketGrowth is the logarithm of the growth from bucket to bucket.
var bucketGrowth = math.Log(1.01)

// bucketOf returns the lowest bucket whose upper edge is not below the ratio.
func bucketOf(ratio float64) int {
	return min(max(int(math.Ceil(math.Log(ratio/leastRatio)/bucketGrowth)), 0), buckets-1)
}

func upperEdge(bucket int) float64 {
	return leastRatio * math.Exp(float64(bucket)*bucketGrowth)
}

// Learner learns, per model, how real counts compare with the rule's ceilings.
// It knows models and numbers only: no text and no account. Memory is bounded,
// 4 kB a model. It is safe for concurrent use; the zero value is ready.
type Learner struct {
	mu     sync.Mutex
	models map[string]*seen
}

// seen is what is known of one model.
type seen struct {
	weights [buckets]float64 // of calls, by their ratio
	total   float64
	sum     float64   // of ratios, by weight
	at      time.Time // to which the weights are decayed

	raised   float64 // a factor that an under-count called for; 0 for none
	raisedAt time.Time
}

// Observe tells of a settled call: the model, the ceiling of the input by the
// rule as it is stated, and what the provider counted. Calls below [LearnFrom]
// say nothing, nor do counts that are not positive.
func (l *Learner) Observe(model string, ceiling, real quota.Tokens, at time.Time) {
	if ceiling < LearnFrom || real <= 0 {
		return
	}
	ratio := min(float64(real)/float64(ceiling), MostFactor/headroom)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.models[model]
	if s == nil {
		if l.models == nil {
			l.models = map[string]*seen{}
		}
		l.makeRoom()
		s = &seen{at: at}
		l.models[model] = s
	}
	if now := s.factor(at); ratio > now {
		s.raised, s.raisedAt = ratio*headroom, at
	}
	s.decay(at)
	s.weights[bucketOf(ratio)]++
	s.total++
	s.sum += ratio
}

// makeRoom forgets the model that was heard of longest ago when there are too
// many.
func (l *Learner) makeRoom() {
	if len(l.models) < MaxModels {
		return
	}
	var oldest string
	var since time.Time
	for model, s := range l.models {
		if since.IsZero() || s.at.Before(since) {
			oldest, since = model, s.at
		}
	}
	delete(l.models, oldest)
}

// Learned is what is known of a model: the ceiling of a call is Most times the
// rule's, and Mean times it is likely.
type Learned struct {
	Most float64 // LeastFactor to MostFactor
	Mean float64 // 0 to Most
}

// Of returns what is known of a model at an instant. It is not ok where there is
// not enough: the rule stands as it is.
func (l *Learner) Of(model string, at time.Time) (learned Learned, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.models[model]
	if s == nil {
		return Learned{}, false
	}
	factor := s.factor(at)
	if factor == 1 {
		return Learned{}, false
	}
	return Learned{Most: factor, Mean: min(s.sum/s.total, factor)}, true
}

// factor is what the rule's ceiling is to be multiplied by: the quantile of what
// was seen, with headroom, or 1 as long as too little was seen; more after an
// under-count, at once.
func (s *seen) factor(at time.Time) float64 {
	factor := 1.0
	if quantile, ok := s.quantile(at); ok {
		factor = max(quantile*headroom, LeastFactor)
		if quantile <= 1.01 { // the upper edge of the bucket of 1
			factor = min(factor, 1) // above the rule only where the rule was too low
		}
	}
	if s.raised > factor {
		age := max(at.Sub(s.raisedAt), 0)
		factor += (s.raised - factor) * math.Exp2(-age.Hours()/raisedHalfLife.Hours())
	}
	return min(factor, MostFactor)
}

// quantile returns the ratio that all but a share of the calls stayed below: the
// conformal rank, ceil((n + 1) x 0.995), of n calls.
func (s *seen) quantile(at time.Time) (float64, bool) {
	scale := decayed(at.Sub(s.at))
	n := s.total * scale
	if n < enough {
		return 0, false
	}
	above := n - math.Ceil((n+1)*(1000-missed)/1000) // of weight, may be higher
	weight := 0.0
	for i := buckets - 1; i >= 0; i-- {
		if weight += s.weights[i] * scale; weight > above {
			return upperEdge(i), true
		}
	}
	return upperEdge(0), true
}

// decay brings the weights to an instant. One that is before does nothing.
func (s *seen) decay(at time.Time) {
	age := at.Sub(s.at)
	if age < halfLife/1000 {
		return // too little to tell; the age adds up
	}
	scale := decayed(age)
	for i := range s.weights {
		s.weights[i] *= scale
	}
	s.total *= scale
	s.sum *= scale
	s.at = at
}

func decayed(age time.Duration) float64 {
	return math.Exp2(-max(age, 0).Hours() / halfLife.Hours())
}
