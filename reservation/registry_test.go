package reservation

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

// TestRegistryAgainstList compares the registry with a plain list of what it
// should remember.
func TestRegistryAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 5
		r := newRegistry(most, newMetrics(prometheus.NewRegistry()))
		now := time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC)
		ends := map[ID]int64{}
		ids := make([]ID, 9)
		for i := range ids {
			ids[i] = NewID(now.Add(time.Duration(i) * time.Millisecond))
		}
		put := func(id ID, end time.Time) {
			ends[id] = max(ends[id], end.UnixMicro())
			if len(ends) > most {
				// Only one more than there is room for: of those that end in the
				// earliest second any one may go, so take the one that did.
				earliest := int64(1 << 62)
				for _, e := range ends {
					earliest = min(earliest, e/1e6)
				}
				for known, e := range ends {
					if _, still := r.find(known); !still {
						if e/1e6 != earliest {
							t.Fatalf("dropped one that ends in second %d; the earliest is %d", e/1e6, earliest)
						}
						delete(ends, known)
						return
					}
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"grant": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "id")
				end := now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "lease")) * time.Millisecond)
				r.granted(id, id[:], "key", Hash{1}, time.Time{}, end)
				put(id, end)
			},
			"renew": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "id")
				end := now.Add(time.Duration(rapid.IntRange(1, 9000).Draw(t, "lease")) * time.Millisecond)
				r.renewed(id, id[:], end)
				put(id, end)
			},
			"close": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "id")
				r.closed(id)
				delete(ends, id)
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond)
			},
			"trim": func(t *rapid.T) {
				r.trim(now)
				for id, end := range ends {
					if end/1e6 < now.Unix() {
						delete(ends, id)
					}
				}
			},
			"": func(t *rapid.T) {
				if r.size() != len(ends) || len(r.ends) != len(r.order) {
					t.Fatalf("%d entries, %d seconds of which %d in order; want %d entries", r.size(), len(r.ends), len(r.order), len(ends))
				}
				var want []ID
				for id, end := range ends {
					if e, known := r.find(id); !known || e.expiresAt != end {
						t.Fatalf("%v: known %v until %d, want %d", id, known, e.expiresAt, end)
					}
					if end > now.UnixMicro() {
						want = append(want, id)
					}
				}
				slices.SortFunc(want, func(a, b ID) int { return slices.Compare(a[:], b[:]) })
				var got []ID
				for _, e := range r.open(now) {
					got = append(got, e.id)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("open: %v, want %v", got, want)
				}
			},
		})
	})
}

func TestRegistryOff(t *testing.T) {
	r := newRegistry(-1, newMetrics(prometheus.NewRegistry()))
	id := NewID(time.Now())
	r.granted(id, nil, "", Hash{}, time.Time{}, time.Now())
	r.renewed(id, nil, time.Now())
	r.closed(id)
	if r.size() != 0 {
		t.Errorf("%d entries, want none", r.size())
	}
}

// BenchmarkRegistry shows that an entry's cost does not grow with their number,
// and what one takes beside its token.
func BenchmarkRegistry(b *testing.B) {
	for _, open := range []int{100, 100_000} {
		b.Run(fmt.Sprint("open=", open), func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			r := newRegistry(open+1, newMetrics(prometheus.NewRegistry()))
			now := time.Now()
			token := make([]byte, 400)
			for i := range open {
				r.granted(NewID(now), token, "", Hash{}, time.Time{}, now.Add(time.Duration(i)*time.Millisecond))
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			i := 0
			for b.Loop() {
				id := NewID(now)
				r.granted(id, token, "", Hash{}, time.Time{}, now.Add(time.Duration(i%90_000)*time.Millisecond))
				r.renewed(id, token, now.Add(time.Duration(i%90_000+1500)*time.Millisecond))
				r.closed(id)
				i++
			}
			b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(open), "bytes/entry")
		})
	}
}
