package ledger

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// RowID is the id under which engines keep a usage row.
type RowID [16]byte

// ID returns the row's id: the first 16 bytes of the SHA-256 of the five
// fields in order, each after its length as 4 bytes, big-endian. It is a
// function of the key alone, so an entry can name its row with no look-up, and
// it gives all nodes one order in which to lock rows. Part of the stored
// layout.
func (k UsageKey) ID() RowID {
	var space [256]byte
	text := space[:0]
	for _, field := range [...]string{k.Account, k.Limit, k.Scope, k.Period, string(k.Meter)} {
		text = binary.BigEndian.AppendUint32(text, uint32(len(field)))
		text = append(text, field...)
	}
	sum := sha256.Sum256(text)
	return RowID(sum[:16])
}

// Compare orders keys by account, limit, scope, meter and period, each in byte
// order. It is the order in which engines return rows.
func (k UsageKey) Compare(other UsageKey) int {
	return cmp.Or(
		strings.Compare(k.Account, other.Account),
		strings.Compare(k.Limit, other.Limit),
		strings.Compare(k.Scope, other.Scope),
		strings.Compare(string(k.Meter), string(other.Meter)),
		strings.Compare(k.Period, other.Period),
	)
}

// Key returns the usage row of a line in the account.
func (l Line) Key(account string) UsageKey {
	return UsageKey{Account: account, Limit: l.Limit, Scope: l.Scope, Period: l.Period, Meter: l.Meter}
}

// MonthOf returns the first instant of the UTC month of a mint instant: the
// month's partition. A closing is found under its account, reservation and
// month, so a reservation must always be closed with the same Minted.
func MonthOf(minted time.Time) time.Time {
	year, month, _ := minted.UTC().Date()
	return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
}

// Instant returns the instant as ledgers keep it: UTC, whole microseconds,
// rounded down.
func Instant(at time.Time) time.Time { return time.UnixMicro(at.UnixMicro()).UTC() }

// LostRow returns what stands in Limit of a [Mismatch] when entries name a
// usage row that does not exist: all that is left of the row is its id.
func LostRow(id RowID) string { return fmt.Sprintf("(no usage row has the id %x)", id[:]) }

// VerdictOf returns the verdict that names the closing as the winner, without
// Posted and Usage, as an engine would read it back. Its outcome is the
// closing's own memory.
func VerdictOf(closing *Closing) Verdict {
	verdict := Verdict{Rank: closing.Rank, Body: closing.Body, Late: closing.Late, ClosedAt: Instant(closing.ClosedAt)}
	if len(closing.Outcome) > 0 {
		verdict.Outcome = closing.Outcome
	}
	return verdict
}
