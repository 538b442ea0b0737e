package redisstore

import (
	"fmt"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// letterBan begins the names of the keys that count refusals: after it comes the letter
// of the counter's kind.
const letterBan = 'x'

// ban is the key of a hold's refusals and ban: one for all periods of a quota.
func (p space) ban(h *reservation.Hold) string {
	key := p.base + string([]byte{letterBan, letters[h.Kind], ':'}) + p.escaped + ":" + escape(h.Limit)
	if h.Scope != "" {
		key += ":" + escape(h.Scope)
	}
	return key
}

// packRefusals packs how the holds count refusals, as lua/refusals.lua has it, and lists
// the keys that it needs; "" and none where no hold does.
func (s *Store) packRefusals(p space, holds []reservation.Hold) (packed []byte, keys []string) {
	if r := (reservation.ReserveRequest{Holds: holds}); !r.CountsRefusals() {
		return nil, nil
	}
	a := make(args, 0, 16+32*len(holds))
	a.list(5 * len(holds))
	for i := range holds {
		h := &holds[i]
		var key string
		if h.Ban.Refusals > 0 {
			key = p.ban(h)
			keys = append(keys, key)
		}
		a.str(key)
		a.bool(h.CountRefusals)
		a.int(int64(h.Ban.Refusals))
		a.int(h.Ban.Within.Microseconds())
		a.int(h.Ban.For.Microseconds())
	}
	return a, keys
}

// bans reads what Refusals.show in lua/refusals.lua has told.
func (r *reply) bans(states []counterState) {
	if n := r.list(); r.err == nil && n != len(states) {
		r.fault(fmt.Errorf("%d bans are told of %d holds", n, len(states)))
		return
	}
	for i := range states {
		states[i].bannedUntil = r.int()
	}
	marks := r.bytes()
	for i := range states {
		states[i].fitted = i < len(marks) && marks[i] == '1'
	}
}

// refusal says why hold i of a Reserve is refused that would have to start by an
// instant; fits is true when it is not.
func (c counterState) refusal(i int, r *reservation.ReserveRequest, now, until int64) (refusal reservation.Refusal, fits bool) {
	refusal, fits = c.unfit(i, r, now, until)
	h := &r.Holds[i]
	if c.bannedUntil == 0 || h.Amount == 0 || c.funded || h.Kind == quota.KindSlots && r.Settle != nil {
		return refusal, fits
	}
	return refusal.ByBan(instant(c.bannedUntil)), false
}
