package reservation

import (
	"time"

	"github.com/budgetd/budgetd/quota"
)

// Bounds of a plan of holds. The broker refuses an ask outside them before an
// engine sees it.
const (
	MaxHolds        = 64
	MaxTokenBytes   = 8 << 10
	MaxOutcomeBytes = 8 << 10
	MaxKeyBytes     = 256
)

// Counter names one counter of one limit: the place that a hold takes from.
type Counter struct {
	Pool  string // the pool whose limit it is; "" for a limit of the account itself
	Limit string // quota.Limit.ID
	Scope string // quota.Limit.Scope; "" for the whole account (or pool)
}

// Hold is what a reservation takes from one counter, with the limit's
// parameters at the time of asking: the engine keeps no policy.
type Hold struct {
	Counter
	Kind   quota.Kind
	Amount quota.Amount // 0 to quota.MaxAmount; 1 for slots. 0 takes nothing and is never refused, but a Refund may charge the counter

	Bucket quota.Bucket // KindBucket, KindGCRA, KindLeakyQueue
	Window quota.Window // kinds that count over a span of time; its Kind is the hold's
	Max    quota.Amount // KindSlots: slots; KindQuota: units a period
	Period quota.Period // KindQuota: the period of the reservation

	OnExpiry quota.ExpiryRule

	// Shadow: the limit refuses nobody. Where the hold does not fit and the call is
	// granted, it is missed: it takes 0. Only a Reserve looks at it.
	Shadow bool

	// Keep is what a Reserve must leave of the counter, for calls of higher
	// priority, 0 to MaxAmount: an amount above 0 fits iff Remaining - Keep covers
	// it. Nothing else looks at it, and no record keeps it.
	Keep quota.Amount

	// CountRefusals and Ban say what a refusal leaves behind: see refusals.go. Not of a
	// pool's counter. Only Reserve and Levels look at them, and no record keeps them.
	CountRefusals bool      // a bucket, a GCRA or a window
	Ban           quota.Ban // any kind; spans are whole microseconds. The zero value: none
	// Fair has the accounts of a pool share the counter: see [quota.FairShare]. An
	// account that is ahead of its share must leave the reserve beside Keep, and is
	// given no start ahead: it can take now or not. Only KindBucket and KindGCRA of a
	// pool. A Reserve and Levels look at it; a record keeps how many accounts
	// shared the counter when it took, by which its closing is corrected, and what
	// is brought back after a loss counts in no share.
	Fair bool

	// Risk is how much less than its maximum a hold by forecast takes, in the
	// counter's open sum while the reservation is held: see [Output]. KindBucket
	// only, 0 to MaxAmount less Amount. Only Restore takes it as given; a Reserve
	// has it chosen.
	Risk quota.Amount
}

// State is where a reservation stands.
type State uint8

// The states that an engine keeps.
const (
	StateUnknown State = 0 // the engine has no record
	StateHeld    State = 1
	StateExpired State = 2
	StateSettled State = 3 // refunded or charged; Late says whether after the lease had ended
)

// Level is what a counter shows.
type Level struct {
	// Remaining is what a call could still take now: the bucket's level
	// (negative while it is in debt), what is left of a window or of the quota
	// (negative when overrun), free slots, or what a queue could still accept. While
	// a limit with a rate has given a start that is ahead, nothing can be taken now:
	// it is 0, or negative as it will be then.
	Remaining quota.Amount
	// ResetsAt is when the bucket is full again, nothing is counted in the window
	// any more, the earliest lease among the holders of slots ends, or the quota's
	// period ends; not before a start that is ahead. Zero when a bucket is full, a window has counted nothing or no
	// slot is taken.
	ResetsAt time.Time
	// Seeded says that a quota's counter was seeded from the ledger in this
	// incarnation of the engine. True for other kinds. When it is false, Used
	// and Remaining say nothing.
	Seeded   bool
	Used     quota.Amount // quota: posted in the ledger, as far as the engine knows; else 0
	Held     quota.Amount // quota: open holds; slots: slots taken; else 0
	Unposted quota.Amount // quota: settled here and not yet confirmed by the ledger; else 0
	Version  int64        // quota: the ledger's version of Used, 0 unless Seeded; else 0
	Risk     quota.Amount // bucket: open sum of what holds by forecast take less than their maximum; else 0

	// BannedUntil is when the counter's ban ends; zero when there is none now, or the
	// hold by which it is looked at has no Ban.
	BannedUntil time.Time
	// Of a Fair hold, in what a Reserve and Levels answer: how many accounts use the
	// counter, and until when the account is ahead of its share; zero when it is not.
	Sharing int
	ShareAt time.Time
}
