package ledgertest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

func oddTexts(t *testing.T, b *bench) {
	for i, text := range []string{
		"'; DROP TABLE usage; --", `"quoted"`, `back\slash`, "{a,b}", "NULL", "a%20b", " leading and trailing ",
		"new\nline\ttab\r", "\x01\x1f\x7f", "日本語", "👩‍👩‍👧‍👦", "e\u0301 and é", "\u202eright to left", "\ufeffbom", "\U0010ffff", "<&>\u2028",
	} {
		c := refund(i)
		c.Account, c.PriceVersion, c.Outcome = text, text, []byte(text)
		c.Labels = map[string]string{text: text, "plain": ""}
		key := ledger.UsageKey{Account: text, Limit: text, Scope: text, Period: text, Meter: quota.Meter(text)}
		c.Lines = []ledger.Line{line(key, 5)}
		b.same("verdict of "+text, b.append(c)[0], verdict(c, true, row(key, 5, 1)))
		b.same("again "+text, b.append(c)[0], verdict(c, false, row(key, 5, 1)))
		b.same("closing of "+text, b.closing(c), c)
		got, err := b.engine().AccountUsage(b.ctx, text, text, 10)
		if err != nil {
			t.Fatalf("usage of %q: %v", text, err)
		}
		b.same("usage of "+text, got, []ledger.Usage{row(key, 5, 1)})
		b.wantBalanced(text)
	}
}

func outOfBounds(t *testing.T, b *bench) {
	long := strings.Repeat("x", ledger.MaxTextBytes+1)
	texts := map[string]string{"long": long, "NUL": "a\x00b", "invalid UTF-8": "a\xffb"}
	type change = func(*ledger.Closing)
	faults := map[string]change{
		"account: is empty":       func(c *ledger.Closing) { c.Account = "" },
		"reservation: ":           func(c *ledger.Closing) { c.Reservation = [16]byte{} },
		"minted: 0001":            func(c *ledger.Closing) { c.Minted = time.Time{} },
		"minted: 1969":            func(c *ledger.Closing) { c.Minted = ledger.MinInstant.Add(-1) },
		"minted: 9999":            func(c *ledger.Closing) { c.Minted = ledger.EndInstant },
		"closed_at: 0001":         func(c *ledger.Closing) { c.ClosedAt = time.Time{} },
		"closed_at: 9999":         func(c *ledger.Closing) { c.ClosedAt = ledger.EndInstant },
		"rank: 0":                 func(c *ledger.Closing) { c.Rank = 0 },
		"rank: 3":                 func(c *ledger.Closing) { c.Rank = 3 },
		"outcome: ":               func(c *ledger.Closing) { c.Outcome = make([]byte, ledger.MaxOutcomeBytes+1) },
		`labels[""]: name: `:      func(c *ledger.Closing) { c.Labels = map[string]string{"": "x"} },
		"lines: 257":              func(c *ledger.Closing) { c.Lines = make([]ledger.Line, ledger.MaxLines+1) },
		"lines[1].period: ":       func(c *ledger.Closing) { c.Lines[1].Period = "" },
		"lines[1].meter: ":        func(c *ledger.Closing) { c.Lines[1].Meter = "" },
		"lines[1].amount: ":       func(c *ledger.Closing) { c.Lines[1].Amount = -1 },
		"lines[0].amount: ":       func(c *ledger.Closing) { c.Lines[0].Amount = quota.MaxAmount + 1 },
		"lines[1].held: is 1 in ": func(c *ledger.Closing) { c.Lines[1].Held = 1 },
		"lines[0].held: amount ":  func(c *ledger.Closing) { c.Lines[0].Limit, c.Lines[0].Held = "", -1 },
		"lines[1].held: amount ":  func(c *ledger.Closing) { c.Lines[1].Limit, c.Lines[1].Held = "", quota.MaxAmount+1 },
		"lines[1]: names the ":    func(c *ledger.Closing) { c.Lines[1] = c.Lines[0] },
		"lines[2]: names the ": func(c *ledger.Closing) {
			c.Lines[0].Limit = ""
			c.Lines = append(c.Lines, c.Lines[0])
			c.Lines[2].Held = 3
		},
		"lines[40]: names the ": func(c *ledger.Closing) { c.Lines = append(manyLines(40), manyLines(1)...) },
		"labels: 33": func(c *ledger.Closing) {
			c.Labels = map[string]string{}
			for i := range quota.MaxLabels + 1 {
				c.Labels[pad(i)] = ""
			}
		},
	}
	for _, text := range texts {
		for field, set := range map[string]func(*ledger.Closing, string){
			"account: ":         func(c *ledger.Closing, text string) { c.Account = text },
			"price_version: ":   func(c *ledger.Closing, text string) { c.PriceVersion = text },
			"labels[":           func(c *ledger.Closing, text string) { c.Labels = map[string]string{text: "x"} },
			`labels["x"]: `:     func(c *ledger.Closing, text string) { c.Labels = map[string]string{"x": text} },
			"lines[0].limit: ":  func(c *ledger.Closing, text string) { c.Lines[0].Limit = text },
			"lines[0].scope: ":  func(c *ledger.Closing, text string) { c.Lines[0].Scope = text },
			"lines[0].period: ": func(c *ledger.Closing, text string) { c.Lines[0].Period = text },
			"lines[0].meter: ":  func(c *ledger.Closing, text string) { c.Lines[0].Meter = quota.Meter(text) },
		} {
			refused(b, field, func(c *ledger.Closing) { set(c, text) })
		}
	}
	for field, fault := range faults {
		refused(b, field, fault)
	}
	if _, err := b.engine().Closing(b.ctx, spend.Account, id(1), noon); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a refused call wrote a closing: %v", err)
	}
	b.wantUsage(spend, 0, 0)
}

// refused checks that a call with one faulty closing is refused as a whole,
// with an error that names the closing and the field.
func refused(b *bench, field string, fault func(*ledger.Closing)) {
	b.t.Helper()
	other := spend
	other.Scope = "other"
	sound := refund(1, line(spend, 1), line(other, 1))
	faulty := refund(2, line(spend, 1), line(other, 1))
	fault(&faulty)
	_, err := b.engine().Append(b.ctx, []ledger.Closing{sound, faulty})
	if !errors.Is(err, ledger.ErrInvalid) || errors.Is(err, ledger.ErrUnavailable) {
		b.t.Errorf("%s: error %v, want ErrInvalid", field, err)
		return
	}
	if message := err.Error(); !strings.Contains(message, "closings[1]."+field) {
		b.t.Errorf("%s: message %q", field, message)
	} else if len(message) > 300 {
		b.t.Errorf("%s: a message of %d bytes", field, len(message))
	}
	if err := faulty.Validate(); !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(err.Error(), field) {
		b.t.Errorf("%s: Validate says %v", field, err)
	}
}

func manyLines(count int) []ledger.Line {
	lines := make([]ledger.Line, count)
	for i := range lines {
		lines[i] = line(spend, 1)
		lines[i].Scope = pad(i)
	}
	return lines
}

func queriesOutOfBounds(t *testing.T, b *bench) {
	l := b.engine()
	long := strings.Repeat("x", ledger.MaxTextBytes+1)
	check := func(what string, err error, field string) {
		t.Helper()
		if !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error %v, want ErrInvalid about %s", what, err, field)
		}
	}
	for _, limit := range []int{-1, 0, ledger.MaxAccountUsage + 1} {
		_, err := l.AccountUsage(b.ctx, spend.Account, "", limit)
		check("account usage", err, "limit: ")
	}
	for _, account := range []string{"", long, "a\x00b", "a\xff"} {
		_, err := l.AccountUsage(b.ctx, account, "", 1)
		check("account usage", err, "account: ")
		_, err = l.Closing(b.ctx, account, id(1), noon)
		check("closing", err, "account: ")
		_, err = l.CheckSums(b.ctx, account)
		check("check sums", err, "account: ")
	}
	_, err := l.AccountUsage(b.ctx, spend.Account, "a\x00", 1)
	check("account usage", err, "period: ")
	_, err = l.Closing(b.ctx, spend.Account, id(1), time.Time{})
	check("closing", err, "minted: ")
	// A key that can't be stored has no row.
	impossible := spend
	impossible.Scope = "a\x00"
	b.wantUsage(impossible, 0, 0)
}
