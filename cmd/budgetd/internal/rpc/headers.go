package rpc

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// maxHeaderInteger is the largest integer of a structured field, RFC 8941
// section 3.3.1.
const maxHeaderInteger quota.Amount = 999_999_999_999_999

// ShownLimit is what an answer says of one limit. Amounts are in the unit of the
// limit's meter.
type ShownLimit struct {
	Name      string
	Max       quota.Amount
	Remaining quota.Amount
	Window    time.Duration // 0: none
	ResetsAt  time.Time     // zero: nothing is to come back
	Now       time.Time     // of the engine, when it decided
}

// ShownRefusal is the limit that refused.
func ShownRefusal(refusal *reservation.RefusedLimit) ShownLimit {
	return ShownLimit{
		Name: refusal.Limit, Max: refusal.Max, Remaining: refusal.Remaining,
		Window: refusal.Window, ResetsAt: refusal.ResetsAt, Now: refusal.Now,
	}
}

func (l ShownLimit) set(header http.Header) {
	policy := fmt.Sprintf("%q;q=%d", l.Name, min(l.Max, maxHeaderInteger))
	if l.Window > 0 {
		policy += ";w=" + strconv.FormatInt(wholeSeconds(l.Window), 10)
	}
	left := fmt.Sprintf("%q;r=%d", l.Name, min(max(l.Remaining, 0), maxHeaderInteger))
	if !l.ResetsAt.IsZero() {
		left += ";t=" + strconv.FormatInt(wholeSeconds(l.ResetsAt.Sub(l.Now)), 10)
	}
	header.Set("RateLimit-Policy", policy)
	header.Set("RateLimit", left)
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// Tightest returns the limit of which the least share is left, among the holds that
// are wanted; of equal ones the first. ok is false when no level is known.
func Tightest(grant *reservation.Grant, wanted func(*reservation.HeldLimit) bool) (limit ShownLimit, ok bool) {
	if grant.Degraded {
		return ShownLimit{}, false
	}
	var least reservation.HeldLimit
	for _, hold := range grant.Holds {
		if !hold.LevelKnown || hold.Shadow || hold.Max <= 0 || !wanted(&hold) {
			continue
		}
		if !ok || lessShare(hold, least) {
			least, ok = hold, true
		}
	}
	return ShownLimit{
		Name: least.Limit, Max: least.Max, Remaining: least.Level.Remaining,
		Window: least.Window, ResetsAt: least.Level.ResetsAt, Now: grant.Now,
	}, ok
}

func anyHold(*reservation.HeldLimit) bool { return true }

// lessShare compares what is left of two limits, exactly: a's remaining/max <
// b's.
func lessShare(a, b reservation.HeldLimit) bool {
	return quota.CompareProducts(uint64(max(a.Level.Remaining, 0)), uint64(b.Max), uint64(max(b.Level.Remaining, 0)), uint64(a.Max)) < 0
}

// refusedHeaders are those that every refusal has.
func refusedHeaders(refusal *reservation.RefusedLimit, header http.Header) {
	header.Set("Budget-Limited-By", refusal.Limit)
	ShownRefusal(refusal).set(header)
}
