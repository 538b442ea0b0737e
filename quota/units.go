package quota

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxUnitBytes bounds the text of an amount or a rate.
const maxUnitBytes = 64

// ParseAmount reads an amount of a meter as people write it: "60000",
// "1_000_000", "1.5M" (K, M and G are 1e3, 1e6 and 1e9), and for the cost
// meter, and only for it, money: "$500", "$0.002". The number is exact: a
// fraction of a unit (of a nano-dollar, for money) is refused, not rounded. A
// sign, a leading zero ("010"), an exponent or an amount above [MaxAmount] is
// refused too. Zero is read.
func ParseAmount(meter Meter, text string) (Amount, error) {
	if len(text) > maxUnitBytes {
		return 0, fmt.Errorf("%s is longer than %d bytes; write a number", quoteShort(text), maxUnitBytes)
	}
	digits, money := strings.CutPrefix(text, "$")
	switch {
	case money && meter != MeterCost:
		return 0, fmt.Errorf("%s is money, but the meter is %s; write a number without $, or use meter cost", quoteShort(text), meter)
	case !money && meter == MeterCost:
		return 0, fmt.Errorf("%s is not money; meter cost is in US dollars: write it with $, as in $500", quoteShort(text))
	}
	exponent := 0
	if money {
		exponent = 9 // dollars to nano-dollars
	}
	if digits != "" {
		switch digits[len(digits)-1] {
		case 'K', 'k':
			exponent += 3
		case 'M':
			exponent += 6
		case 'G':
			exponent += 9
		default:
			digits += " " // no suffix to cut
		}
		digits = digits[:len(digits)-1]
	}
	whole, fraction, point := strings.Cut(digits, ".")
	malformed := !isDigits(whole, true) || point && !isDigits(fraction, false)
	if malformed || len(whole) > 1 && whole[0] == '0' {
		return 0, fmt.Errorf("%s is not an amount; write a number such as 60000, 1_000_000, 10M or (for cost) $0.50", quoteShort(text))
	}
	fraction = strings.TrimRight(fraction, "0")
	exponent -= len(fraction)
	if exponent < 0 {
		unit := "a whole number"
		if money {
			unit = "a whole number of nano-dollars (1e-9 USD)"
		}
		return 0, fmt.Errorf("%s is not %s; write fewer decimals", quoteShort(text), unit)
	}
	tooLarge := fmt.Errorf("%s is above the largest amount, %s", quoteShort(text), FormatAmount(meter, MaxAmount))
	var amount Amount
	for _, digit := range []byte(strings.ReplaceAll(whole, "_", "") + fraction + strings.Repeat("0", exponent)) {
		if amount > MaxAmount/10 {
			return 0, tooLarge
		}
		amount = amount*10 + Amount(digit-'0')
	}
	if amount > MaxAmount {
		return 0, tooLarge
	}
	return amount, nil
}

// isDigits says whether the text is one or more digits, with single
// underscores between them where those are allowed.
func isDigits(text string, underscores bool) bool {
	for i := range len(text) {
		c := text[i]
		inside := i > 0 && i < len(text)-1 && text[i-1] != '_'
		if ('0' > c || c > '9') && (c != '_' || !underscores || !inside) {
			return false
		}
	}
	return text != ""
}

// spans are the units of a rate, longest first.
var spans = []struct {
	name string
	span time.Duration
}{
	{"day", 24 * time.Hour},
	{"h", time.Hour},
	{"min", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
	{"us", time.Microsecond},
}

// ParseRate reads a rate of a meter as people write it: an amount as
// [ParseAmount] reads it, a slash, and a span of time: "200000/min", "$5/min",
// "10/30s", "1/day". The units are us, ms, s, min, h and day (of 24 hours),
// with a whole number before them or none for one. The span is from [MinEvery]
// to [MaxEvery].
func ParseRate(meter Meter, text string) (Rate, error) {
	if len(text) > maxUnitBytes {
		return Rate{}, fmt.Errorf("%s is longer than %d bytes; write a rate such as 600/min", quoteShort(text), maxUnitBytes)
	}
	count, per, slash := strings.Cut(text, "/")
	if !slash {
		return Rate{}, fmt.Errorf("%s is not a rate; write an amount and a span, as in 600/min, $5/min or 10/30s", quoteShort(text))
	}
	amount, err := ParseAmount(meter, count)
	if err != nil {
		return Rate{}, fmt.Errorf("in %s, %w", quoteShort(text), err)
	}
	every, err := parseSpan(per)
	if err != nil {
		return Rate{}, fmt.Errorf("in %s, %w", quoteShort(text), err)
	}
	return Rate{Amount: amount, Every: every}, nil
}

func parseSpan(text string) (time.Duration, error) {
	unit := strings.TrimLeft(text, "0123456789")
	digits := text[:len(text)-len(unit)]
	for _, u := range spans {
		if u.name != unit {
			continue
		}
		count := int64(1)
		if digits != "" {
			var err error
			// A span of MaxEvery in microseconds has 11 digits.
			if count, err = strconv.ParseInt(digits, 10, 64); err != nil || len(digits) > 11 || digits[0] == '0' {
				return 0, fmt.Errorf("%s is not a span; write a whole number from 1 before the unit, as in 30s", quoteShort(text))
			}
		}
		if count > int64(MaxEvery/u.span) || time.Duration(count)*u.span < MinEvery {
			return 0, fmt.Errorf("the span %s is not between %v and %v; state the same rate over another span", quoteShort(text), MinEvery, MaxEvery)
		}
		return time.Duration(count) * u.span, nil
	}
	return 0, fmt.Errorf("%s is not a span; write us, ms, s, min, h or day, as in 600/min or 10/30s", quoteShort(text))
}

// ShowAmount writes an amount for people, in full: "$0.50" for cost, else plain
// digits.
func ShowAmount(meter Meter, amount Amount) string {
	if meter == MeterCost {
		return NanoUSD(amount).String()
	}
	return strconv.FormatInt(int64(amount), 10)
}

// FormatAmount writes an amount so that [ParseAmount] reads the same one back:
// "$0.50" for cost, else "10M" for whole millions and plain digits for the
// rest.
func FormatAmount(meter Meter, amount Amount) string {
	if meter != MeterCost && amount != 0 && amount%1_000_000 == 0 {
		return strconv.FormatInt(int64(amount/1_000_000), 10) + "M"
	}
	return ShowAmount(meter, amount)
}

// FormatRate writes a rate so that [ParseRate] reads the same one back, with
// the longest unit that divides the span: "600/min", "10/30s".
func FormatRate(meter Meter, rate Rate) string {
	text := FormatAmount(meter, rate.Amount) + "/"
	for _, u := range spans {
		if rate.Every%u.span != 0 {
			continue
		}
		if count := rate.Every / u.span; count != 1 {
			text += strconv.FormatInt(int64(count), 10)
		}
		return text + u.name
	}
	return text + rate.Every.String() // below a microsecond: no policy has it
}
