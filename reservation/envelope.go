package reservation

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/budgetd/budgetd/quota"
)

// Bounds of a tree of reservations, which bound what closing one of them costs.
const (
	// MaxTreeOpen is how many reservations may be open below the one that the tree
	// begins with.
	MaxTreeOpen = 256
	// MaxTreeDepth is how many generations a tree has below the first one.
	MaxTreeDepth = 8
)

// An envelope is a reservation that others are made in: their parent.
//
// For each counter in which the parent was granted an amount, a child takes from
// what the parent has left of it, and the counter stays as it is: the parent's
// share shrinks by what the child's grows. The parent's slot covers its children,
// who take none. What the parent holds nothing of, a child takes from the limit, as
// any reservation does. It is one step, all or nothing.
//
// While the parent is held and its lease runs, what a child used less than it took
// is the parent's again, and what it used more is taken from what the parent has
// left, and from the limit beyond that. A parent never has more than it was granted.
// After that a child is settled as any reservation is.
//
// A child's lease ends with its parent's at the latest. Closing the parent before
// its lease has ended ends the leases of all that is open below it, at that instant;
// what they are remembered for afterwards grows by what their leases lost. They
// then end as leases do: by the limits' rules, and a late Refund counts.
//
// A hold on a limit in shadow is never the envelope's: that limit is asked, as always.
// What is counted under an instant (windows) stays under the parent's.

// HoldSet is a set of holds by their index in a plan, at most [MaxHolds].
type HoldSet uint64

// Has says whether hold i is in the set.
func (s HoldSet) Has(i int) bool { return i < MaxHolds && s>>i&1 == 1 }

// With is the set and hold i.
func (s HoldSet) With(i int) HoldSet { return s | 1<<i }

// Kin names the envelope of a reservation that the engine may have lost.
type Kin struct {
	Parent ID      // the zero ID: none
	Taken  HoldSet // holds that were taken from the parent
}

// InEnvelope says whether the reservation has a parent.
func (k Kin) InEnvelope() bool { return k.Parent != ID{} }

// SameCounter says whether two holds take from the same counter.
func (h *Hold) SameCounter(other *Hold) bool {
	return h.Counter == other.Counter && h.Kind == other.Kind && h.Period.Key == other.Period.Key
}

// fundedBy returns which of the holds an envelope with such holds pays.
func fundedBy(parent, holds []Hold) HoldSet {
	var funded HoldSet
	for i := range holds {
		if !holds[i].Shadow && slices.ContainsFunc(parent, func(p Hold) bool { return p.Amount > 0 && p.SameCounter(&holds[i]) }) {
			funded = funded.With(i)
		}
	}
	return funded
}

// spilled names the holds that a child takes from the limit where its parent has too
// little left: requests, of which every call is one, whatever its envelope was made
// for.
func spilled(holds []plannedHold) HoldSet {
	var spilled HoldSet
	for i := range holds {
		if holds[i].Meter == quota.MeterRequests {
			spilled = spilled.With(i)
		}
	}
	return spilled
}

// envelope is the parent of a Reserve on its way.
type envelope struct {
	token *reservationToken
	raw   []byte
	again bool // it was brought back once
}

// openParent finds the parent that an ask names. One of another account is as one
// that does not exist.
func (b *Broker) openParent(ask *Ask) (*envelope, error) {
	if ask.Parent == "" {
		return nil, nil
	}
	token, raw, err := openTokenText(ask.Parent, b.Keys)
	switch {
	case err != nil || token.Account != ask.Account:
		return nil, ErrParentUnknown
	case token.Charge:
		return nil, &InvalidError{Field: "parent", Problem: "is a charge, which holds nothing", Bound: "a reservation_id that Reserve gave"}
	}
	return &envelope{token: token, raw: raw}, nil
}

// kin is what the token of a reservation with such holds says of the envelope.
func (e *envelope) kin(holds []plannedHold) Kin {
	if e == nil {
		return Kin{}
	}
	own := make([]Hold, len(holds))
	for i := range holds {
		own[i] = holds[i].Hold
	}
	return Kin{Parent: e.token.ID, Taken: fundedBy(e.token.holds(), own)}
}

// revive brings a parent back that the engine has lost. It says whether to ask again.
func (b *Broker) revive(ctx context.Context, e *envelope, now time.Time) (bool, error) {
	if e.again || e.token.Degraded {
		return false, nil
	}
	e.again = true
	record, err := b.Store.Lookup(ctx, e.token.Account, e.token.ID)
	if err != nil || record.State != StateUnknown {
		return false, engineError(err)
	}
	held := b.registry.findOr(e.token, e.raw)
	if held.expiresAt <= now.UnixMicro() {
		return false, nil
	}
	verdict, err := b.restore(ctx, e.token, &held, time.UnixMicro(held.expiresAt).UTC())
	return err == nil && verdict != RestoreEnded, err
}

func appendKin(b []byte, k Kin) []byte {
	if !k.InEnvelope() {
		return msgp.AppendString(b, "")
	}
	b = msgp.AppendString(b, string(k.Parent[:]))
	return msgp.AppendUint64(b, uint64(k.Taken))
}

func (r *reader) kin() Kin {
	var k Kin
	switch parent := r.text(); len(parent) {
	case 0:
		return k
	case len(k.Parent):
		copy(k.Parent[:], parent)
	default:
		r.err = errBadToken
	}
	if r.err == nil {
		var taken uint64
		taken, r.rest, r.err = msgp.ReadUint64Bytes(r.rest)
		k.Taken = HoldSet(taken)
	}
	return k
}

// partKin parts what is to be brought back: what has no parent, and what has one, in
// the order in which it was made.
func (b *Broker) partKin(due []registered) (first, second []registered) {
	for _, e := range due {
		if token, err := openToken(e.raw, b.Keys); err == nil && token.Kin.InEnvelope() {
			second = append(second, e)
		} else {
			first = append(first, e)
		}
	}
	slices.SortFunc(second, func(a, b registered) int { return bytes.Compare(a.id[:], b.id[:]) })
	return first, second
}
