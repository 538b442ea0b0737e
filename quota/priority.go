package quota

import (
	"fmt"
	"slices"
	"strings"
)

// Priority is the class of a call: how much of a limit that keeps a share for
// others it may use. The zero value is the class of calls that state none.
type Priority int8

// The priorities, lowest first.
const (
	PriorityBatch       Priority = -1
	PriorityDefault     Priority = 0
	PriorityInteractive Priority = 1
	PriorityCritical    Priority = 2
)

// MaxKeepPercent is how much of a limit may be kept for higher priorities in all.
const MaxKeepPercent = 90

var priorityWords = []string{"batch", "default", "interactive", "critical"}

// PriorityWords are the words of the priorities, lowest first.
func PriorityWords() []string { return slices.Clone(priorityWords) }

// String returns the word of the priority.
func (p Priority) String() string {
	if p < PriorityBatch || p > PriorityCritical {
		return fmt.Sprintf("Priority(%d)", int8(p))
	}
	return priorityWords[p-PriorityBatch]
}

// ParsePriority reads the word of a priority; "" is PriorityDefault. The error
// names the words.
func ParsePriority(word string) (Priority, error) {
	if word == "" {
		return PriorityDefault, nil
	}
	if i := slices.Index(priorityWords, word); i >= 0 {
		return PriorityBatch + Priority(i), nil
	}
	return PriorityDefault, fmt.Errorf("%s is not a priority; write %s, or leave it out for default", quoteShort(word), strings.Join(priorityWords, ", "))
}

// Kept returns the part of the limit's own amount (capacity of a bucket, amount of
// a window or quota, slots) that a call of the priority must leave: the sum of the
// shares kept for higher ones, rounded up once to a whole unit. What grants add to
// a quota is not part of it.
func (l Limit) Kept(p Priority) Amount {
	percent := 0
	for above, share := range l.KeepFor {
		if above > p {
			percent += share
		}
	}
	if percent <= 0 {
		return 0
	}
	whole := l.own()
	// In two parts: a hundred times MaxAmount leaves 53 bits.
	return whole/100*Amount(percent) + (whole%100*Amount(percent)+99)/100
}

// own is the limit's own amount.
func (l Limit) own() Amount {
	switch {
	case l.Kind.IsWindow():
		return l.Rate.Amount
	case l.Kind.HasRate():
		if l.Burst == 0 {
			return l.Rate.Amount
		}
		return l.Burst
	}
	return l.Max
}

func (l Limit) validateKeepFor(f *faults) {
	if len(l.KeepFor) == 0 {
		return
	}
	if l.Soft {
		f.add("keep_for", "a soft quota refuses nobody, so it can keep nothing; leave one of the two out")
		return
	}
	sum := 0
	for _, p := range sortedPriorities(l.KeepFor) {
		percent := l.KeepFor[p]
		if p <= PriorityBatch || p > PriorityCritical {
			f.add("keep_for", "nothing is below batch to keep a share from; write default, interactive or critical")
			return
		}
		if percent < 1 || percent > MaxKeepPercent {
			f.add("keep_for", "%d%% for %s is not between 1%% and %d%%", percent, p, MaxKeepPercent)
			return
		}
		sum += percent
	}
	if sum > MaxKeepPercent {
		f.add("keep_for", "the shares add up to %d%%, at most %d%% may be kept; the shares of different priorities are beside each other", sum, MaxKeepPercent)
		return
	}
	if whole := l.own(); whole >= 1 && whole <= MaxAmount && l.Kept(PriorityBatch) >= whole {
		f.add("keep_for", "of %d units, %d%% rounded up is all, which leaves nothing for priorities below; raise the limit, or leave keep_for out", int64(whole), sum)
	}
}

// sortedPriorities are the priorities that something is kept for, lowest first.
func sortedPriorities(keep map[Priority]int) []Priority {
	all := make([]Priority, 0, len(keep))
	for p := range keep {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

// Keeps lists what the limit keeps, lowest priority first, as the plan language
// writes it: "interactive: 20%, critical: 5%"; "" for nothing.
func (l Limit) Keeps() string {
	var parts []string
	for _, p := range sortedPriorities(l.KeepFor) {
		parts = append(parts, fmt.Sprintf("%s: %d%%", p, l.KeepFor[p]))
	}
	return strings.Join(parts, ", ")
}
