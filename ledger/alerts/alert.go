package alerts

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Event is a threshold of one usage row that was reached.
type Event struct {
	ledger.UsageKey
	LimitName string       // quota.Limit.Name
	Percent   int          // of the amount, as quota.Limit.AlertAt states it
	Used      quota.Amount // in the meter's unit, when it was noticed
	Amount    quota.Amount // what the quota allowed then
	RaisedAt  time.Time    // whole microseconds, UTC
}

// ID returns the alert's id, "alert_" and 32 hex digits: the first 16 bytes of
// the SHA-256 of account, limit, scope and period, each after its length as 4
// bytes, big-endian, and of the percent as 4 bytes. It is a function of what
// makes an alert one, so every node gives an alert the same id. Part of the
// stored layout.
func (e *Event) ID() string {
	var text []byte
	for _, field := range [...]string{e.Account, e.Limit, e.Scope, e.Period} {
		text = binary.BigEndian.AppendUint32(text, uint32(len(field)))
		text = append(text, field...)
	}
	text = binary.BigEndian.AppendUint32(text, uint32(e.Percent))
	sum := sha256.Sum256(text)
	return "alert_" + hex.EncodeToString(sum[:16])
}

// State is where the delivery of an alert stands.
type State string

// The states of a delivery.
const (
	StateQuiet     State = "quiet"     // no webhook was configured when it was raised
	StatePending   State = "pending"   // it waits for its first or next attempt
	StateDelivered State = "delivered" // the receiver answered 2xx
	StateFailed    State = "failed"    // it was given up
)

// Alert is an event as the store keeps it, with what became of its delivery.
type Alert struct {
	ID string
	Event
	State       State
	Attempts    int       // that were begun
	NextAttempt time.Time // StatePending
	DeliveredAt time.Time // StateDelivered
	FailedAt    time.Time // StateFailed
	LastError   string    // of the last attempt that failed, at most MaxErrorBytes bytes; "" for none
}
