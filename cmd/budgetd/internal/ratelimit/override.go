package ratelimit

import (
	"fmt"
	"slices"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/quota"
)

// overrideName is the name of limits that a request brings along. No limit of a
// policy can have it: their names begin with a letter or a digit.
const overrideName = "_override"

// units are the lengths of the protocol's units. A month has 30 days and a year
// 365 in it, as in the reference server, github.com/envoyproxy/ratelimit.
var units = map[typev3.RateLimitUnit]time.Duration{
	typev3.RateLimitUnit_SECOND: time.Second,
	typev3.RateLimitUnit_MINUTE: time.Minute,
	typev3.RateLimitUnit_HOUR:   time.Hour,
	typev3.RateLimitUnit_DAY:    24 * time.Hour,
	typev3.RateLimitUnit_MONTH:  30 * 24 * time.Hour,
	typev3.RateLimitUnit_YEAR:   365 * 24 * time.Hour,
}

// maxOverridePeriod bounds unit times unit_multiplier.
const maxOverridePeriod = 365 * 24 * time.Hour

// readOverride returns the limit that a descriptor brings along, or nil. It is a
// bucket of its own on the descriptor's meter, one for each value of its
// entries, which has to grant beside the limits of the policy: a gateway may
// make less pass than the policy lets it, and never more.
func readOverride(at string, from *ratelimitv3.RateLimitDescriptor, d *descriptor) (*quota.Applied, error) {
	override := from.GetLimit()
	if override == nil {
		return nil, nil
	}
	fault := func(field, problem, bound string) (*quota.Applied, error) {
		return nil, rpc.Invalid(at+".limit"+field, problem, bound)
	}
	unit, known := units[override.GetUnit()]
	if !known {
		return fault(".unit", fmt.Sprintf("%d is no unit", override.GetUnit()), "SECOND, MINUTE, HOUR, DAY, MONTH or YEAR")
	}
	times := int64(1)
	if stated := override.GetUnitMultiplier(); stated != nil {
		times = int64(stated.GetValue())
	}
	switch {
	case times < 1 || times > int64(maxOverridePeriod/unit):
		return fault(".unit_multiplier", fmt.Sprintf("%d is out of bounds", times), fmt.Sprintf("1 to %d of this unit", int64(maxOverridePeriod/unit)))
	case override.GetRequestsPerUnit() < 1:
		return fault(".requests_per_unit", "0 would let nothing pass", "at least 1")
	case len(d.labels) > quota.MaxPer:
		return fault("", fmt.Sprintf("stands in a descriptor of %d entries", len(d.labels)), fmt.Sprintf("at most %d", quota.MaxPer))
	}
	limit := &quota.Limit{
		Name: overrideName, Meter: d.meter, Kind: quota.KindBucket,
		Rate:     quota.Rate{Amount: quota.Amount(override.GetRequestsPerUnit()), Every: time.Duration(times) * unit},
		WhenDown: quota.DownClosed,
	}
	if perMicros := limit.Bucket().PerMicros; perMicros > int64(quota.MaxEvery/time.Microsecond) {
		return fault("", "refills less often than once a day, or in steps that are not whole", fmt.Sprintf("requests_per_unit that comes to at least 1 every %s", quota.MaxEvery))
	}
	for name := range d.labels {
		limit.Per = append(limit.Per, name)
	}
	slices.Sort(limit.Per)
	return &quota.Applied{Limit: limit, ID: limit.ID(), Scope: limit.Scope(d.labels)}, nil
}
