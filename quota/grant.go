package quota

import "time"

// Bounds of an account's grants and of a quota's alerts.
const (
	MaxGrants        = 256
	MaxGrantPriority = 100
	MaxAlerts        = 16
)

// Grant adds to what an account's quota allows, for a while: a top-up, a
// promotion, a goodwill credit. What one period leaves of it is there in the
// next, until it expires.
//
// A quota's use is covered in this order: grants of a negative priority, then
// the limit's own amount, then the other grants; among grants the lower
// priority, then the earlier end, then the name.
type Grant struct {
	Name     string // unique in its account; as Limit.Name
	Limit    string // name of the quota
	Scope    string // which counter, as Limit.Scope gives it; "" for the whole account
	Amount   Amount // 1 to MaxAmount
	From     time.Time
	Until    time.Time // zero: it does not expire
	Priority int       // -MaxGrantPriority to MaxGrantPriority
	Reason   string
}

// GrantUse is what a grant covered of one period's use, once the period or the
// grant has ended.
type GrantUse struct {
	Account string
	Grant   string // its name
	Period  string // Period.Key
	Covered Amount
}
