package quota_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
)

func TestParseAmount(t *testing.T) {
	for _, c := range []struct {
		meter quota.Meter
		text  string
		want  quota.Amount
		bad   string // a part of the error
	}{
		{"tokens", "60000", 60_000, ""},
		{"tokens", "1_000_000", 1_000_000, ""},
		{"tokens", "10M", 10_000_000, ""},
		{"tokens", "1.5M", 1_500_000, ""},
		{"tokens", "1.50K", 1500, ""},
		{"tokens", "2k", 2000, ""},
		{"tokens", "1G", 1_000_000_000, ""},
		{"tokens", "5.0", 5, ""},
		{"tokens", "0", 0, ""},
		{"tokens", "9007199254740991", quota.MaxAmount, ""},
		{"cost", "$500", 500_000_000_000, ""},
		{"cost", "$0.002", 2_000_000, ""},
		{"cost", "$0.000000001", 1, ""},
		{"cost", "$1.5K", 1_500_000_000_000, ""},
		{"cost", "$9007199.254740991", quota.MaxAmount, ""},

		{"tokens", "9007199254740992", 0, "above the largest amount, 9007199254740991"},
		{"tokens", "99999999999999999999999999999999999999", 0, "above the largest"},
		{"tokens", "9007200G", 0, "above the largest"},
		{"cost", "$9007199.254740992", 0, "above the largest amount, $9007199.254740991"},
		{"cost", "$0.0000000001", 0, "not a whole number of nano-dollars"},
		{"tokens", "1.5", 0, "not a whole number; write fewer decimals"},
		{"tokens", "1.0005K", 0, "not a whole number"},
		{"cost", "500", 0, "write it with $"},
		{"tokens", "$5", 0, "is money, but the meter is tokens"},
		{"cost", "$", 0, "not an amount"},
		{"tokens", "", 0, "not an amount"},
		{"tokens", "M", 0, "not an amount"},
		{"tokens", "-5", 0, "not an amount"},
		{"tokens", "+5", 0, "not an amount"},
		{"tokens", "010", 0, "not an amount"},
		{"tokens", "1e6", 0, "not an amount"},
		{"tokens", "0x10", 0, "not an amount"},
		{"tokens", ".5M", 0, "not an amount"},
		{"tokens", "5.", 0, "not an amount"},
		{"tokens", "5..0", 0, "not an amount"},
		{"tokens", "_5", 0, "not an amount"},
		{"tokens", "5_", 0, "not an amount"},
		{"tokens", "5__0", 0, "not an amount"},
		{"tokens", "5 M", 0, "not an amount"},
		{"tokens", " 5", 0, "not an amount"},
		{"tokens", "٥", 0, "not an amount"},
		{"tokens", "10MM", 0, "not an amount"},
		{"tokens", strings.Repeat("1", 65), 0, "longer than 64 bytes"},
	} {
		got, err := quota.ParseAmount(c.meter, c.text)
		if got != c.want || (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s %q: %d, %v; want %d, %q", c.meter, c.text, got, err, c.want, c.bad)
		}
	}
}

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		meter quota.Meter
		text  string
		want  quota.Rate
		bad   string
	}{
		{"tokens", "200000/min", quota.Rate{Amount: 200_000, Every: time.Minute}, ""},
		{"cost", "$5/min", quota.Rate{Amount: 5_000_000_000, Every: time.Minute}, ""},
		{"tokens", "10M/min", quota.Rate{Amount: 10_000_000, Every: time.Minute}, ""},
		{"requests", "5/s", quota.Rate{Amount: 5, Every: time.Second}, ""},
		{"requests", "1/day", quota.Rate{Amount: 1, Every: 24 * time.Hour}, ""},
		{"requests", "10/30s", quota.Rate{Amount: 10, Every: 30 * time.Second}, ""},
		{"requests", "10/2h", quota.Rate{Amount: 10, Every: 2 * time.Hour}, ""},
		{"requests", "10/1ms", quota.Rate{Amount: 10, Every: time.Millisecond}, ""},
		{"requests", "10/86400000000us", quota.Rate{Amount: 10, Every: 24 * time.Hour}, ""},

		{"requests", "10", quota.Rate{}, "not a rate"},
		{"requests", "10/", quota.Rate{}, "not a span"},
		{"requests", "/s", quota.Rate{}, "not an amount"},
		{"requests", "10/s/s", quota.Rate{}, "not a span"},
		{"requests", "10/0s", quota.Rate{}, "not a span"},
		{"requests", "10/030s", quota.Rate{}, "not a span"},
		{"requests", "10/-1s", quota.Rate{}, "not a span"},
		{"requests", "10/1.5s", quota.Rate{}, "not a span"},
		{"requests", "10/month", quota.Rate{}, "not a span"},
		{"requests", "10/m", quota.Rate{}, "not a span"},
		{"requests", "10/999us", quota.Rate{}, "not between 1ms and 24h"},
		{"requests", "10/25h", quota.Rate{}, "not between 1ms and 24h"},
		{"requests", "10/99999999999day", quota.Rate{}, "not between 1ms and 24h"},
		{"requests", "10/99999999999999999999s", quota.Rate{}, "not a span"},
		{"requests", "10 / s", quota.Rate{}, "not an amount"},
		{"cost", "5/min", quota.Rate{}, "not money"},
		{"requests", strings.Repeat("1", 63) + "/s", quota.Rate{}, "longer than 64 bytes"},
	} {
		got, err := quota.ParseRate(c.meter, c.text)
		if got != c.want || (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s %q: %+v, %v; want %+v, %q", c.meter, c.text, got, err, c.want, c.bad)
		}
	}
}

func TestFormatReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meter := rapid.SampledFrom([]quota.Meter{quota.MeterCost, quota.MeterTokens}).Draw(t, "meter")
		rate := quota.Rate{
			Amount: quota.Amount(rapid.OneOf(rapid.Int64Range(0, int64(quota.MaxAmount)), rapid.SampledFrom([]int64{0, 1_000_000, 5_000_000_000})).Draw(t, "amount")),
			Every: time.Duration(rapid.OneOf(
				rapid.Int64Range(1000, 86_400_000_000), rapid.SampledFrom([]int64{1000, 2000, 1_000_000, 60_000_000, 7_200_000_000, 86_400_000_000}),
			).Draw(t, "every")) * time.Microsecond,
		}
		text := quota.FormatRate(meter, rate)
		if got, err := quota.ParseRate(meter, text); err != nil || got != rate {
			t.Fatalf("%+v is written %s, and read %+v, %v", rate, text, got, err)
		}
		text = quota.FormatAmount(meter, rate.Amount)
		if got, err := quota.ParseAmount(meter, text); err != nil || got != rate.Amount {
			t.Fatalf("%d is written %s, and read %d, %v", rate.Amount, text, got, err)
		}
	})
}

func FuzzParseRate(f *testing.F) {
	for _, seed := range []string{"200000/min", "$5/min", "10M/30s", "1/day", "1_0.50K/2h"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, money bool) {
		meter := quota.MeterTokens
		if money {
			meter = quota.MeterCost
		}
		rate, err := quota.ParseRate(meter, text)
		if err != nil {
			return
		}
		if err := rate.Amount.Check(); err != nil || rate.Every < quota.MinEvery || rate.Every > quota.MaxEvery {
			t.Fatalf("%q is read as %+v", text, rate)
		}
		if again, err := quota.ParseRate(meter, quota.FormatRate(meter, rate)); err != nil || again != rate {
			t.Fatalf("%q: %+v and %+v, %v", text, rate, again, err)
		}
	})
}
