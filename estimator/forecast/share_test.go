package forecast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// books is a Store in memory, of which the contract is tested in lengthstore.
type books struct {
	kept  map[Key][]Length
	calls int
	err   error
}

func (b *books) Merge(_ context.Context, cells []Cell, _ time.Time) ([]Cell, error) {
	if b.calls++; b.err != nil {
		return nil, b.err
	}
	merged := slices.Clone(cells)
	for i, c := range cells {
		merged[i].Lengths = Union(b.kept[c.Key], c.Lengths)
		b.kept[c.Key] = merged[i].Lengths
	}
	return merged, nil
}

func share(t *testing.T, l *Learner, store Store, now time.Time, more bool) {
	t.Helper()
	if got, err := l.Share(context.Background(), store, now); err != nil || got != more {
		t.Fatalf("more %v, error %v", got, err)
	}
}

func TestLearnersShare(t *testing.T) {
	store := &books{kept: map[Key][]Length{}}
	a, b := New(Config{Shared: true}), New(Config{Shared: true})
	now := start
	for n := range int64(2 * Enough) {
		now = now.Add(time.Second)
		a.Observe(key, n+1, false, now)
	}
	store.err = errors.New("away")
	if _, err := a.Share(t.Context(), store, now); err == nil {
		t.Fatal("no error")
	}
	store.err = nil
	share(t, a, store, now, false)
	want(t, b, now, 4096, 4096, false) // which asks
	share(t, b, store, now, false)
	forecast, ok := a.Forecast(key, 4096, now)
	want(t, b, now, 4096, forecast, true)
	if !ok || forecast < 1 || forecast > 2*Enough {
		t.Fatalf("forecast %d %v", forecast, ok)
	}
	// Nothing is new: nobody asks, until some time has passed.
	calls := store.calls
	share(t, a, store, now, false)
	share(t, b, store, now, false)
	if store.calls != calls {
		t.Errorf("the store is asked though nothing is new")
	}
	for range Samples {
		b.Observe(key, 500, false, now)
	}
	share(t, b, store, now, false)
	now = now.Add(ShareAge + time.Second)
	a.Forecast(key, 4096, now)
	share(t, a, store, now, false)
	if got, _ := a.Forecast(key, 4096, now); got == forecast {
		t.Errorf("what the other learned since is not known: %d", got)
	}
}

func TestSharingIsBounded(t *testing.T) {
	store := &books{kept: map[Key][]Length{}}
	l := New(Config{Shared: true, Keys: MaxShare + 10})
	for n := range 2 * maxAsked {
		l.Forecast(Key{Account: fmt.Sprint(n)}, 100, start)
	}
	if n := len(l.waiting); n != maxAsked {
		t.Fatalf("%d keys wait", n)
	}
	share(t, l, store, start, true)
	if len(store.kept) != MaxShare {
		t.Errorf("%d keys are merged at once", len(store.kept))
	}
	for {
		more, err := l.Share(t.Context(), store, start)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	if l.Len() != MaxShare+10 || len(l.waiting) != 0 {
		t.Errorf("%d keys, %d wait", l.Len(), len(l.waiting))
	}
	alone := New(Config{})
	alone.Observe(key, 1, false, start)
	if len(alone.waiting) != 0 {
		t.Error("a learner that does not share keeps keys for it")
	}
}

// A key is learned on while it has lengths of others: the oldest go first.
func TestLearningGoesOnAfterAMerge(t *testing.T) {
	store := &books{kept: map[Key][]Length{}}
	l := New(Config{Shared: true})
	for n := range Samples + 7 {
		l.Observe(key, 10, false, start.Add(time.Duration(n)*time.Second))
	}
	now := start.Add((Samples + 7) * time.Second)
	share(t, l, store, now, false)
	for n := range Samples / 2 {
		l.Observe(key, 20, false, now.Add(time.Duration(n)*time.Minute))
	}
	have := Union(l.cells[key].Value.(*cell).lengths, nil)
	if len(have) != Samples || have[Samples/2-1].Tokens != 10 || have[Samples/2].Tokens != 20 || have[0].At != start.Add((Samples/2+7)*time.Second).UnixMicro() {
		t.Errorf("%d lengths, the oldest %+v", len(have), have[0])
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(Pack(nil))
	f.Add(Pack([]Length{{Tokens: 5, At: 1}, {Tokens: 5, Cut: true, At: 1}, {Tokens: 1 << 52, At: 1 << 50}}))
	f.Add([]byte{lengthsVersion, 0x80})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		lengths, err := Unpack(b)
		if err != nil {
			return
		}
		again, err := Unpack(Pack(lengths))
		if err != nil || !slices.Equal(again, lengths) {
			t.Fatalf("%v, error %v, want %v", again, err, lengths)
		}
	})
}
