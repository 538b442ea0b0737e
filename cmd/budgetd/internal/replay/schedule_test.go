package replay

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota"
)

func TestSchedule(t *testing.T) {
	first := time.Date(2023, 11, 16, 18, 0, 0, 0, time.UTC)
	s := Schedule{First: first, Speed: 60}
	r := trace.Request{At: first.Add(90 * time.Second), Generated: 125}
	if got := s.Arrival(r); got != 1500*time.Millisecond {
		t.Errorf("90 s of trace are %v at 60 times the speed, want 1.5 s", got)
	}
	// 0.5 s + 125 * 20 ms = 3 s
	if got := s.Duration(r); got != 50*time.Millisecond {
		t.Errorf("a call of 3 s takes %v, want 50 ms", got)
	}
	bucket, err := s.Bucket(quota.Rate{Amount: 10_000_000, Every: time.Minute})
	if err != nil || bucket.Rate != (quota.Rate{Amount: 600_000_000, Every: time.Minute}) || bucket.Burst != 10_000_000 {
		t.Errorf("10M/min is the bucket %+v, %v; want 600M/min and 10M at once", bucket, err)
	}
	if _, err := s.Bucket(quota.Rate{Amount: quota.MaxAmount, Every: time.Minute}); err == nil || !strings.Contains(err.Error(), "largest amount") {
		t.Errorf("a rate beyond every bound: %v", err)
	}
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]int64{"2%": 20_000, "0.5%": 5_000, "0%": 0, "100%": million, "0.0001%": 1, "12.3456%": 123_456} {
		if got, err := ParseShare(text); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "%", "2", "-1%", "+1%", "100.0001%", "101%", "1.%", ".5%", "0.00001%", "1e1%", "1 %", "9999999999999999999%"} {
		if got, err := ParseShare(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}

// Exactly the share that was asked for is drawn, by the seed and nothing else.
func TestDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.Int64Range(1, 5000).Draw(t, "requests")
		share := rapid.Int64Range(0, million).Draw(t, "share")
		seed := rapid.Uint64().Draw(t, "seed")
		want := (requests*share + million/2) / million
		if share > 0 && want == 0 {
			want = 1
		}
		a, b := newDraw(seed, share, requests), newDraw(seed, share, requests)
		picked := int64(0)
		for i := range requests {
			x, y := a.next(), b.next()
			if x != y {
				t.Fatalf("request %d: the same seed drew differently", i)
			}
			if x {
				picked++
			}
		}
		if picked != want {
			t.Fatalf("%d of %d picked, want %d", picked, requests, want)
		}
		if a.next() {
			t.Fatal("one more than there are was picked")
		}
	})
}

func TestScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Int64Min(0).Draw(t, "a")
		b := rapid.Int64Min(0).Draw(t, "b")
		c := rapid.Int64Min(1).Draw(t, "c")
		want := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want.Add(want, big.NewInt(c-1)).Quo(want, big.NewInt(c))
		if !want.IsInt64() {
			want.SetInt64(1<<63 - 1)
		}
		if got := scale(a, b, c); got != want.Int64() {
			t.Fatalf("ceil(%d * %d / %d) is %d, want %d", a, b, c, got, want)
		}
	})
}

func TestRefill(t *testing.T) {
	if got := refillTime(10_000_000, 600_000_000, 60_000); got != 1001*time.Millisecond {
		t.Errorf("10M at 600M/min take %v, want 1 s and the millisecond of grace", got)
	}
	if got := refillTime(1, 1, 86_400_000); got != maxRun {
		t.Errorf("one at 1/day takes %v, want %v", got, maxRun)
	}
	if got := refillWithin(2*time.Second, 600_000_000, 60_000); got != 20_010_000 {
		t.Errorf("600M/min refill %d in 2 s, want 20M and a millisecond's", got)
	}
}
