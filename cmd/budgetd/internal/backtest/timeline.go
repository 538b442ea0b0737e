package backtest

import "time"

// Slice are the calls that came in one span of a run.
type Slice struct {
	From    time.Time `json:"from"`
	Offered Sum       `json:"offered"`
	Refused Sum       `json:"refused"`
}

// widths are what a slice may span. Each is a multiple of the one before, so
// that slices can be put together.
var widths = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
	time.Hour, 3 * time.Hour, 12 * time.Hour, day, 7 * day, 28 * day, 364 * day,
}

const day = 24 * time.Hour

// maxSlices bounds a timeline. With the widest slices it spans more years than
// recorded calls may.
const maxSlices = 40

// timeline sums up calls by when they came, in slices as short as fit.
type timeline struct {
	width  int // in widths
	start  int64
	slices []Slice
}

// index is the number of a slice since 1970.
func (t *timeline) index(at time.Time) int64 { return at.Unix() / int64(widths[t.width]/time.Second) }

// at is the slice of an instant, which is not before that of any instant before.
func (t *timeline) at(at time.Time) *Slice {
	if len(t.slices) == 0 {
		t.start = t.index(at)
	}
	for t.index(at)-t.start >= maxSlices && t.width < len(widths)-1 {
		t.widen()
	}
	i := int(t.index(at) - t.start)
	for len(t.slices) <= i {
		from := (t.start + int64(len(t.slices))) * int64(widths[t.width]/time.Second)
		t.slices = append(t.slices, Slice{From: time.Unix(from, 0).UTC()})
	}
	return &t.slices[i]
}

// widen puts slices together to the next width.
func (t *timeline) widen() {
	old := *t
	t.width++
	t.slices = nil
	for _, slice := range old.slices {
		to := t.at(slice.From)
		to.Offered.merge(slice.Offered)
		to.Refused.merge(slice.Refused)
	}
}

// merge adds a sum of other calls of the same timeline, whose total is checked
// elsewhere.
func (s *Sum) merge(other Sum) {
	s.Requests += other.Requests
	s.Tokens += other.Tokens
	s.Cost += other.Cost
}
