package redisstore

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/test/servers"
)

// evalArithmetic runs Lua text after the modules of arithmetic.
func evalArithmetic(tb testing.TB, client *redis.Client, text string, values ...any) []int64 {
	tb.Helper()
	whole := luaFile("prelude") + luaFile("arithmetic") + text
	got, err := client.Eval(within(tb, 10*time.Second), whole, nil, values...).Text()
	if err != nil {
		tb.Fatal(err)
	}
	r := reply{rest: []byte(got)}
	var out []int64
	for len(r.rest) > 0 && r.err == nil {
		out = append(out, r.int())
	}
	if r.err != nil {
		tb.Fatal(r.err)
	}
	return out
}

var rates = map[string]quota.Bucket{
	"$5/min":   quota.Limit{Kind: quota.KindBucket, Rate: quota.Rate{Amount: 5 * quota.Amount(quota.OneUSD), Every: time.Minute}}.Bucket(),
	"$500/day": quota.Limit{Kind: quota.KindBucket, Rate: quota.Rate{Amount: 500 * quota.Amount(quota.OneUSD), Every: 24 * time.Hour}}.Bucket(),
	"10M/min":  quota.Limit{Kind: quota.KindBucket, Rate: quota.Rate{Amount: 10_000_000, Every: time.Minute}}.Bucket(),
	"1/day":    quota.Limit{Kind: quota.KindBucket, Rate: quota.Rate{Amount: 1, Every: 24 * time.Hour}}.Bucket(),
	"max/ms":   {Refill: quota.MaxAmount, PerMicros: 1000},
	"max/us":   {Refill: quota.MaxAmount, PerMicros: 1},
	"max/day":  {Refill: quota.MaxAmount, PerMicros: 86_400_000_000},
	"prime":    {Refill: 999_999_937, PerMicros: 86_399_999_999},
}

var rateNames = []string{"$5/min", "$500/day", "10M/min", "1/day", "max/ms", "max/us", "max/day", "prime"}

// anyAmount favours the ends of the range and the powers of two.
func anyAmount(t *rapid.T, name string, least, most int64) int64 {
	switch rapid.IntRange(0, 3).Draw(t, name+" kind") {
	case 0:
		return rapid.SampledFrom([]int64{least, most, min(least+1, most), max(most-1, least)}).Draw(t, name)
	case 1:
		n := int64(1)<<rapid.IntRange(0, 53).Draw(t, name+" bits") + rapid.Int64Range(-2, 2).Draw(t, name+" off")
		return min(max(n, least), most)
	}
	return rapid.Int64Range(least, most).Draw(t, name)
}

// TestMuldivExact compares the scripts' division with math/big.
func TestMuldivExact(t *testing.T) {
	client := servers.SharedRedis(t).Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		most := int64(quota.MaxAmount)
		a := anyAmount(rt, "a", 0, most)
		b := anyAmount(rt, "b", 0, most)
		c := anyAmount(rt, "c", 1, most)
		r := anyAmount(rt, "r", 0, c-1)
		got := evalArithmetic(t, client, `
local q, left = muldiv(tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
return pack(q, left)`, a, b, r, c)
		product := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		product.Add(product, big.NewInt(r))
		q, left := new(big.Int).QuoRem(product, big.NewInt(c), new(big.Int))
		over, far := new(big.Int).Lsh(big.NewInt(1), 53), new(big.Int).Lsh(big.NewInt(1), 54)
		want := []int64{0, 0}
		switch {
		case q.Cmp(far) >= 0:
			want[0] = far.Int64()
		case q.Cmp(over) >= 0:
			want[0] = over.Int64()
		default:
			want[0], want[1] = q.Int64(), left.Int64()
		}
		if got[0] != want[0] || got[1] != want[1] {
			rt.Fatalf("(%d*%d+%d)/%d: the scripts have %v, math/big %v", a, b, r, c, got, want)
		}
	})
}

// TestAdvanceExact compares the scripts' refill with an exact fraction: for
// levels from the deepest debt to full, and idle times from 1 us to 400 days.
func TestAdvanceExact(t *testing.T) {
	client := servers.SharedRedis(t).Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		most := int64(quota.MaxAmount)
		b := rates[rapid.SampledFrom(rateNames).Draw(rt, "rate")]
		b.Capacity = quota.Amount(anyAmount(rt, "capacity", 1, most))
		level := anyAmount(rt, "level", -most, int64(b.Capacity))
		rest := anyAmount(rt, "rest", 0, b.PerMicros-1)
		if level == int64(b.Capacity) {
			rest = 0
		}
		elapsed := anyAmount(rt, "elapsed", 1, (400 * 24 * time.Hour).Microseconds())
		got := evalArithmetic(t, client, `
local v = {}
for i = 1, 6 do v[i] = tonumber(ARGV[i]) end
local level, rest = advance(v[1], v[2], v[3], v[4], v[5], v[6])
return pack(level, rest)`, level, rest, elapsed, int64(b.Capacity), int64(b.Refill), b.PerMicros)

		earned := new(big.Int).Mul(big.NewInt(elapsed), big.NewInt(int64(b.Refill)))
		earned.Add(earned, big.NewInt(rest))
		whole, left := new(big.Int).QuoRem(earned, big.NewInt(b.PerMicros), new(big.Int))
		after := new(big.Int).Add(big.NewInt(level), whole)
		want := []int64{int64(b.Capacity), 0}
		if after.Cmp(big.NewInt(int64(b.Capacity))) < 0 {
			want = []int64{after.Int64(), left.Int64()}
		}
		if got[0] != want[0] || got[1] != want[1] {
			rt.Fatalf("%+v from %d and %d after %d us: the scripts have %v, math/big %v", b, level, rest, elapsed, got, want)
		}
	})
}

// TestScriptHeaders holds every script to a header that names its keys,
// arguments and answers.
func TestScriptHeaders(t *testing.T) {
	for s := range scriptCount {
		text := luaFile(s.String())
		if !strings.HasPrefix(text, "-- "+s.String()+": ") {
			t.Errorf("%s.lua does not begin with its name and what it does", s)
		}
		for _, word := range []string{"KEYS[1", "ARGV[1]", "Returns, packed:"} {
			header, _, _ := strings.Cut(text, "\nlocal ")
			if !strings.Contains(header, word) {
				t.Errorf("the header of %s.lua does not say %q", s, word)
			}
		}
	}
	for _, m := range append([]string{"prelude", "reserve_hot", "refund_hot"}, modules...) {
		if !strings.HasPrefix(luaFile(m), "-- ") {
			t.Errorf("%s.lua has no header", m)
		}
	}
}
