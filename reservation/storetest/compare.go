package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// differences collects what an engine answered otherwise than the model.
type differences []string

func (d *differences) check(same bool, field string, got, want any) {
	if !same {
		*d = append(*d, fmt.Sprintf("%s: engine %v, model %v", field, got, want))
	}
}

func (d differences) err(call string) error {
	if len(d) == 0 {
		return nil
	}
	return fmt.Errorf("%s differs from the model:\n\t%s", call, strings.Join(d, "\n\t"))
}

// sameInstant compares to the microsecond; what lies beyond the year 2200 is
// all the same.
func sameInstant(a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() == b.IsZero()
	}
	x, y := a.UnixMicro(), b.UnixMicro()
	return x == y || x >= farMicros && y >= farMicros
}

func shown(t time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return t.UTC().Format("2006-01-02 15:04:05.000000")
}

func (d *differences) instant(field string, got, want time.Time) {
	if !sameInstant(got, want) {
		d.check(false, field, shown(got), shown(want))
	}
}

// sameLevel says that two levels are equal to the last field.
func sameLevel(a, b reservation.Level) bool {
	at, bt, as, bs := a.ResetsAt, b.ResetsAt, a.ShareAt, b.ShareAt
	a.ResetsAt, b.ResetsAt, a.ShareAt, b.ShareAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	au, bu := a.BannedUntil, b.BannedUntil
	a.BannedUntil, b.BannedUntil = time.Time{}, time.Time{}
	return a == b && sameInstant(at, bt) && sameInstant(as, bs) && sameInstant(au, bu)
}

func (d *differences) levels(now time.Time, holds []reservation.Hold, got, want []reservation.Level) {
	if len(got) != len(want) {
		d.check(false, "number of levels", len(got), len(want))
		return
	}
	for i := range got {
		g, w := got[i], want[i]
		if sameLevel(g, w) {
			continue
		}
		field := fmt.Sprintf("level %d (%s)", i, holds[i].Limit)
		d.check(g.Held == w.Held, field+" held", g.Held, w.Held)
		d.check(g.Unposted == w.Unposted, field+" unposted", g.Unposted, w.Unposted)
		d.instant(field+" banned until", g.BannedUntil, w.BannedUntil)
		if holds[i].Kind == quota.KindQuota {
			d.instant(field+" resets", g.ResetsAt, w.ResetsAt)
			if !now.Before(holds[i].Period.End) {
				continue // its counter may have been dropped when nothing was open
			}
			d.check(g.Seeded == w.Seeded, field+" seeded", g.Seeded, w.Seeded)
			if g.Seeded && w.Seeded {
				d.check(g.Used == w.Used, field+" used", g.Used, w.Used)
				d.check(g.Version == w.Version, field+" version", g.Version, w.Version)
				d.check(g.Remaining == w.Remaining, field+" remaining", g.Remaining, w.Remaining)
			}
			continue
		}
		d.check(g.Seeded, field+" seeded", g.Seeded, true)
		d.check(g.Risk == w.Risk, field+" risk", g.Risk, w.Risk)
		d.check(g.Sharing == w.Sharing, field+" sharing", g.Sharing, w.Sharing)
		d.instant(field+" share", g.ShareAt, w.ShareAt)
		d.check(g.Used == w.Used, field+" used", g.Used, w.Used)
		d.check(g.Version == w.Version, field+" version", g.Version, w.Version)
		d.check(g.Remaining == w.Remaining, field+" remaining", g.Remaining, w.Remaining)
		d.instant(field+" resets", g.ResetsAt, w.ResetsAt)
	}
}

// record compares what an engine remembers. The model's record r may be nil.
func (d *differences) record(field string, now time.Time, r *modelRecord, got, want reservation.Record) {
	d.check(got.State == want.State, field+" state", stateName(got.State), stateName(want.State))
	if got.State != want.State || want.State == reservation.StateUnknown {
		return
	}
	d.instant(field+" starts", got.StartAt, want.StartAt)
	d.instant(field+" expires", got.ExpiresAt, want.ExpiresAt)
	replayable := r != nil && r.key != "" && now.UnixMicro() < r.expires+r.retention
	optional := want.Confirmed && !replayable
	d.check(sameToken(got.Token, want.Token, want.Rank) || optional && len(got.Token) == 0, field+" token", got.Token, want.Token)
	if want.Rank == 0 { // held, or its lease has ended and nobody reclaimed it yet
		d.check(!got.Confirmed, field+" confirmed", got.Confirmed, false)
		d.check(want.State == reservation.StateExpired || got.Rank == 0, field+" rank", got.Rank, want.Rank)
		return
	}
	d.check(got.Rank == want.Rank, field+" rank", got.Rank, want.Rank)
	d.check(got.Body == want.Body, field+" body", got.Body, want.Body)
	d.check(bytes.Equal(got.Outcome, want.Outcome), field+" outcome", string(got.Outcome), string(want.Outcome))
	d.check(got.Late == want.Late, field+" late", got.Late, want.Late)
	d.check(got.Confirmed == want.Confirmed, field+" confirmed", got.Confirmed, want.Confirmed)
	if want.Rank == ledger.RankExpired && !want.Confirmed {
		// Ended between the lease's end and now, whenever it was reclaimed.
		if got.ClosedAt.Before(want.ExpiresAt) || got.ClosedAt.After(now) {
			d.check(false, field+" closed at", shown(got.ClosedAt), shown(want.ClosedAt)+" or the reclaim")
		}
	} else {
		d.instant(field+" closed at", got.ClosedAt, want.ClosedAt)
	}
	if len(got.Actual) != len(want.Actual) {
		d.check(false, field+" actual", got.Actual, want.Actual)
		return
	}
	for i := range want.Actual {
		if slots := r != nil && r.holds[i].Kind == quota.KindSlots; !slots && got.Actual[i] != want.Actual[i] {
			d.check(false, fmt.Sprintf("%s actual %d", field, i), got.Actual[i], want.Actual[i])
		}
	}
}

// sameToken compares tokens. Once a reservation is closed, a Refund may have
// brought the token without the decision behind it.
func sameToken(got, want []byte, rank ledger.Rank) bool {
	if bytes.Equal(got, want) {
		return true
	}
	bare, _, decided := reservation.SplitDecided(want)
	return rank != 0 && decided && bytes.Equal(got, bare)
}

var (
	reserveNames = []string{"", "granted", "replayed", "key_reused", "closed", "stale", "unseeded", "refused", "parent_ended", "parent_full"}
	refundNames  = []string{"", "settled", "same", "conflict", "unknown", "forgotten", "ended"}
	confirmNames = []string{"", "adopted", "stopped", "unknown", "old"}
	restoreNames = []string{"", "restored", "known", "ended"}
	stateNames   = []string{"unknown", "held", "expired", "settled"}
	reasonNames  = []string{"", "rate_limited", "concurrency_limited", "quota_exhausted", "exceeds_capacity", "quota_held", "envelope_exhausted", "banned"}
)

func nameIn[T ~uint8](names []string, v T) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%d (no such value)", v)
}

func stateName(s reservation.State) string { return nameIn(stateNames, s) }
