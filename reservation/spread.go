package reservation

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// maxSpread bounds by how much callers of one window are told to come later than
// it allows.
const maxSpread = 30 * time.Second

// spread has a caller come back later than the instant at which its window allows,
// by a share of the window that its reservation's id draws. All that a window
// refuses are told the same instant else, and come back at once. What fills
// gradually, and slots, tell no such instant.
func (r *RefusedLimit) spread(percent int, id ID) {
	if percent <= 0 || r.RetryAt.IsZero() {
		return
	}
	switch r.Kind {
	case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
	case quota.KindQuota:
		if r.Reason != QuotaExhausted {
			return
		}
	default:
		return
	}
	most := min(r.Window/100*time.Duration(percent), maxSpread).Microseconds()
	// The second half of an id is random.
	drawn, _ := bits.Mul64(binary.BigEndian.Uint64(id[8:]), uint64(most+1))
	r.Spread = time.Duration(drawn) * time.Microsecond
	r.RetryAt = r.RetryAt.Add(r.Spread)
}
