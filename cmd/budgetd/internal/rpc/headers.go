package rpc

import (
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// maxHeaderInteger is the largest integer of a structured field, RFC 8941
// section 3.3.1.
const maxHeaderInteger quota.Amount = 999_999_999_999_999

// shownLimit is what the headers say of one limit.
type shownLimit struct {
	name      string
	max       quota.Amount
	remaining quota.Amount
	window    time.Duration // 0: none
	resetsAt  time.Time     // zero: nothing is to come back
	now       time.Time
}

func (l shownLimit) set(header http.Header) {
	policy := fmt.Sprintf("%q;q=%d", l.name, min(l.max, maxHeaderInteger))
	if l.window > 0 {
		policy += ";w=" + strconv.FormatInt(wholeSeconds(l.window), 10)
	}
	left := fmt.Sprintf("%q;r=%d", l.name, min(max(l.remaining, 0), maxHeaderInteger))
	if !l.resetsAt.IsZero() {
		left += ";t=" + strconv.FormatInt(wholeSeconds(l.resetsAt.Sub(l.now)), 10)
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

// tightest returns the limit of which the least share is left; of equal ones the
// first. ok is false when no level is known.
func tightest(grant *reservation.Grant) (limit shownLimit, ok bool) {
	hold, ok := leastShare(grant, func(*reservation.HeldLimit) bool { return true })
	return shownLimit{
		name: hold.Limit, max: hold.Max, remaining: hold.Level.Remaining,
		window: hold.Window, resetsAt: hold.Level.ResetsAt, now: grant.Now,
	}, ok
}

// leastShare returns the hold, of those wanted, of whose limit the least share
// is left.
func leastShare(grant *reservation.Grant, wanted func(*reservation.HeldLimit) bool) (least reservation.HeldLimit, ok bool) {
	if grant.Degraded {
		return least, false
	}
	for _, hold := range grant.Holds {
		if !hold.LevelKnown || hold.Max <= 0 || !wanted(&hold) {
			continue
		}
		if !ok || lessShare(hold, least) {
			least, ok = hold, true
		}
	}
	return least, ok
}

// lessShare compares what is left of two limits, exactly: a's remaining/max <
// b's.
func lessShare(a, b reservation.HeldLimit) bool {
	high1, low1 := bits.Mul64(uint64(max(a.Level.Remaining, 0)), uint64(b.Max))
	high2, low2 := bits.Mul64(uint64(max(b.Level.Remaining, 0)), uint64(a.Max))
	return high1 < high2 || high1 == high2 && low1 < low2
}

// refusedHeaders are those that every refusal has.
func refusedHeaders(refusal *reservation.RefusedLimit, header http.Header) {
	header.Set("Budget-Limited-By", refusal.Limit)
	shownLimit{
		name: refusal.Limit, max: refusal.Max, remaining: refusal.Remaining,
		window: refusal.Window, resetsAt: refusal.ResetsAt, now: refusal.Now,
	}.set(header)
}
