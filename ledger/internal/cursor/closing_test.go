package cursor_test

import (
	"errors"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/cursor"
)

func FuzzParseClosing(f *testing.F) {
	f.Add("")
	f.Add(cursor.Closing{Month: ledger.MinInstant}.String())
	f.Add(cursor.Closing{Month: time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC), Account: "acme", Reservation: [16]byte{1, 2, 3}}.String())
	f.Add("AQfqDA")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := cursor.ParseClosing(text)
		if err != nil {
			if !errors.Is(err, ledger.ErrInvalid) {
				t.Fatalf("error %v, want ErrInvalid", err)
			}
			return
		}
		if text == "" {
			if c != (cursor.Closing{}) {
				t.Fatalf("nothing was read as %+v", c)
			}
			return
		}
		if c.String() != text {
			t.Fatalf("%q came back as %q", text, c.String())
		}
		if !c.Month.Equal(ledger.MonthOf(c.Month)) {
			t.Fatalf("%s is no month", c.Month)
		}
	})
}
