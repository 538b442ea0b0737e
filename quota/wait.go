package quota

import (
	"fmt"
	"time"
)

// MaxWait is the longest that a call may be booked ahead, and so the largest
// Limit.MaxWait.
const MaxWait = time.Hour

// ParseWait reads a Limit.MaxWait as the plan language has it: 0s, or a span of 1 ms to
// [MaxWait] as [ParseSpan] reads it.
func ParseWait(text string) (time.Duration, error) {
	if text == "0s" {
		return 0, nil
	}
	wait, err := ParseSpan(text, time.Millisecond, MaxWait)
	if err != nil {
		return 0, fmt.Errorf("%s is neither 0s nor a span between 1ms and 1h; write a whole number and ms, s, min or h, as in 2s", quoteShort(text))
	}
	return wait, nil
}

func (l Limit) validateMaxWait(f *faults) {
	if l.MaxWait == nil {
		return
	}
	switch wait := *l.MaxWait; {
	case l.Kind == KindLeakyQueue:
		f.add("max_wait", "a leaky queue lets calls wait as long as its queue is; leave it out, and state queue")
	case l.Kind == KindSlots:
		f.add("max_wait", "who waits for a slot keeps nobody from other limits, so only a limit with a rate bounds it; leave it out")
	case !l.Kind.HasRate():
		f.add("max_wait", "only a limit with a rate gives starts ahead; leave it out")
	case wait < 0 || wait > MaxWait || wait%time.Millisecond != 0:
		f.add("max_wait", "%v is not a whole number of milliseconds between 0s and %s", wait, FormatSpan(MaxWait))
	}
}
