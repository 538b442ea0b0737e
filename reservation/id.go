package reservation

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// ID names a reservation inside the engine and the ledger: 8 bytes of
// microseconds since 1970 (UTC, big-endian) at which it was minted, then 8
// random bytes. What callers see is a token that carries it.
type ID [16]byte

// NewID mints an id at an instant of the engine's clock.
func NewID(minted time.Time) ID {
	var id ID
	binary.BigEndian.PutUint64(id[:8], uint64(minted.UnixMicro()))
	rand.Read(id[8:]) // never fails, see crypto/rand
	return id
}

// Minted returns when the id was minted, in UTC, to the microsecond.
func (id ID) Minted() time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(id[:8]))).UTC()
}

// String returns 22 characters of unpadded base64url.
func (id ID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// Hash is a truncated SHA-256 of a canonical body: two requests with equal
// hashes are the same request.
type Hash [16]byte
