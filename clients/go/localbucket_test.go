package budget

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// What a local bucket lets through is what a bucket does, whatever the order in
// which its callers read the clock and however many are refused.
func TestLocalBucketIsOneBucket(t *testing.T) {
	const burst, perSecond, span = 10, 20, 3 * time.Second
	for _, callers := range []int{1, 2, 8, 50} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			begin := time.Unix(1_800_000_000, 0)
			now, reads := begin, 0
			b := &localBucket{limiter: rate.NewLimiter(perSecond, burst)}
			b.now = func() time.Time { // under the bucket's lock
				if reads++; reads%7 == 0 {
					return begin // a clock that was read long ago
				}
				return now
			}
			var through sync.Map
			for ; now.Before(begin.Add(span)); now = now.Add(time.Millisecond) {
				var group sync.WaitGroup
				for caller := range callers {
					group.Go(func() {
						if _, err := b.decide(Request{}, nil); err == nil {
							through.Store(fmt.Sprint(now.UnixNano(), caller), true)
						} else if refused := err.(*RefusedError); refused.Refusal.Remaining < 0 || refused.RetryAfter != time.Second {
							t.Errorf("%d left, retry after %v", refused.Refusal.Remaining, refused.RetryAfter)
						}
					})
				}
				group.Wait()
			}
			n := 0
			through.Range(func(any, any) bool { n++; return true })
			if most := burst + int(perSecond*span/time.Second); n > most || n < most-1 {
				t.Errorf("%d let through, want %d", n, most)
			}
		})
	}
}
