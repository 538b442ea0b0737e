package reservation

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// MaxOpenPage is how many open reservations one call of [Store.Open] returns.
const MaxOpenPage = 1000

// MaxCursorBytes bounds the cursor of a page.
const MaxCursorBytes = 256

// OpenReservation is one held reservation.
type OpenReservation struct {
	ID        ID
	ExpiresAt time.Time
	Token     []byte
}

// OpenPage is a part of an account's open reservations.
type OpenPage struct {
	Open   []OpenReservation
	Cursor string // of the next page; "" when this was the last
	Now    time.Time
}

// OpenPlace is where a page of open reservations ended, in the order of lease
// end and id.
type OpenPlace struct {
	Ends int64 // microseconds since 1970; 0 before the first
	ID   ID
}

// Before says whether the place comes before that of a lease end and an id.
func (p OpenPlace) Before(ends int64, id ID) bool {
	return cmp.Or(cmp.Compare(p.Ends, ends), bytes.Compare(p.ID[:], id[:])) < 0
}

// Cursor is the place as [OpenPage] gives it.
func (p OpenPlace) Cursor() string {
	return strconv.FormatInt(p.Ends, 10) + "." + base64.RawURLEncoding.EncodeToString(p.ID[:])
}

// ParseOpen checks what an engine is asked for a page of open reservations. Its
// error wraps [ErrBadRequest] and names the field.
func ParseOpen(account, cursor string, most int) (OpenPlace, error) {
	var place OpenPlace
	if err := ValidateAccount(account); err != nil {
		return place, err
	}
	if err := checkRange("most", int64(most), 1, MaxOpenPage); err != nil {
		return place, err
	}
	if cursor == "" {
		return place, nil
	}
	if err := checkSize("cursor", len(cursor), MaxCursorBytes); err != nil {
		return place, err
	}
	ends, id, _ := strings.Cut(cursor, ".")
	micros, err := strconv.ParseInt(ends, 10, 64)
	raw, err2 := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || err2 != nil || len(raw) != len(place.ID) || micros < 1 || micros > int64(quota.MaxAmount) {
		return place, badRequest("cursor", "%q is none of a page before; leave it out to begin", cursor)
	}
	place.Ends = micros
	copy(place.ID[:], raw)
	return place, nil
}
