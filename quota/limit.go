package quota

import (
	"maps"
	"slices"
	"time"
)

// Kind is the rule of a limit.
type Kind uint8

// The kinds of limit. Their numbers are part of the stored layout.
const (
	KindBucket Kind = 1 // weighted token bucket: Rate and Burst
	KindSlots  Kind = 2 // calls in flight: Max
	KindQuota  Kind = 3 // amount a calendar period: Max and Period

	KindGCRA           Kind = 4 // generic cell rate algorithm: Rate and Burst
	KindFixedWindow    Kind = 5 // Rate.Amount in each span of Rate.Every
	KindSlidingCounter Kind = 6 // Rate.Amount in Rate.Every, estimated from two spans
	KindSlidingLog     Kind = 7 // Rate.Amount in any span of Rate.Every
	KindLeakyQueue     Kind = 8 // accepts and delays: Rate, and Burst units that may wait; see [Queue]
)

// algorithms are the kinds that state a rate, by the word of the plan language.
var algorithms = map[string]Kind{
	"token_bucket":   KindBucket,
	"gcra":           KindGCRA,
	"fixed_window":   KindFixedWindow,
	"sliding_window": KindSlidingCounter,
	"sliding_log":    KindSlidingLog,
	"leaky_queue":    KindLeakyQueue,
}

// Algorithms returns the words of the plan language for the kinds that state a rate,
// sorted.
func Algorithms() []string { return slices.Sorted(maps.Keys(algorithms)) }

// KindOfAlgorithm returns the kind of one of the words of [Algorithms], 0 for any other.
func KindOfAlgorithm(word string) Kind { return algorithms[word] }

// BurstWord returns the word of the plan language for the limit's Burst.
func (l Limit) BurstWord() string {
	if l.Kind == KindLeakyQueue {
		return "queue"
	}
	return "burst"
}

// Algorithm returns the word of a kind that states a rate, "" for the others.
func (k Kind) Algorithm() string {
	for word, kind := range algorithms {
		if kind == k {
			return word
		}
	}
	return ""
}

// HasRate says that limits of the kind state a rate.
func (k Kind) HasRate() bool { return k.IsLevel() || k.IsWindow() }

// IsLevel says that a limit of the kind states a rate and a capacity: see [Bucket].
func (k Kind) IsLevel() bool { return k == KindBucket || k == KindGCRA || k == KindLeakyQueue }

// IsWindow says that a limit of the kind counts over a span of time: see [Window].
func (k Kind) IsWindow() bool { return k >= KindFixedWindow && k <= KindSlidingLog }

// DownRule says what a limit answers while its engine can't be asked.
type DownRule string

// The rules for an engine that does not answer.
const (
	DownClosed DownRule = "closed" // Reserve answers unavailable (the default)
	DownOpen   DownRule = "open"   // Reserve grants and says degraded
)

// ExpiryRule says what happens to a limit's hold when the lease ends without
// a Refund.
type ExpiryRule string

// The rules for a hold whose lease ended.
const (
	ExpiryGiveBack ExpiryRule = "give_back" // the hold returns (the default)
	ExpiryCharge   ExpiryRule = "charge"    // the hold counts as used
)

// HoldRule says what a limit holds for the output of a model call until it is
// known.
type HoldRule string

// The rules for what is held.
const (
	HoldWorstCase HoldRule = "worst_case" // the caller's maximum (the default)
	HoldForecast  HoldRule = "forecast"   // what such calls were seen to use, within Tolerance
)

// Mode says whether a limit refuses.
type Mode string

// The modes of a limit. A policy keeps "" for ModeEnforce, which is the default.
const (
	ModeEnforce Mode = "enforce"
	ModeShadow  Mode = "shadow" // it counts as if enforced, and refuses nobody
	ModeOff     Mode = "off"    // as if there were no such limit; its counters go on without it
)

// Word is the mode as the plan language has it.
func (m Mode) Word() string {
	if m == "" {
		return string(ModeEnforce)
	}
	return string(m)
}

// ParseMode reads a mode's word.
func ParseMode(word string) (Mode, bool) {
	switch mode := Mode(word); mode {
	case ModeEnforce:
		return "", true
	case ModeShadow, ModeOff:
		return mode, true
	}
	return "", false
}

// Rate is how fast a bucket refills, or what a window admits: Amount units every
// Every.
type Rate struct {
	Amount Amount        // units, 1 to MaxAmount
	Every  time.Duration // 1 ms to 24 h, whole microseconds
}

// Limit is one rule over one meter, as a plan or a pool states it.
type Limit struct {
	Name  string // unique in its plan or pool; [a-z0-9][a-z0-9_-]{0,62}
	Meter Meter
	Kind  Kind

	Rate Rate // kinds with a rate
	// Burst is the capacity of KindBucket and KindGCRA, and how much may wait in a
	// KindLeakyQueue: units, 1 to MaxAmount; Rate.Amount unless stated.
	Burst Amount

	FirstUse bool // KindFixedWindow: spans begin with the first call, not at multiples of Rate.Every

	Max    Amount     // KindSlots: slots; KindQuota: units a period; 1 to MaxAmount
	Period PeriodUnit // KindQuota

	Per   []string            // labels that split the limit into counters, at most MaxPer; a policy keeps them sorted and without "account"
	Match map[string][]string // label -> accepted values; all labels must match, any value may; a trailing * matches a prefix
	Costs []CostRule          // weights by label, first match wins; empty: 1

	Mode Mode

	WhenDown DownRule
	OnExpiry ExpiryRule

	Hold HoldRule // forecast: KindBucket over tokens, output_tokens or cost

	// Tolerance is how much all forecasts that are open together may be short of
	// their callers' maxima, in each counter: 1 to MaxAmount with HoldForecast, else
	// 0. In any span T at most Burst + Rate*T + Tolerance pass.
	Tolerance Amount

	// KeepFor is what percent of the limit only calls of a priority and above may
	// take: 1 to MaxKeepPercent each and in all. See Kept.
	KeepFor map[Priority]int

	// CountRefusals: a call that is refused, by whatever limit, takes from this one as
	// if it were admitted, as far as there is something left, and nothing gives it
	// back. Kinds with a rate but KindLeakyQueue.
	CountRefusals bool

	// Ban shuts each counter of the limit for a while after too many refusals by it. Of
	// a soft quota there is none.
	Ban Ban
	// MaxWait is the longest that a call which meets the limit, and asks something of
	// it, may be booked ahead, whatever it says itself and whatever limit delays it: 0
	// to MaxWait, whole milliseconds. At 0 it starts at once or not at all; nil bounds
	// nothing. Kinds with a rate but KindLeakyQueue. In shadow it bounds nothing.
	MaxWait *time.Duration

	// Fair has the accounts of a pool share the limit: KindBucket and KindGCRA of a
	// pool, whose capacity is at least MinFairCapacity. See FairShare.
	Fair bool

	Soft    bool  // KindQuota: never refuses; it counts and alerts
	AlertAt []int // KindQuota: percents of the amount at which to alert, 1 to 1000, ascending, at most MaxAlerts
}

// CostRule multiplies what a call takes from a limit when the call's labels
// match: a read costs 1 point, a write 5.
type CostRule struct {
	Match  map[string][]string // as Limit.Match
	Weight Amount              // factor, 1 to 1,000,000
}

// Plan is a named list of limits, in the order in which they were stated.
type Plan struct {
	Name   string
	Limits []Limit
}

// Pool is one limit shared by every account whose calls match it.
type Pool struct {
	Name  string
	Limit Limit // Name equals the pool's; any kind but KindQuota
}

// Account is who is billed.
type Account struct {
	Name      string // 1 to 128 bytes of [A-Za-z0-9._:@-], starting with a letter or digit
	Plan      string
	TimeZone  string  // IANA name; "UTC" unless stated
	AnchorDay int     // day of the month on which months begin, 1 to 31; 1 unless stated
	Overrides []Limit // replace the plan's limits of the same name, or add to them
	Grants    []Grant // add to quotas for a while, at most MaxGrants
}
