// Package cursor writes and reads where a page of the ledger ended. The texts
// are opaque to callers, and the same in every engine.
package cursor

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/budgetd/budgetd/ledger"
)

// Closing is where a walk through closings stands: behind one reservation of a
// month. Without an account it stands before the month's first.
type Closing struct {
	Month       time.Time // the first instant of a UTC month
	Account     string
	Reservation [16]byte
}

// layout: version 1 byte; year 2 bytes, big-endian; month 1; reservation 16;
// account.
const (
	closingVersion = 1
	closingHeader  = 1 + 2 + 1 + 16
)

// String returns the text of the position.
func (c Closing) String() string {
	b := make([]byte, 0, closingHeader+len(c.Account))
	b = append(b, closingVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(c.Month.Year()))
	b = append(b, byte(c.Month.Month()))
	b = append(b, c.Reservation[:]...)
	return base64.RawURLEncoding.EncodeToString(append(b, c.Account...))
}

// ParseClosing reads what String wrote; the zero Closing for an empty text. The
// error wraps ledger.ErrInvalid.
func ParseClosing(text string) (Closing, error) {
	if text == "" {
		return Closing{}, nil
	}
	bad := fmt.Errorf("%w: after: is none that a page gave as next; leave it out to start", ledger.ErrInvalid)
	if len(text) > base64.RawURLEncoding.EncodedLen(closingHeader+ledger.MaxTextBytes) {
		return Closing{}, bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < closingHeader || b[0] != closingVersion {
		return Closing{}, bad
	}
	c := Closing{
		Month:       time.Date(int(binary.BigEndian.Uint16(b[1:])), time.Month(b[3]), 1, 0, 0, 0, 0, time.UTC),
		Reservation: [16]byte(b[4:closingHeader]),
		Account:     string(b[closingHeader:]),
	}
	if b[3] < 1 || b[3] > 12 || c.Month.Before(ledger.MinInstant) || !c.Month.Before(ledger.EndInstant) ||
		!utf8.ValidString(c.Account) || slices.Contains(b[closingHeader:], 0) {
		return Closing{}, bad
	}
	return c, nil
}

// Months returns those of the months that meet the span, from one on, in order.
func Months(all []time.Time, from, to, first time.Time) []time.Time {
	var months []time.Time
	for _, month := range all {
		month = month.UTC()
		if !month.Before(first) && !month.Before(ledger.MonthOf(from)) && month.Before(to) {
			months = append(months, month)
		}
	}
	slices.SortFunc(months, time.Time.Compare)
	return months
}
