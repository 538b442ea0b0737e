package backtest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Sum adds up calls: what they used, whether they were admitted or refused.
type Sum struct {
	Requests int64         `json:"requests"`
	Tokens   int64         `json:"tokens"`
	Cost     quota.NanoUSD `json:"costNanoUsd"` // of the calls whose cost is known
}

func (s *Sum) add(tokens int64, cost quota.NanoUSD) error {
	sum := Sum{s.Requests + 1, s.Tokens + tokens, s.Cost + cost}
	if sum.Tokens < s.Tokens || sum.Cost < s.Cost {
		return fmt.Errorf("what the calls used: %w", quota.ErrOverflow)
	}
	*s = sum
	return nil
}

// LimitRefusals are the calls that one limit refused: the strictest, where
// several would have.
type LimitRefusals struct {
	Limit   string `json:"limit"`
	Pool    string `json:"pool,omitempty"`
	Reason  string `json:"reason"`
	Refused Sum    `json:"refused"`
}

// Group are the calls with one value of a label, or of one account.
type Group struct {
	Name    string `json:"name"`
	Offered Sum    `json:"offered"`
	Refused Sum    `json:"refused"`
}

// Others names what is beyond the groups that are told apart.
const Others = "(others)"

// Grouping are the groups of a label, or of the account.
type Grouping struct {
	By     string  `json:"by"`
	Groups []Group `json:"groups"` // most refused requests first
}

// maxGroups bounds the groups that are told apart, per label.
const maxGroups = 10_000

type limitKey struct {
	pool, limit string
	reason      reservation.Reason
}

// tally adds up what became of the calls under one plan.
type tally struct {
	offered, admitted, refused Sum
	limits                     map[limitKey]*Sum
	by                         []string // "account", and labels
	groups                     []map[string]*Group
	timeline                   timeline
	first, last                time.Time // of the refusals
	delayed                    int64     // admitted calls that start later than they come
	longest                    time.Duration
}

func newTally(labels []string) *tally {
	t := &tally{limits: map[limitKey]*Sum{}, by: append([]string{quota.LabelAccount}, labels...)}
	for range t.by {
		t.groups = append(t.groups, map[string]*Group{})
	}
	return t
}

// decided adds a call. refusal is nil when it was admitted.
func (t *tally) decided(c *trace.Call, tokens int64, cost quota.NanoUSD, refusal *reservation.RefusedLimit) error {
	slice := t.timeline.at(c.At)
	sums := append(make([]*Sum, 0, 16), &t.offered, &t.admitted, &slice.Offered)
	if refusal != nil {
		sums[1] = &t.refused
		key := limitKey{refusal.Pool, refusal.Limit, refusal.Reason}
		if t.limits[key] == nil {
			t.limits[key] = &Sum{}
		}
		sums = append(sums, t.limits[key], &slice.Refused)
		if t.first.IsZero() {
			t.first = c.At
		}
		t.last = c.At
	}
	for i, by := range t.by {
		g := t.group(i, valueOf(c, by))
		sums = append(sums, &g.Offered)
		if refusal != nil {
			sums = append(sums, &g.Refused)
		}
	}
	for _, sum := range sums {
		if err := sum.add(tokens, cost); err != nil {
			return err
		}
	}
	return nil
}

// waits adds an admitted call that starts so much later than it comes.
func (t *tally) waits(wait time.Duration) {
	t.delayed++
	t.longest = max(t.longest, wait)
}

func (t *tally) group(i int, name string) *Group {
	groups := t.groups[i]
	g := groups[name]
	if g == nil && len(groups) >= maxGroups {
		name = Others
		g = groups[name]
	}
	if g == nil {
		g = &Group{Name: name}
		groups[name] = g
	}
	return g
}

// valueOf is what a call has for a label, "" where it has none.
func valueOf(c *trace.Call, by string) string {
	if by == quota.LabelAccount {
		return c.Account
	}
	if value, stated := c.Labels[by]; stated {
		return value
	}
	switch by {
	case labelModel:
		return c.Model
	case labelProvider:
		return c.Provider
	}
	return ""
}

func (t *tally) limitRefusals() []LimitRefusals {
	list := make([]LimitRefusals, 0, len(t.limits))
	for key, sum := range t.limits {
		list = append(list, LimitRefusals{Limit: key.limit, Pool: key.pool, Reason: key.reason.String(), Refused: *sum})
	}
	slices.SortFunc(list, func(a, b LimitRefusals) int {
		return cmp.Or(-cmp.Compare(a.Refused.Requests, b.Refused.Requests), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

func (t *tally) groupings() []Grouping {
	list := make([]Grouping, len(t.by))
	for i, by := range t.by {
		list[i] = Grouping{By: by, Groups: make([]Group, 0, len(t.groups[i]))}
		for _, g := range t.groups[i] {
			list[i].Groups = append(list[i].Groups, *g)
		}
		slices.SortFunc(list[i].Groups, func(a, b Group) int {
			return cmp.Or(-cmp.Compare(a.Refused.Requests, b.Refused.Requests), -cmp.Compare(a.Offered.Requests, b.Offered.Requests), cmp.Compare(a.Name, b.Name))
		})
	}
	return list
}
