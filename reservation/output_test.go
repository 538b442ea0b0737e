package reservation

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// TestOutputMost holds the closed form against trying every number of tokens.
func TestOutputMost(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 20_000 {
		o := Output{Asked: rng.Int64N(40)}
		o.Forecast = rng.Int64N(o.Asked + 1)
		s := Slope{PerToken: rng.Int64N(9), Per: 1 + rng.Int64N(5), Weight: 1 + quota.Amount(rng.Int64N(3)), Tolerance: quota.Amount(rng.Int64N(60))}
		s.Rest = rng.Int64N(s.Per)
		if s.PerToken == 0 {
			s = Slope{}
		}
		o.Slopes = []Slope{s}
		h := Hold{Kind: quota.KindBucket, Amount: s.Weight*s.less(o.Asked) + quota.Amount(rng.Int64N(10))}
		remaining, open := quota.Amount(rng.Int64N(160)-20), quota.Amount(rng.Int64N(70))
		want := o.Asked
		for ; want >= 0; want-- {
			if _, fits := o.Held(0, &h, want, remaining, open); fits {
				break
			}
		}
		if got := o.Most(0, &h, remaining, open); got != want {
			t.Fatalf("seed %d: %d tokens, not %d: %+v, hold of %d, %d remain, open sum %d", seed, got, want, o, h.Amount, remaining, open)
		}
	}
}

func TestSplitDecided(t *testing.T) {
	for _, d := range []Decided{{}, {Tokens: int64(quota.MaxAmount), Forecast: make([]bool, MaxHolds)}, {Tokens: 7, Forecast: []bool{true, false}}} {
		token, got, ok := SplitDecided(d.AppendTo([]byte("token")))
		if !ok || !bytes.Equal(token, []byte("token")) || got.Tokens != d.Tokens || len(got.Forecast) != len(d.Forecast) {
			t.Fatalf("%q, %+v, %v, of %+v", token, got, ok, d)
		}
		for i := range d.Forecast {
			if got.Forecast[i] != d.Forecast[i] {
				t.Fatalf("hold %d: %v, not %v", i, got.Forecast[i], d.Forecast[i])
			}
		}
	}
	for _, stored := range []string{"", "x", "\x10", "00000000000000001", "-000000000000001\x10", "00000000000000x1\x10"} {
		if _, _, ok := SplitDecided([]byte(stored)); ok {
			t.Errorf("%q was taken for a decision", stored)
		}
	}
}
