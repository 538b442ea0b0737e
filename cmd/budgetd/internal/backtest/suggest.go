package backtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

// Bounds of a search. Every candidate is a broker and an engine of its own.
const (
	MaxSuggested = 64 // limits whose amounts are searched
	atOnce       = 24 // candidates that one pass over the calls tries
)

// Search finds the smallest limits that refuse under a share of the calls.
type Search struct {
	// Document is the policy whose limits are searched. Whole is the same with
	// the accounts that only the calls name.
	Document, Whole *policyfile.Document
	Name            string // of the policy
	// Share is the bound, in parts of a million, 0 to 1,000,000: less than that
	// is refused. 0: nothing is.
	Share   int64
	Options Options // Plans and Watch apart
	// Open begins one more reading of the calls. what says which, for people.
	Open func(ctx context.Context, what string) (trace.Calls, func() error, error)
}

// Suggestion is what a Search found.
type Suggestion struct {
	Share    int64            `json:"shareMillionths"`
	Limits   []SuggestedLimit `json:"limits"`
	Raised   int              `json:"raisedSteps"` // of each limit, for all of them together
	Together Sum              `json:"togetherRefused"`
	Passes   int              `json:"passes"` // over the calls
	Notes    []string         `json:"notes,omitempty"`
	Policy   string           `json:"policy"` // with the limits of Together, as YAML

	// Document is Policy, and Whole the same with the accounts of Search.Whole.
	Document, Whole *policyfile.Document `json:"-"`
}

// SuggestedLimit is what was found for one limit.
type SuggestedLimit struct {
	Limit   string      `json:"limit"`
	Plan    string      `json:"plan,omitempty"`
	Account string      `json:"account,omitempty"` // whose override it is
	Pool    string      `json:"pool,omitempty"`
	Meter   quota.Meter `json:"meter"`

	Now      quota.Limit  `json:"-"`
	Stated   quota.Amount `json:"stated"`          // the amount now
	Alone    quota.Amount `json:"alone,omitempty"` // the smallest, were it the only limit; 0: none was found
	Refused  Sum          `json:"aloneRefused"`
	Less     quota.Amount `json:"less,omitempty"` // one step less than Alone; 0: there is none
	LessSum  Sum          `json:"lessRefused"`
	Together quota.Amount `json:"together"` // the smallest, among all the others
	Note     string       `json:"note,omitempty"`
}

// With is the limit with another amount.
func (s *SuggestedLimit) With(amount quota.Amount) quota.Limit { return withAmount(s.Now, amount) }

// under says whether so many refusals of so many calls are allowed.
func (s *Search) under(o *Outcome) bool {
	refused, offered := uint64(o.Refused.Requests), uint64(o.Refused.Requests+o.Admitted.Requests)
	if s.Share == 0 || refused == 0 {
		return refused == 0
	}
	return quota.CompareProducts(refused, million, offered, uint64(s.Share)) < 0
}

// hunt is the search of one amount. All steps up to low refuse too much, as far
// as they were tried, and high does not.
type hunt struct {
	aim       aim
	low, high int // steps; -1 and steps at the start
	steps     int
	outcomes  map[int]Sum // refused, by step
	rises     bool        // a step that is higher than high refuses too much
}

// points are up to n steps between low and high, evenly.
func (h *hunt) points(n int) []int {
	var points []int
	span := h.high - h.low
	for i := 1; i <= n; i++ {
		step := h.low + span*i/(n+1)
		if step > h.low && step < h.high && (len(points) == 0 || step > points[len(points)-1]) {
			points = append(points, step)
		}
	}
	if len(points) == 0 && span > 1 {
		points = []int{h.low + span/2}
	}
	return points
}

// learn takes the outcome of a step, of several in ascending order.
func (h *hunt) learn(step int, refused Sum, under bool) {
	h.outcomes[step] = refused
	switch {
	case under && step < h.high:
		h.high = step
	case !under && step < h.high && step > h.low:
		h.low = step
	case !under && step > h.high:
		h.rises = true
	}
}

// Run searches. Two runs over the same calls find the same.
func (s *Search) Run(ctx context.Context) (*Suggestion, error) {
	aims := aimsOf(s.Whole)
	if len(aims) == 0 {
		return nil, errors.New("the policy has no limit that could refuse a call")
	}
	if len(aims) > MaxSuggested {
		return nil, fmt.Errorf("the policy has %d limits; leave some out, at most %d are searched", len(aims), MaxSuggested)
	}
	found := &Suggestion{Share: s.Share}
	hunts := make([]hunt, len(aims))
	for i, a := range aims {
		steps := a.steps()
		hunts[i] = hunt{aim: a, low: -1, high: steps, steps: steps, outcomes: map[int]Sum{}}
	}
	if err := s.alone(ctx, found, hunts); err != nil {
		return nil, err
	}
	for i := range hunts {
		found.Limits = append(found.Limits, s.found(&hunts[i]))
	}
	if err := s.together(ctx, found, hunts); err != nil {
		return nil, err
	}
	text, err := policyfile.Marshal(found.Document)
	found.Policy = string(text)
	return found, err
}

// alone finds each limit's amount, were it the only one.
func (s *Search) alone(ctx context.Context, found *Suggestion, hunts []hunt) error {
	type try struct {
		hunt *hunt
		step int
	}
	for {
		open := 0
		for i := range hunts {
			if hunts[i].high-hunts[i].low > 1 {
				open++
			}
		}
		if open == 0 {
			return nil
		}
		var tries []try
		var documents []*policyfile.Document
		for i := range hunts {
			h := &hunts[i]
			if len(tries) >= atOnce {
				break // it waits for the next pass
			}
			for _, step := range h.points(max(1, atOnce/open)) {
				amount, _ := stepAmount(step)
				tries = append(tries, try{h, step})
				documents = append(documents, h.aim.alone(s.Whole, amount))
			}
		}
		outcomes, err := s.pass(ctx, found, documents)
		if err != nil {
			return err
		}
		for i, t := range tries {
			t.hunt.learn(t.step, outcomes[i].Refused, s.under(&outcomes[i]))
		}
	}
}

// found says what the search of one limit came to.
func (s *Search) found(h *hunt) SuggestedLimit {
	l := SuggestedLimit{Limit: h.aim.limit.Name, Meter: h.aim.limit.Meter, Now: h.aim.limit, Stated: amountOf(&h.aim.limit)}
	switch a := &h.aim; {
	case a.plan >= 0:
		l.Plan = s.Whole.Plans[a.plan].Name
	case a.account >= 0:
		l.Account = s.Whole.Accounts[a.account].Name
	default:
		l.Pool = s.Whole.Pools[a.pool].Name
	}
	switch {
	case h.high == h.steps:
		l.Note = "no amount refuses so few; it stays as it is"
		return l
	case h.high == 0 && h.outcomes[0].Requests == 0:
		l.Note = "no call takes more than 1 of it; it stays as it is"
		return l
	}
	l.Alone, _ = stepAmount(h.high)
	l.Refused = h.outcomes[h.high]
	if h.high > 0 {
		l.Less, _ = stepAmount(h.high - 1)
		l.LessSum = h.outcomes[h.high-1]
	}
	if h.rises {
		l.Note = "refusals do not fall with each step: some larger amount refuses too much, and there may be a smaller one that does not"
	}
	return l
}

// together raises all limits by as many steps as it takes for them to refuse so
// few together.
func (s *Search) together(ctx context.Context, found *Suggestion, hunts []hunt) error {
	most := 0
	for i := range hunts {
		if found.Limits[i].Alone > 0 {
			most = max(most, hunts[i].steps-hunts[i].high)
		}
	}
	raise := hunt{low: -1, high: most, steps: most, outcomes: map[int]Sum{}}
	amount := func(i, raised int) quota.Amount {
		h := &hunts[i]
		if found.Limits[i].Alone == 0 {
			return found.Limits[i].Stated
		}
		amount, _ := stepAmount(min(h.high+raised, h.steps-1))
		return amount
	}
	raisedBy := func(d *policyfile.Document, raised int) *policyfile.Document {
		for i := range hunts {
			if h := &hunts[i]; found.Limits[i].Alone > 0 {
				d = h.aim.set(d, amount(i, raised))
			}
		}
		return d
	}
	points := []int{0, 1, 2, 3, 5, 8, 13, 21} // most need few
	for raise.high-raise.low > 1 {
		var documents []*policyfile.Document
		kept := points[:0:0]
		for _, step := range points {
			if step > raise.low && step < raise.high {
				kept = append(kept, step)
				documents = append(documents, raisedBy(s.Whole, step))
			}
		}
		outcomes, err := s.pass(ctx, found, documents)
		if err != nil {
			return err
		}
		for i, step := range kept {
			raise.learn(step, outcomes[i].Refused, s.under(&outcomes[i]))
		}
		points = raise.points(atOnce / 3)
	}
	found.Raised = raise.high
	switch {
	case most == 0: // every limit stays
	case raise.high == most:
		found.Raised = 0
		found.Notes = append(found.Notes, "all limits together refuse more than that at any amounts: a limit that stays as it is refuses too much by itself")
	case raise.high > 0:
		found.Notes = append(found.Notes, fmt.Sprintf("together the limits refuse more than each alone, so each is %d steps above what it needs alone", raise.high))
	}
	if raise.rises {
		found.Notes = append(found.Notes, "refusals do not fall with each step that all limits are raised by: there may be smaller ones")
	}
	found.Together = raise.outcomes[found.Raised]
	for i := range hunts {
		found.Limits[i].Together = amount(i, found.Raised)
	}
	found.Whole, found.Document = raisedBy(s.Whole, found.Raised), s.suggested(found)
	return nil
}

// suggested is the policy as it was stated, with what was found.
func (s *Search) suggested(found *Suggestion) *policyfile.Document {
	d := s.Document
	for i, a := range aimsOf(s.Document) { // the same limits: accounts of the calls have none of their own
		if l := &found.Limits[i]; l.Alone > 0 {
			d = a.set(d, l.Together)
		}
	}
	return d
}

// pass takes the calls through documents.
func (s *Search) pass(ctx context.Context, found *Suggestion, documents []*policyfile.Document) (_ []Outcome, err error) {
	found.Passes++
	o := s.Options
	o.By, o.Watch, o.alike, o.Plans = nil, nil, true, nil
	for _, document := range documents {
		policy, err := document.Policy(1)
		if err != nil {
			return nil, fmt.Errorf("%s, with another amount: %w", s.Name, err)
		}
		o.Plans = append(o.Plans, Plan{Name: s.Name, Policy: policy})
	}
	calls, done, err := s.Open(ctx, fmt.Sprintf("searching, pass %d", found.Passes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	report, err := Run(ctx, calls, o)
	if err != nil {
		return nil, err
	}
	return report.Plans, nil
}
