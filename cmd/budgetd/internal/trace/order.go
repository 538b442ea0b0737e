package trace

import (
	"container/heap"
	"fmt"
	"io"
	"time"
)

// MaxWindow bounds the calls that an Ordered keeps back.
const MaxWindow = 1_000_000

// Ordered gives the calls of a reader in the order of time, those of one
// instant as they stand in the file. It keeps back as many as a call may be
// late.
type Ordered struct {
	from    Calls
	span    time.Duration
	waiting callHeap
	latest  time.Time // of all that was read
	read    int64
	ended   bool
}

// Order makes an Ordered. A call may come at most span behind one that is
// before it in the file.
func Order(from Calls, span time.Duration) *Ordered { return &Ordered{from: from, span: span} }

// Next implements Calls. A call that comes too late is a *LineError.
func (o *Ordered) Next() (Call, error) {
	for !o.ended && (len(o.waiting) == 0 || o.latest.Sub(o.waiting[0].At) < o.span) {
		call, err := o.from.Next()
		if err == io.EOF {
			o.ended = true
			break
		}
		if err != nil {
			return Call{}, err
		}
		if o.latest.Sub(call.At) > o.span && o.read > 0 {
			return Call{}, &LineError{File: call.File, Line: call.Line, Field: "time", Problem: fmt.Sprintf(
				"%s is more than %s before a line above it; sort the file, or allow more", call.At.Format(time.RFC3339Nano), o.span)}
		}
		if len(o.waiting) == MaxWindow {
			return Call{}, fmt.Errorf("%s:%d: %d calls within %s wait to be put in order; allow less", call.File, call.Line, MaxWindow, o.span)
		}
		o.read++
		if call.At.After(o.latest) {
			o.latest = call.At
		}
		heap.Push(&o.waiting, waitingCall{call, o.read})
	}
	if len(o.waiting) == 0 {
		return Call{}, io.EOF
	}
	return heap.Pop(&o.waiting).(waitingCall).Call, nil
}

type waitingCall struct {
	Call
	order int64
}

type callHeap []waitingCall

func (h callHeap) Len() int { return len(h) }
func (h callHeap) Less(i, j int) bool {
	if c := h[i].At.Compare(h[j].At); c != 0 {
		return c < 0
	}
	return h[i].order < h[j].order
}
func (h callHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *callHeap) Push(x any)   { *h = append(*h, x.(waitingCall)) }
func (h *callHeap) Pop() any {
	last := len(*h) - 1
	call := (*h)[last]
	(*h)[last] = waitingCall{}
	*h = (*h)[:last]
	return call
}
