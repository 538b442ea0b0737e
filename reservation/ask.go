package reservation

import (
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
)

// Ask is what a caller wants to do next: explicit amounts, a model call whose
// amounts are estimated, or both, where the explicit amounts win for the meters
// that they name. With neither it is one request that holds a slot.
type Ask struct {
	Account string
	Labels  map[string]string
	Key     string        // idempotency key, to MaxKeyText bytes; "" for none
	Amounts quota.Amounts // explicit amounts
	LLM     *estimator.Call
	// MinOutputTokens lets the broker grant less output than the call asks for, but
	// no less than this, for each choice: as much as every limit has left. Nil: all
	// or nothing. Only with LLM.
	MinOutputTokens *quota.Tokens `json:",omitempty"`

	// Parent is the reservation id of the envelope that the call is made in, of the
	// same account; "" for none. See docs/envelopes.md.
	Parent string `json:",omitempty"`

	Lease  *time.Duration // nil: the default lease
	DryRun bool
	// MaxWait is how long after now the reservation may start, 0 to
	// concurrency.MaxWait: see [ReserveRequest]. Where nothing but slots refuses it, the
	// call is held so long for one, and what is left bounds its start. Who may wait
	// waits for all that is asked, so that MinOutputTokens and holds by forecast have
	// no part in it. Nil or 0: it waits only where a limit is a leaky queue. It is no
	// part of the body that an idempotency key stands for: who repeats a call has less
	// of it left.
	MaxWait *time.Duration `json:"-"`

	// Priority is how much of limits that keep a share the call may use.
	Priority quota.Priority `json:",omitempty"`

	// APIKey is the name of the credential, the label "key" where Labels state
	// none; "" for none. It is no part of the body that an idempotency key stands
	// for: a call is repeated with a renewed credential too.
	APIKey string `json:"-"`
}

// Spend is an Ask whose usage is known already: it is charged at once.
type Spend struct {
	Account  string
	Labels   map[string]string
	Key      string
	Amounts  quota.Amounts
	Provider string // of Model; may be empty
	Model    string // prices Use; "" when Use is nil
	Use      *estimator.Use
	APIKey   string `json:"-"` // as Ask.APIKey

	Priority quota.Priority `json:",omitempty"` // as Ask.Priority

	// Extra are buckets that the call brings along: each has to grant beside the
	// policy's limits, in the same step, and none is a quota's or a pool's. Their
	// IDs are none of the policy's.
	Extra []quota.Applied `json:",omitempty"`
	// Views, where there are any, are what limits see of the call, in place of
	// Labels and Amounts: descriptions of it that contradict each other. A counter
	// that several of them meet takes the largest amount, once. Labels and Amounts
	// are then what reports and totals have. At most MaxViews; without Use.
	Views []View `json:",omitempty"`
	// Used says that it has been used already: no limit refuses it, and what a
	// limit had not left is an overrun, as of a Refund above its hold. It belongs
	// to a call that was counted when it began, so it is no request unless Amounts
	// state some. Without DryRun.
	Used bool `json:",omitempty"`
	// DryRun decides and charges nothing.
	DryRun bool `json:",omitempty"`
}

// MaxViews is how many views a Spend may have.
const MaxViews = 16

// View is one description of a call.
type View struct {
	Labels  map[string]string
	Amounts quota.Amounts   // of each meter at most what the Spend states
	Extra   []quota.Applied `json:",omitempty"` // as Spend.Extra, which is then empty
}

// ViewSet is a set of a Spend's views, by their indexes.
type ViewSet uint16

// Has says whether the view is in the set.
func (s ViewSet) Has(view int) bool { return s>>view&1 == 1 }

// Usage is what a call really used. At least one field is set, or Unused
// alone: the call was not made at all and everything is given back. Amounts win
// over what the use comes to. A meter that was held and is not reported
// counts as used in full.
type Usage struct {
	Unused        bool
	Amounts       quota.Amounts
	Use           *estimator.Use // tokens by class, other units, and how they were served
	Provider      string         // whose usage object ProviderUsage is
	ProviderUsage map[string]any // the provider's own usage object

	// SeenText is the text that was seen of an answer that was cut before its
	// provider told the output. It stands beside Use or ProviderUsage, which tell the
	// input, and is counted, and not kept: the output is at least as many tokens.
	SeenText string
}

// Decision answers an Ask: a grant, or a refusal with its reason.
type Decision struct {
	Grant   *Grant
	Refusal *RefusedLimit
}

// Grant is a reservation that the caller may start on only while State is
// StateHeld.
type Grant struct {
	Reservation  string        // the reservation id that Refund and Renew take; "" for a dry run
	StartAt      time.Time     // from when on the call may be made; zero when that is at once
	StartsIn     time.Duration // from the decision to StartAt, by the engine's clock; 0 when that has passed
	ExpiresAt    time.Time
	State        State
	Late         bool // with StateSettled: the Refund came after the lease had ended
	Released     bool // with StateSettled: closed as unused
	Replayed     bool // the idempotency key was known
	Degraded     bool // the engine did not answer; the limits' own rules granted
	PriceVersion string
	Holds        []HeldLimit
	Estimate     *estimator.Estimate
	MaxOutput    quota.Tokens  // output tokens of each choice that are granted; 0 without a model call
	Charged      quota.Amounts // Charge only
	Now          time.Time     // the engine's clock when it decided; zero when it did not

	// Shadow are the shadow limits that would have refused the call, in the order of
	// the holds. In a replay, Remaining, RetryAt, ResetsAt and Now are zero.
	Shadow []RefusedLimit
}

// HeldLimit is one hold as a caller sees it.
type HeldLimit struct {
	Limit  string // the limit's name
	Pool   string
	Scope  string
	Meter  quota.Meter
	Amount quota.Amount
	Max    quota.Amount  // as RefusedLimit.Max
	Window time.Duration // as RefusedLimit.Window
	Views  ViewSet       // of a Spend that has views, those that meet the counter; none in a replay
	// Level is the counter after the hold. Meaningless when LevelKnown is
	// false (a degraded grant; a replay of a closed reservation).
	Level      Level // of a Reserve: Remaining is less what is kept from calls like this one
	LevelKnown bool
	Shadow     bool // of a shadow limit: it counts and refuses nobody
}

// RefusedLimit is the strictest limit that refused.
type RefusedLimit struct {
	Reason    Reason
	Limit     string
	Pool      string
	Scope     string
	Meter     quota.Meter
	Kind      quota.Kind
	Views     ViewSet // as HeldLimit.Views
	Asked     quota.Amount
	Remaining quota.Amount
	Kept      quota.Amount  // what the limit keeps from calls of this priority; Remaining and what it is compared with are without it
	Sharing   int           // of a fair limit of a pool, where the account is ahead of its share: how many accounts use it; else 0
	Held      quota.Amount  // QuotaHeld only: what open reservations hold of the quota
	Max       quota.Amount  // capacity, slots or quota
	Window    time.Duration // bucket: time from empty to full, rounded up to the second; quota: length of the period; slots: 0
	RetryAt   time.Time     // zero: waiting does not help
	Spread    time.Duration // by how much RetryAt is later than the limit allows: see Config.RetryJitter
	ResetsAt  time.Time     // as Level.ResetsAt
	Now       time.Time     // the engine's clock, from which RetryAt was computed
	Ban       quota.Ban     // of the limit; the zero value: none

	// WaitBound says that the call would have waited for its start, at RetryAt, and a
	// limit does not let it. The zero value: that is not so.
	WaitBound WaitBound

	// Unbounded is the field in which the call could have bounded its output and did
	// not, so that Output, all that the model may generate, counted; "" when that is
	// not so, or says nothing of the limit.
	Unbounded string
	Output    quota.Tokens
}

// WaitBound is a limit by whose quota.Limit.MaxWait a call is not booked further ahead.
type WaitBound struct {
	Limit string // its name, a pool's or the account's own; "" for none
	Most  time.Duration
}

// Retryable says whether the same ask can pass later.
func (r *RefusedLimit) Retryable() bool { return !r.RetryAt.IsZero() }

// RetryAfter is how long to wait, rounded up to whole seconds and at least
// one; 0 when waiting does not help.
func (r *RefusedLimit) RetryAfter() time.Duration {
	if !r.Retryable() {
		return 0
	}
	return max((r.RetryAt.Sub(r.Now) + time.Second - 1).Truncate(time.Second), time.Second)
}

// Receipt is what a Refund did. Amounts are per meter, without weights.
type Receipt struct {
	Charged   quota.Amounts
	GivenBack quota.Amounts // held above charged
	Overrun   quota.Amounts // charged above held
	Late      bool
	Released  bool // closed as unused
	Replayed  bool // the same Refund was known
	ClosedAt  time.Time
	Holds     []HeldLimit // the counters afterwards, when the engine told them
}

// Story is what is known of one reservation.
type Story struct {
	Reservation  string
	Account      string
	Labels       map[string]string
	Parent       ID    // the envelope that it was made in; the zero ID: none
	State        State // StateUnknown: neither engine nor ledger remember it
	Minted       time.Time
	ExpiresAt    time.Time // zero when unknown
	Degraded     bool
	Holds        []HeldLimit
	PriceVersion string
	Receipt      *Receipt       // how it was closed; nil while held
	Posted       bool           // the ledger holds the closing
	Shadow       []RefusedLimit // as in a replayed Grant
}

// LimitStatus is one limit of an account as GetQuota shows it.
type LimitStatus struct {
	Limit   string
	Pool    string
	Scope   string
	Meter   quota.Meter
	Kind    quota.Kind
	Mode    quota.Mode   // in force
	Stated  quota.Mode   // what the policy states; another one where Pin holds it
	Pin     *quota.Pin   // what holds the mode; nil: nothing
	Max     quota.Amount // bucket capacity, slots, or the quota's amount
	Level   Level
	Rate    quota.Rate    // bucket
	Period  quota.Period  // quota
	Posted  quota.Amount  // quota: the ledger's own sum
	Soft    bool          // quota: it never refuses
	Alerts  []quota.Alert // quota: raised in this period, by percent
	KeepFor []KeptShare   // what is kept for priorities, lowest first
	Ban     quota.Ban     // the zero value: none; Level.BannedUntil is when one that is in force ends
	Fair    bool          // of a pool: its accounts share it; the Level says how many, and when this one's share is back
	Granted quota.Amount  // quota: what grants add to the limit's own amount; part of Max

	CountRefusals bool           // as quota.Limit.CountRefusals
	MaxWait       *time.Duration // as quota.Limit.MaxWait
}

// KeptShare is what a limit keeps for a priority and above.
type KeptShare struct {
	Priority quota.Priority
	Percent  int
	Kept     quota.Amount // what calls of the next lower priority must leave in all
}

// Overview is an account's limits.
type Overview struct {
	Account string
	Plan    string
	Limits  []LimitStatus
	// Totals is what the ledger holds for the account in its current calendar
	// month, per meter, whatever limits it has; nil with LedgerAway.
	Totals       quota.Amounts
	TotalsPeriod quota.Period
	Degraded     bool // the engine did not answer; levels are missing
	// LedgerAway: the ledger did not answer. Totals and what is posted are
	// missing, and so is all of a quota whose Level is not seeded.
	LedgerAway bool
}
