package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Where a counter lives, as in lua/prelude.lua.
const (
	inField = 0
	inKey   = 1
	remote  = 2
)

// args collects a script's packed argument: MessagePack values in a row.
type args []byte

func (a *args) int(n int64)     { *a = msgp.AppendInt64(*a, n) }
func (a *args) str(s string)    { *a = msgp.AppendString(*a, s) }
func (a *args) bytes(b []byte)  { *a = msgp.AppendStringFromBytes(*a, b) }
func (a *args) list(length int) { *a = msgp.AppendArrayHeader(*a, uint32(length)) }
func (a *args) bool(b bool) {
	if b {
		a.int(1)
		return
	}
	a.int(0)
}

// amounts packs a list of amounts.
func amounts(list []quota.Amount) []byte {
	var a args
	a.list(len(list))
	for _, n := range list {
		a.int(int64(n))
	}
	return a
}

// letters begin the names of the counters of each kind.
var letters = [...]byte{
	quota.KindBucket: 'b', quota.KindSlots: 'z', quota.KindQuota: 'q', quota.KindGCRA: 'g',
	quota.KindFixedWindow: 'f', quota.KindSlidingCounter: 'c', quota.KindSlidingLog: 'l', quota.KindLeakyQueue: 'u',
}

// place says where a counter is: a field of the account's hash, or a key.
func (s *Store) place(p space, kind quota.Kind, c reservation.Counter) (where int, ref string) {
	letter := letters[kind]
	switch {
	case c.Pool != "":
		return inKey, s.pool(c.Pool).own(letter, c.Limit, c.Scope)
	case c.Scope != "" || kind == quota.KindSlots:
		return inKey, p.own(letter, c.Limit, c.Scope)
	}
	return inField, string(letter) + c.Limit
}

// plan packs holds as the scripts keep them, and lists the keys that the
// counters have of their own. Off a Cluster a pool's counters are keys like
// others; on it they belong to the pool's leg, which expires by charging, and
// the account's plan only names them.
//
// Windows and queues count the holds under the instant at, in microseconds; a Reserve's
// script finds it for itself.
func (s *Store) plan(p space, holds []reservation.Hold, at int64, leg bool) (packed []byte, keys []string) {
	a := make(args, 0, 16+64*len(holds))
	for i := range holds {
		h := &holds[i]
		var where int
		var ref string
		if h.Pool != "" && s.cluster != nil && !leg {
			where, ref = remote, string(packCounter(h.Counter))
		} else {
			where, ref = s.place(p, h.Kind, h.Counter)
		}
		if where == inKey {
			keys = append(keys, ref)
			if h.Fair {
				keys = append(keys, ref+"~")
			}
		}
		a.int(int64(h.Kind))
		a.int(int64(where))
		a.str(ref)
		a.int(int64(h.Amount))
		a.bool(leg || h.OnExpiry == quota.ExpiryCharge)
		switch h.Kind {
		case quota.KindBucket, quota.KindGCRA:
			a.int(int64(h.Bucket.Capacity))
			a.int(int64(h.Bucket.Refill))
			a.int(h.Bucket.PerMicros)
			a.int(int64(h.Risk))
		case quota.KindLeakyQueue:
			a.int(int64(h.Bucket.Capacity))
			a.int(int64(h.Bucket.Refill))
			a.int(h.Bucket.PerMicros)
			a.int(at)
		case quota.KindQuota:
			a.int(int64(h.Max))
			a.str(h.Period.Key)
			a.int(h.Period.End.UnixMicro())
			a.int(h.Period.Start.UnixMicro())
		case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
			a.int(int64(h.Window.Max))
			a.int(h.Window.Length)
			a.bool(h.Window.Calendar)
			a.int(at)
		default:
			a.int(int64(h.Max))
			a.int(0)
			a.int(0)
			a.int(0)
		}
	}
	return a, keys
}

func packCounter(c reservation.Counter) []byte {
	var a args
	a.str(c.Pool)
	a.str(c.Limit)
	a.str(c.Scope)
	return a
}

// planned reads a plan back. Only a pool's hold on a Cluster gets its counter's
// name back; of the others only what levels need.
func planned(packed []byte) ([]reservation.Hold, error) {
	r := reply{rest: packed}
	var holds []reservation.Hold
	for len(r.rest) > 0 {
		var h reservation.Hold
		h.Kind = quota.Kind(r.int())
		where := r.int()
		ref := r.bytes()
		h.Amount = quota.Amount(r.int())
		h.OnExpiry = quota.ExpiryGiveBack
		if r.int() == 1 {
			h.OnExpiry = quota.ExpiryCharge
		}
		switch h.Kind {
		case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
			h.Window = quota.Window{Kind: h.Kind, Max: quota.Amount(r.int()), Length: r.int(), Calendar: r.int() == 1}
			r.int()
		case quota.KindBucket, quota.KindGCRA:
			h.Bucket.Capacity = quota.Amount(r.int())
			h.Bucket.Refill = quota.Amount(r.int())
			h.Bucket.PerMicros = r.int()
			h.Risk = quota.Amount(r.int())
		case quota.KindLeakyQueue:
			h.Bucket.Capacity = quota.Amount(r.int())
			h.Bucket.Refill = quota.Amount(r.int())
			h.Bucket.PerMicros = r.int()
			r.int()
		case quota.KindQuota:
			h.Max = quota.Amount(r.int())
			h.Period.Key = string(r.bytes())
			h.Period.End = instant(r.int())
			h.Period.Start = instant(r.int())
		default:
			h.Max = quota.Amount(r.int())
			r.int()
			r.int()
			r.int()
		}
		if where == remote {
			c := reply{rest: ref}
			h.Counter = reservation.Counter{Pool: string(c.bytes()), Limit: string(c.bytes()), Scope: string(c.bytes())}
			if c.err != nil {
				return nil, c.err
			}
		}
		if r.err != nil {
			return nil, r.err
		}
		holds = append(holds, h)
	}
	return holds, nil
}

// packOutput packs an Output as the script takes it, "" for none. most is how
// many tokens it may grant. taken says, for a pool elsewhere, that its hold is
// the forecast; nil for none.
func packOutput(o *reservation.Output, most int64, taken []bool) []byte {
	if o == nil {
		return nil
	}
	a := make(args, 0, 64+32*len(o.Slopes))
	a.list(4 + 6*len(o.Slopes))
	a.int(o.Asked)
	a.int(o.Least)
	a.int(o.Forecast)
	a.int(most)
	for i, s := range o.Slopes {
		a.int(s.PerToken)
		a.int(s.Per)
		a.int(s.Rest)
		a.int(int64(s.Weight))
		a.int(int64(s.Tolerance))
		a.bool(i < len(taken) && taken[i])
	}
	return a
}

// packKeeps lists what a Reserve of the account must leave of each hold's counter, and
// where any is fair, which are, and the account; "" for nothing anywhere.
func packKeeps(account string, holds []reservation.Hold) []byte {
	fair := hasFair(holds)
	if !fair && !slices.ContainsFunc(holds, func(h reservation.Hold) bool { return h.Keep > 0 }) {
		return nil
	}
	a := make(args, 0, 16+10*len(holds)+len(account))
	if fair {
		a.list(2*len(holds) + 1)
	} else {
		a.list(len(holds))
	}
	for i := range holds {
		a.int(int64(holds[i].Keep))
	}
	if fair {
		for i := range holds {
			a.bool(holds[i].Fair)
		}
		a.str(account)
	}
	return a
}

func hasFair(holds []reservation.Hold) bool {
	return slices.ContainsFunc(holds, func(h reservation.Hold) bool { return h.Fair })
}

// decided reads what a Reserve with an Output chose.
func (r *reply) decided() reservation.Decided {
	d := reservation.Decided{Tokens: r.int()}
	d.Mark(r.bytes())
	return d
}

// packShadows says for each hold whether it is that of a shadow limit ('1'), one
// that a pool elsewhere has missed ('2'), or neither ('0'); "" without shadow holds.
func packShadows(r *reservation.ReserveRequest, missed []bool) []byte {
	if !r.Shadows() {
		return nil
	}
	marks := make([]byte, len(r.Holds))
	for i := range r.Holds {
		switch {
		case i < len(missed) && missed[i]:
			marks[i] = '2'
		case r.Holds[i].Shadow:
			marks[i] = '1'
		default:
			marks[i] = '0'
		}
	}
	return marks
}

// reply reads a script's packed answer. After a fault every read gives zero
// and err says why.
type reply struct {
	rest []byte
	err  error
}

func (r *reply) fault(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("a script's answer can't be read: %w", err)
	}
	r.rest = nil
}

func (r *reply) int() int64 {
	if r.err != nil {
		return 0
	}
	n, rest, err := msgp.ReadInt64Bytes(r.rest)
	if err != nil {
		r.fault(err)
		return 0
	}
	r.rest = rest
	return n
}

func (r *reply) bytes() []byte {
	if r.err != nil {
		return nil
	}
	b, rest, err := msgp.ReadStringZC(r.rest)
	if err != nil {
		r.fault(err)
		return nil
	}
	r.rest = rest
	return b
}

// intAndStart reads a number that may come with a start that is ahead, in a list of
// the two; 0 for none.
func (r *reply) intAndStart() (n, start int64) {
	if len(r.rest) > 0 && msgp.NextType(r.rest) == msgp.ArrayType {
		if size := r.list(); r.err == nil && size != 2 {
			r.fault(fmt.Errorf("a number and a start have %d values", size))
		}
		return r.int(), r.int()
	}
	return r.int(), 0
}

// riskAndInstants reads a bucket's risk, that may come with a start that is ahead, 0
// for none, and with the instant of the level, 0 for when the bucket counts: see
// lua/start.lua.
func (r *reply) riskAndInstants() (risk quota.Amount, start, of int64) {
	if len(r.rest) == 0 || msgp.NextType(r.rest) != msgp.ArrayType {
		return quota.Amount(r.int()), 0, 0
	}
	size := r.list()
	if r.err == nil && size != 2 && size != 3 {
		r.fault(fmt.Errorf("a bucket's risk and instants have %d values", size))
	}
	risk, start = quota.Amount(r.int()), r.int()
	if size == 3 {
		of = r.int()
	}
	return risk, start, of
}

// list returns the length of a list, at most what the bytes left can hold.
func (r *reply) list() int {
	if r.err != nil {
		return 0
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(r.rest)
	if err == nil && int(n) > len(rest) {
		err = errors.New("a list is longer than the answer")
	}
	if err != nil {
		r.fault(err)
		return 0
	}
	r.rest = rest
	return int(n)
}

// recordValues is how many values show (lua/record.lua) lists, without a start.
const recordValues = 10

func (r *reply) record() reservation.Record {
	n := r.list()
	if r.err == nil && n != recordValues && n != recordValues+1 {
		r.fault(fmt.Errorf("a record has %d values, not %d", n, recordValues))
	}
	record := reservation.Record{State: reservation.State(r.int()), Rank: ledger.Rank(r.int())}
	if ends := r.int(); ends != 0 {
		record.ExpiresAt = instant(ends)
	}
	record.Late = r.int() == 1
	record.Confirmed = r.int() == 1
	if closed := r.int(); closed != 0 {
		record.ClosedAt = instant(closed)
	}
	copy(record.Body[:], r.bytes())
	record.Outcome = clone(r.bytes())
	record.Token = clone(r.bytes())
	if packed := r.bytes(); len(packed) > 0 {
		actual := reply{rest: packed}
		record.Actual = make([]quota.Amount, actual.list())
		for i := range record.Actual {
			record.Actual[i] = quota.Amount(actual.int())
		}
		if actual.err != nil {
			r.fault(actual.err)
		}
	}
	if n > recordValues {
		record.StartAt = instant(r.int())
	}
	return record
}

// levels reads what the counters of holds show.
func (r *reply) levels(holds []reservation.Hold) []counterState {
	r.int() // how many values follow
	out := make([]counterState, len(holds))
	for i := range holds {
		c := &out[i]
		switch holds[i].Kind {
		case quota.KindBucket:
			c.level, c.rest = quota.Amount(r.int()), r.int()
			c.risk, c.start, c.of = r.riskAndInstants()
		case quota.KindSlots:
			c.taken, c.earliest = quota.Amount(r.int()), r.int()
		case quota.KindGCRA, quota.KindLeakyQueue:
			c.arrival, c.start = r.intAndStart()
		case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
			c.counted, c.start = r.counted(&holds[i].Window)
		default:
			c.used, c.held, c.unposted = quota.Amount(r.int()), quota.Amount(r.int()), quota.Amount(r.int())
			c.version = r.int()
			c.seeded = r.int() == 1
		}
	}
	return out
}

// counted reads the state of a window, advanced to when it counts, and a start that
// is ahead.
func (r *reply) counted(w *quota.Window) (u quota.Counted, start int64) {
	n := r.list()
	given := n > 0 && n%2 == 0 // see shown_window in lua/window.lua
	if given {
		n--
		defer func() { start = r.int() }()
	}
	u = quota.Counted{Length: w.Length, Calendar: w.Calendar, Start: r.int()}
	switch {
	case n == 1:
		return quota.Counted{}, 0
	case w.Kind == quota.KindSlidingLog:
		for ; n > 2; n -= 2 {
			u.Log = append(u.Log, quota.LogEntry{At: r.int(), Amount: quota.Amount(r.int())})
		}
	default:
		u.Now, u.Before = quota.Amount(r.int()), quota.Amount(r.int())
	}
	return u, 0
}

func clone(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}

func instant(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// readShares reads what the fair holds show, of those that the script saw: see
// lua/levels.lua.
func (s *Store) readShares(r *reply, holds []reservation.Hold, states []counterState, leg bool) {
	if !hasFair(holds) {
		return
	}
	left := r.list()
	for i := range holds {
		if holds[i].Fair && (leg || s.cluster == nil) && left >= 2 {
			states[i].share, states[i].sharing = r.int(), int(r.int())
			left -= 2
		}
	}
}
