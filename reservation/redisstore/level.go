package redisstore

import (
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// counterState is what a counter shows, as the scripts answer it.
type counterState struct {
	level quota.Amount // bucket
	rest  int64        // bucket: remainder, in units of 1/PerMicros
	risk  quota.Amount // bucket: open sum of risks
	of    int64        // bucket: the level's instant, where that is later than it counts as of, microseconds; else 0

	start   int64         // with a rate: a start that is ahead, microseconds; 0 for none
	arrival int64         // GCRA: theoretical arrival time, queue: when it is empty; microseconds
	counted quota.Counted // windows, as of when they count

	taken    quota.Amount // slots
	earliest int64        // slots: earliest lease end, microseconds; 0: none

	ahead     quota.Amount // slots, refused: callers in line that come first
	placeEnds int64        // slots, refused: first end of a place in line, microseconds; 0: none

	used, held, unposted quota.Amount // quota
	version              int64        // quota
	seeded               bool         // quota

	bannedUntil int64 // microseconds; 0 for none now
	fitted      bool  // before a refusal of the Reserve was counted, as the script says
	share       int64 // of a fair hold: until when the account has had its share, microseconds; 0: past
	sharing     int   // likewise: how many accounts use the counter

	funded bool         // a Reserve's parent pays the hold
	room   quota.Amount // funded: what it has left
}

// latest is the last instant that an answer names: beyond it "later" says
// nothing more.
var latest = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC).UnixMicro()

// after returns now + wait, at most latest.
func after(now, wait int64) time.Time { return instant(min(later(now, wait), latest)) }

// later is now + wait, quota.MicrosNever at most.
func later(now, wait int64) int64 {
	if wait > quota.MicrosNever-now {
		return quota.MicrosNever
	}
	return now + wait
}

// show is the level of a hold's counter.
func (c counterState) show(h *reservation.Hold, now int64) reservation.Level {
	l := c.shown(h, now)
	if c.bannedUntil != 0 {
		l.BannedUntil = instant(c.bannedUntil)
	}
	if share := quota.FairShare(h.Bucket); h.Fair {
		l.Sharing = c.sharing
		if share.IsAhead(c.share, now) {
			l.ShareAt = instant(c.share - share.Slack())
		}
	}
	return l
}

// shown is its level without a ban.
func (c counterState) shown(h *reservation.Hold, now int64) reservation.Level {
	at := max(now, c.start)
	switch h.Kind {
	case quota.KindBucket:
		l := reservation.Level{Remaining: c.left(c.level, now), Seeded: true, Risk: c.risk}
		if wait := h.Bucket.MicrosUntil(c.level, c.rest, h.Bucket.Capacity); wait != 0 || at > now {
			if wait != 0 {
				at = c.refillsFrom(now)
			}
			l.ResetsAt = after(at, wait)
		}
		return l
	case quota.KindGCRA, quota.KindLeakyQueue:
		l := reservation.Level{Remaining: c.left(quota.GCRA(h.Bucket).Remaining(c.arrival, at), now), Seeded: true}
		if c.arrival > now || at > now {
			l.ResetsAt = after(now, max(c.arrival, at)-now)
		}
		return l
	case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
		l := reservation.Level{Remaining: c.left(h.Window.Remaining(c.counted, at), now), Seeded: true}
		if at > now {
			l.ResetsAt = instant(at)
		}
		if ends := h.Window.EmptyAt(c.counted); ends != 0 {
			l.ResetsAt = instant(ends)
		}
		return l
	case quota.KindSlots:
		l := reservation.Level{Remaining: h.Max - c.taken, Held: c.taken, Seeded: true}
		if c.earliest != 0 {
			l.ResetsAt = instant(c.earliest)
		}
		return l
	default:
		l := reservation.Level{ResetsAt: h.Period.End, Held: c.held, Unposted: c.unposted, Seeded: c.seeded}
		if c.seeded {
			l.Used, l.Version = c.used, c.version
			l.Remaining = h.Max - c.used - c.held - c.unposted
		}
		return l
	}
}

func showAll(holds []reservation.Hold, states []counterState, now int64) []reservation.Level {
	levels := make([]reservation.Level, len(holds))
	for i := range holds {
		levels[i] = states[i].show(&holds[i], now)
	}
	return levels
}

// unfit says why hold i of a Reserve can't start by an instant, whatever is banned; fits
// is true when it can. Asked and Remaining are told in any case.
func (c counterState) unfit(i int, r *reservation.ReserveRequest, now, until int64) (refusal reservation.Refusal, fits bool) {
	h := &r.Holds[i]
	level := c.show(h, now)
	if h.Kind == quota.KindSlots {
		c.standBehind(&level)
	}
	if c.funded {
		level.Remaining, c.risk = c.room, 0
		r = withoutForecast(r, i)
	}
	asked, want, soonest := h.Amount, h.Amount, time.Duration(0)
	keep, reserve := h.Keep, quota.Amount(0)
	share := quota.FairShare(h.Bucket)
	ahead := h.Fair && !c.funded && share.IsAhead(c.share, now)
	switch {
	case c.funded:
		keep = 0 // the parent took it before
	case ahead:
		reserve = share.Reserve()
	}
	room := level.Remaining - keep - reserve
	if r.Output != nil && h.Kind == quota.KindLeakyQueue && !h.Shadow && !c.funded && c.arrival > now {
		room = min(room, 0) // what chooses does not wait
	}
	switch {
	case h.Kind.HasRate() && !c.funded:
		first := c.startFor(h, asked+keep+reserve, now)
		fits = asked == 0 || first <= until && (!ahead || first <= now)
	default:
		fits = asked == 0 || asked <= room || r.Settle != nil && h.Kind == quota.KindSlots
	}
	if r.Output != nil {
		_, fits = r.Output.Held(i, h, r.Output.Least, room, c.risk)
		asked, want, soonest = r.Output.Refused(i, h, c.risk)
	}
	if fits {
		return reservation.Refusal{Hold: i, Asked: asked, Remaining: level.Remaining}, true
	}
	refusal = reservation.Refusal{Hold: i, Asked: asked, Remaining: level.Remaining, RetryAt: level.ResetsAt}
	if ahead {
		refusal.Sharing = c.sharing
	}
	want += keep // two amounts of 53 bits
	switch {
	case c.funded:
		refusal.Reason, refusal.RetryAt = reservation.EnvelopeExhausted, time.Time{}
	case want > h.Capacity():
		refusal.Reason, refusal.RetryAt = reservation.ExceedsCapacity, time.Time{}
	case h.Kind.HasRate():
		refusal.Reason = reservation.RateLimited
		retry := c.retryFor(h, want, now)
		if ahead {
			// Once the reserve is covered too, or once it need not be left.
			retry = min(c.startFor(h, want+reserve, now), max(retry, c.share-share.Slack()))
		}
		refusal.RetryAt = after(0, max(retry, now+soonest.Microseconds()))
	case h.Kind == quota.KindSlots:
		refusal.Reason = reservation.ConcurrencyLimited
	default:
		refusal.Reason = reservation.QuotaExhausted
	}
	return refusal, false
}

// strictest returns the strictest refusal among the holds: one that no waiting
// helps first, then the latest RetryAt, then the first in the plan's order.
func strictest(r *reservation.ReserveRequest, states []counterState, now, until int64) (worst reservation.Refusal, any bool) {
	for i := range r.Holds {
		if r.Holds[i].Shadow || states[i].fitted {
			continue
		}
		refusal, fits := states[i].refusal(i, r, now, until)
		if !fits && (!any || refusal.Stricter(worst)) {
			worst, any = refusal, true
		}
	}
	return worst, any
}

// shadowRefusals says why each missed hold did not fit. Its counter is as it was:
// the states afterwards tell.
func shadowRefusals(r *reservation.ReserveRequest, d reservation.Decided, states []counterState, start, now int64) []reservation.Refusal {
	if d.Missed == nil {
		return nil
	}
	var refusals []reservation.Refusal
	granting := r.Granting(d)
	for i, missed := range d.Missed {
		if !missed {
			continue
		}
		until := start
		if r.Holds[i].Kind == quota.KindLeakyQueue {
			until = granting.QueueUntil(now)
		}
		refusal, fits := states[i].refusal(i, granting, now, until)
		if fits {
			// A pool elsewhere was asked for more than was granted in the end.
			level := states[i].show(&r.Holds[i], now)
			refusal = reservation.Refusal{Hold: i, Reason: reservation.RateLimited, Asked: r.Holds[i].Amount, Remaining: level.Remaining, RetryAt: instant(now)}
		}
		refusals = append(refusals, refusal)
	}
	return refusals
}
