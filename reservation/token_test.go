package reservation

import (
	"reflect"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
)

type tokenKeys map[uint16][]byte

func (k tokenKeys) Current() (uint16, []byte)     { return 1, k[1] }
func (k tokenKeys) ByID(id uint16) ([]byte, bool) { key, ok := k[id]; return key, ok }

func someToken(t *rapid.T) *reservationToken {
	text := rapid.StringN(0, 20, 40)
	amount := rapid.Map(rapid.Int64Range(0, int64(quota.MaxAmount)), func(n int64) quota.Amount { return quota.Amount(n) })
	token := &reservationToken{
		ID:           NewID(time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "minted"))),
		Account:      text.Draw(t, "account"),
		Lease:        time.Duration(rapid.Int64Range(1, 86_400_000_000).Draw(t, "lease")) * time.Microsecond,
		Retention:    10 * time.Minute,
		Degraded:     rapid.Bool().Draw(t, "degraded"),
		Charge:       rapid.Bool().Draw(t, "charge"),
		TotalsPeriod: "m2026-11-01",
		Labels:       rapid.MapOfN(text, text, 1, 5).Draw(t, "labels"),
		Asked:        rapid.MapOfN(rapid.Map(text, func(s string) quota.Meter { return quota.Meter(s) }), amount, 0, 8).Draw(t, "asked"),
		RuleInput:    quota.Tokens(rapid.Int64Range(0, int64(quota.MaxAmount)).Draw(t, "rule input")),
		Holds:        []plannedHold{},
	}
	if rapid.Bool().Draw(t, "priced") {
		token.PriceVersion = "v"
		token.Price = &estimator.Price{
			Provider: "p", Model: "m", Version: "v", Base: estimator.Rates{Input: 3, Output: 1e12}, Tiers: []estimator.Tier{{Above: 200_000, Rates: estimator.Rates{Input: 6}}},
			Services: []estimator.Service{
				{Name: "batch", Base: estimator.Rates{Input: 2, Search: 5, Second: estimator.NoPrice}, Tiers: []estimator.Tier{{Above: 9, Rates: estimator.Rates{OutputAudio: 7}}}},
				{Name: "fast", Base: estimator.Rates{Input: 30, Reasoning: 1}},
			},
		}
	}
	for range rapid.IntRange(0, 10).Draw(t, "holds") {
		h := plannedHold{Name: text.Draw(t, "name"), Meter: quota.MeterCost, Weight: 5}
		h.Counter = Counter{Pool: text.Draw(t, "pool"), Limit: text.Draw(t, "limit"), Scope: text.Draw(t, "scope")}
		h.Amount = amount.Draw(t, "amount")
		h.OnExpiry = quota.ExpiryGiveBack
		switch h.Kind = quota.Kind(rapid.IntRange(1, 3).Draw(t, "kind")); h.Kind {
		case quota.KindBucket:
			h.Bucket = quota.Bucket{Capacity: amount.Draw(t, "capacity"), Refill: 250, PerMicros: 3}
		case quota.KindSlots:
			h.Max, h.OnExpiry = 20, quota.ExpiryCharge
		case quota.KindQuota:
			h.Max = amount.Draw(t, "max")
			h.Period = quota.Period{Key: "m2026-11-15", Start: time.UnixMicro(1).UTC(), End: time.UnixMicro(2).UTC()}
			h.Soft = rapid.Bool().Draw(t, "soft")
		}
		token.Holds = append(token.Holds, h)
	}
	return token
}

func TestTokenRoundTrip(t *testing.T) {
	keys := tokenKeys{1: []byte("a secret of the ledger's store!!")}
	rapid.Check(t, func(t *rapid.T) {
		token := someToken(t)
		raw, err := token.seal(keys)
		if err != nil {
			t.Fatal(err)
		}
		back, _, err := openTokenText(tokenText(raw), keys)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(token, back) {
			t.Fatalf("\n%+v\n%+v", token, back)
		}
		// Any change of any byte is noticed, whoever made it.
		at := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
		raw[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if _, err := openToken(raw, keys); err == nil {
			t.Fatalf("a token with byte %d changed is accepted", at)
		}
	})
}

func TestTokenOfAnotherBroker(t *testing.T) {
	ours, theirs := tokenKeys{1: []byte("ours")}, tokenKeys{1: []byte("theirs")}
	raw, err := (&reservationToken{Account: "a"}).seal(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openToken(raw, ours); err == nil {
		t.Error("a token signed with another key is accepted")
	}
	if _, err := openToken(raw, tokenKeys{2: []byte("theirs")}); err == nil {
		t.Error("a token signed with a forgotten key is accepted")
	}
}

func TestTokenIsBounded(t *testing.T) {
	labels := map[string]string{}
	for len(labels) < quota.MaxLabels {
		labels[string(rune('a'+len(labels)))] = string(make([]byte, 256))
	}
	token := &reservationToken{Account: "a", Labels: labels}
	for range MaxHolds {
		token.Holds = append(token.Holds, plannedHold{Name: string(make([]byte, 60))})
	}
	if _, err := token.seal(tokenKeys{1: []byte("k")}); err == nil {
		t.Error("a token above the bound is made")
	}
}

func FuzzOpenToken(f *testing.F) {
	keys := tokenKeys{1: []byte("k")}
	raw, err := (&reservationToken{Account: "a", Holds: []plannedHold{{Name: "n"}}}).seal(keys)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(tokenText(raw))
	f.Add("")
	f.Add("AQAB")
	f.Fuzz(func(t *testing.T, text string) {
		if token, _, err := openTokenText(text, keys); err == nil && text != tokenText(raw) {
			t.Errorf("a made-up token is accepted: %+v", token)
		}
	})
}

// FuzzTokenBody decodes bodies that carry a right signature: what a signed
// token says must never bring the broker down.
func FuzzTokenBody(f *testing.F) {
	keys := tokenKeys{1: []byte("k")}
	raw, err := (&reservationToken{Account: "a", Asked: quota.Amounts{"tokens": 1}, Holds: []plannedHold{{Name: "n"}}}).seal(keys)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw[:len(raw)-tokenMACBytes])
	f.Fuzz(func(t *testing.T, signed []byte) {
		_, _ = openToken(append(signed, tokenMAC(keys[1], signed)...), keys)
	})
}

// firstOutcome is what the first version of the encoding wrote for 7 tokens,
// taken out of a ledger.
var firstOutcome = []byte{1, 0xc2, 0x91, 0xa6, 't', 'o', 'k', 'e', 'n', 's', 7, 0x92, 7, 14}

func TestFirstOutcome(t *testing.T) {
	want := outcome{Charged: quota.Amounts{"tokens": 7}, Actual: []quota.Amount{7, 14}}
	if got, err := decodeOutcome(firstOutcome); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v; want %+v", got, err, want)
	}
	for _, version := range []byte{0, outcomeVersion + 1} {
		other := append([]byte{version}, firstOutcome[1:]...)
		if _, err := decodeOutcome(other); err == nil {
			t.Errorf("version %d was read", version)
		}
	}
}

// secondOutcome is what the second version wrote for 9 tokens at a price.
var secondOutcome = append([]byte{
	2, 0xc2, 0x90, 0x90, 0xa6, 'o', 'p', 'e', 'n', 'a', 'i', 0xa6, 'g', 'p', 't', '-', '4', 'o',
}, 0x96, 1, 2, 3, 4, 5, 6, 0xc3, 0x91, 5)

func TestSecondOutcome(t *testing.T) {
	want := outcome{Charged: quota.Amounts{}, Pricing: pricing{
		Provider: "openai", Model: "gpt-4o", Priced: true, Weights: []quota.Amount{5},
		Use: &estimator.Use{Tokens: estimator.TokenClasses{Input: 1, CacheRead: 2, CacheWrite: 3, CacheWrite1h: 4, Output: 5, Reasoning: 6}},
	}}
	if got, err := decodeOutcome(secondOutcome); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v; want %+v", got, err, want)
	}
}

// thirdOutcome is what the third version wrote for 7 tokens without a price.
var thirdOutcome = []byte{3, 0xc2, 0x91, 0xa6, 't', 'o', 'k', 'e', 'n', 's', 7, 0x92, 7, 14, 0xa0, 0xa0, 0x90, 0xc2, 0x90}

func TestThirdOutcome(t *testing.T) {
	want := outcome{Charged: quota.Amounts{"tokens": 7}, Actual: []quota.Amount{7, 14}}
	if got, err := decodeOutcome(thirdOutcome); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v; want %+v", got, err, want)
	}
}

func FuzzOutcome(f *testing.F) {
	f.Add(outcome{Charged: quota.Amounts{"tokens": 1}, Actual: []quota.Amount{1, 2}}.encode())
	f.Add(outcome{Pricing: pricing{
		Provider: "openai", Model: "gpt-4o-mini", Use: &estimator.Use{Tokens: estimator.TokenClasses{Input: 1, OutputAudio: 2, Reasoning: 6}, Units: estimator.Units{Seconds: 1500, Requests: 1}, Tier: "flex", Speed: "fast"}, Priced: true, Weights: []quota.Amount{5},
	}}.encode())
	f.Add(firstOutcome)
	f.Add(outcome{Charged: quota.Amounts{"tokens": 1}, Asked: quota.Amounts{"tokens": 9, "requests": 1}}.encode())
	f.Add(secondOutcome)
	f.Add(thirdOutcome)
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := decodeOutcome(b)
		if err != nil {
			return
		}
		if again, err := decodeOutcome(o.encode()); err != nil || !reflect.DeepEqual(o, again) {
			t.Errorf("%+v became %+v, %v", o, again, err)
		}
	})
}

// TestTokenOfVersion1: what an older broker sealed is opened. The token was made
// by the version before soft quotas.
func TestTokenOfVersion1(t *testing.T) {
	keys := tokenKeys{1: []byte("a secret of the ledger's store!!")}
	token := &reservationToken{
		ID: NewID(time.UnixMicro(1_700_000_000_000_000)), Account: "acme", Lease: time.Minute, Retention: 10 * time.Minute,
		TotalsPeriod: "m2026-11-01", Asked: quota.Amounts{quota.MeterTokens: 5},
		Holds: []plannedHold{{Name: "month", Meter: quota.MeterTokens, Weight: 1, Hold: Hold{
			Counter: Counter{Limit: "month.1"}, Kind: quota.KindQuota, Amount: 5, Max: 10, OnExpiry: quota.ExpiryGiveBack,
			Period: quota.Period{Key: "m2026-11-01", Start: time.UnixMicro(1).UTC(), End: time.UnixMicro(2).UTC()},
		}}},
	}
	raw, err := token.seal(keys)
	if err != nil {
		t.Fatal(err)
	}
	// Version 1 had all of it but the hold's last byte, that of the output, the
	// input by a rule, the marks of shadow holds and the envelope.
	signed := raw[:len(raw)-tokenMACBytes-5]
	signed[0] = 1
	old := append(signed, tokenMAC(keys[1], signed)...)
	got, err := openToken(old, keys)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Holds) != 1 || !reflect.DeepEqual(got.Holds[0], token.Holds[0]) {
		t.Errorf("got %+v, want %+v", got.Holds, token.Holds)
	}
}

// TestTokenOfVersion2: its price had six classes of tokens and nothing else.
func TestTokenOfVersion2(t *testing.T) {
	keys := tokenKeys{1: []byte("a secret of the ledger's store!!")}
	b := []byte{2, 0, 1}
	id := NewID(time.UnixMicro(1_700_000_000_000_000))
	b = append(b, id[:]...)
	b = msgp.AppendString(b, "acme")
	for _, micros := range []int64{60_000_000, 600_000_000} {
		b = msgp.AppendInt64(b, micros)
	}
	b = msgp.AppendBool(msgp.AppendBool(b, false), false)
	b = msgp.AppendString(msgp.AppendString(b, "m2026-11-01"), "v")
	b = msgp.AppendArrayHeader(b, 2)
	b = msgp.AppendString(msgp.AppendString(b, "p"), "m")
	for rate := range int64(13) { // base, bound, tier
		b = msgp.AppendInt64(b, 10+rate)
	}
	for range 3 { // labels, asked, holds
		b = msgp.AppendArrayHeader(b, 0)
	}
	got, err := openToken(append(b, tokenMAC(keys[1], b)...), keys)
	if err != nil {
		t.Fatal(err)
	}
	rates := func(first estimator.PerMillion) estimator.Rates {
		var stated estimator.StatedRates
		for i, name := range []string{"input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning"} {
			stated.State(name, int64(first)+int64(i))
		}
		return stated.Complete()
	}
	want := &estimator.Price{Provider: "p", Model: "m", Version: "v", Base: rates(10), Tiers: []estimator.Tier{{Above: 16, Rates: rates(17)}}}
	if got.Account != "acme" || got.ID != id || !reflect.DeepEqual(got.Price, want) {
		t.Errorf("got %+v with price %+v, want %+v", got, got.Price, want)
	}
}
