package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// drawer draws a sequence. It follows a clock of its own, by which it aims at the
// ends of leases, and knows nothing of the answers.
type drawer struct {
	*rand.Rand
	limits   []seqLimit
	accounts []string
	now      time.Duration // since Epoch
	back     bool
	made     []drawn

	// What this sequence is about, besides.
	waits, keeps, shadows, envelopes bool
}

// drawn is a reservation as the drawer knows it.
type drawn struct {
	account string
	holds   []seqHold
	ends    time.Duration
}

// seqLimit is a limit as a sequence has it.
type seqLimit struct {
	hold reservation.Hold
	unit quota.PeriodUnit
	rate quota.Rate // as it was drawn, for the scenario
}

// seqHold is what a reservation takes of a limit as it is when it is made.
type seqHold struct {
	name, scope string
	amount      quota.Amount
	keep        quota.Amount // what it must leave to higher priorities
	spills      bool         // it may be taken from the limit where its envelope has too little
}

func (h seqHold) String() string {
	if h.scope == "" {
		return h.name
	}
	return h.name + "[" + h.scope + "]"
}

// movesBy says how often each move is drawn. A new kind of move has its line here.
var movesBy = []struct {
	weight int
	draw   func(d *drawer) move
}{
	{30, (*drawer).reserve},
	{3, (*drawer).charge},
	{3, (*drawer).again},
	{16, (*drawer).refund},
	{5, (*drawer).renew},
	{6, (*drawer).confirm},
	{3, (*drawer).giveBack},
	{3, (*drawer).sweep},
	{20, (*drawer).pass},
	{4, (*drawer).stepBack},
	{9, (*drawer).change},
}

// drawSequence draws the nth sequence of a seed.
func drawSequence(seed uint64, n int, engine Engine) sequence {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, uint64(n))), accounts: []string{"acme"}}
	if d.IntN(3) == 0 {
		d.accounts = append(d.accounts, "globex")
	}
	d.waits, d.keeps, d.shadows, d.envelopes = d.IntN(3) == 0, d.IntN(4) == 0, d.IntN(4) == 0, d.IntN(4) == 0
	for i := range 2 + d.IntN(4) {
		d.limits = append(d.limits, d.limit(i, !engine.SplitPools))
	}
	total := 0
	for _, m := range movesBy {
		total += m.weight
	}
	d.back = d.IntN(10) == 0
	s := sequence{limits: slices.Clone(d.limits), back: d.back}
	for range 6 + d.IntN(14) {
		which := d.IntN(total)
		for _, m := range movesBy {
			if which -= m.weight; which < 0 {
				if drawn := m.draw(d); drawn != nil {
					s.moves = append(s.moves, drawn)
				}
				break
			}
		}
	}
	return s
}

func pick[T any](d *drawer, from []T) T { return from[d.IntN(len(from))] }

// What limits are drawn from: small numbers, so that a sequence meets their ends,
// odd rates with remainders, and money.
var (
	seqBuckets = []struct {
		burst quota.Amount
		rate  quota.Rate
	}{
		{10, quota.Rate{Amount: 10, Every: time.Second}},
		{7, quota.Rate{Amount: 3, Every: 7 * time.Second}},
		{20, quota.Rate{Amount: 7, Every: time.Second}},
		{5, quota.Rate{Amount: 1, Every: 24 * time.Hour}},
		{5_000_000_000, quota.Rate{Amount: 5_000_000_000, Every: time.Minute}},
	}
	seqQueues  = seqBuckets[:3]
	seqWindows = []quota.Rate{
		{Amount: 10, Every: time.Second},
		{Amount: 7, Every: 7_000_001 * time.Microsecond},
		{Amount: 40, Every: time.Minute},
		{Amount: 3, Every: 3 * time.Millisecond},
	}
)

// kinds of limits by their words in a scenario.
var seqKinds = []string{"bucket", "bucket", "bucket", "gcra", "queue", "fixed", "first_use", "counter", "log", "slots", "slots", "day", "month"}

// limit draws a limit. Its name ends in its kind: a limit that changes its
// algorithm is another one, as in [quota.Limit.ID].
func (d *drawer) limit(place int, pools bool) seqLimit {
	kind := pick(d, seqKinds)
	l := seqLimit{hold: reservation.Hold{Counter: reservation.Counter{Limit: fmt.Sprintf("l%d-%s", place, kind)}}}
	if place%3 == 2 && pools && kind != "day" && kind != "month" {
		l.hold.Pool = "openai"
	}
	switch kind {
	case "bucket":
		l.hold.Kind = quota.KindBucket
	case "gcra":
		l.hold.Kind = quota.KindGCRA
	case "queue":
		l.hold.Kind = quota.KindLeakyQueue
	case "slots":
		l.hold.Kind = quota.KindSlots
	case "day", "month":
		l.hold.Kind, l.unit = quota.KindQuota, quota.PeriodUnit(kind)
	default:
		l.hold.Kind = windowKinds[kind]
		l.hold.Window.Calendar = kind == "fixed"
	}
	d.parameters(&l)
	return l
}

// parameters draws what may change of a limit.
func (d *drawer) parameters(l *seqLimit) {
	h := &l.hold
	h.OnExpiry = pick(d, []quota.ExpiryRule{quota.ExpiryGiveBack, quota.ExpiryGiveBack, quota.ExpiryCharge})
	h.Shadow = d.shadows && d.IntN(3) == 0
	switch {
	case h.Kind.IsLevel():
		b := pick(d, seqBuckets)
		if h.Kind == quota.KindLeakyQueue {
			b = pick(d, seqQueues)
		}
		l.rate = b.rate
		h.Bucket = quota.Limit{Kind: h.Kind, Burst: b.burst, Rate: b.rate}.Bucket()
	case h.Kind.IsWindow():
		l.rate = pick(d, seqWindows)
		h.Window = quota.Limit{Kind: h.Kind, Rate: l.rate, FirstUse: !h.Window.Calendar}.Window()
	case h.Kind == quota.KindSlots:
		h.Max = quota.Amount(1 + d.IntN(3))
	default:
		h.Max = quota.Amount(1 + d.IntN(60))
	}
}

// plan draws holds of some limits, each counter at most once.
func (d *drawer) plan() []seqHold {
	var holds []seqHold
	for _, i := range d.Perm(len(d.limits))[:1+d.IntN(min(3, len(d.limits)))] {
		l := d.limits[i].hold
		scopes := []string{""}
		switch d.IntN(6) {
		case 0:
			scopes = []string{"user=7"}
		case 1:
			scopes = []string{"", "user=7"}
		}
		for _, scope := range scopes {
			h := seqHold{name: l.Limit, scope: scope, amount: 1}
			if l.Kind != quota.KindSlots {
				h.amount = d.amount(l.Capacity())
			}
			if d.keeps && d.IntN(2) == 0 {
				h.keep = quota.Amount(d.Int64N(int64(l.Capacity())/2 + 2))
			}
			holds = append(holds, h)
		}
	}
	return holds
}

// amount draws parts of what a limit can hold: nothing, a few, all, too much.
func (d *drawer) amount(most quota.Amount) quota.Amount {
	switch d.IntN(12) {
	case 0:
		return 0
	case 1:
		return most
	case 2:
		return most + 1
	}
	return quota.Amount(1 + d.Int64N(max(int64(most)/2, 1)))
}

func (d *drawer) lease() time.Duration {
	return pick(d, []time.Duration{time.Second, time.Millisecond, 10 * time.Second, time.Minute, 24 * time.Hour})
}

func (d *drawer) reserve() move {
	m := &reserveMove{
		n: len(d.made), account: pick(d, d.accounts), holds: d.plan(), lease: d.lease(),
		retention: pick(d, []time.Duration{10 * time.Second, 0, time.Minute, 24 * time.Hour}),
	}
	if d.IntN(8) == 0 {
		m.key = pick(d, []string{"k1", "k2"})
	}
	m.dry = d.IntN(15) == 0
	if d.envelopes && len(d.made) > 0 && d.IntN(3) > 0 {
		d.enter(m)
	} else if d.waits && d.IntN(2) == 0 {
		m.wait = pick(d, []time.Duration{time.Second, 333_333 * time.Microsecond, 10 * time.Second, time.Minute, time.Hour})
	}
	d.made = append(d.made, drawn{m.account, m.holds, d.now + m.lease})
	return m
}

// enter makes a reservation in an envelope, mostly of what that holds.
func (d *drawer) enter(m *reserveMove) {
	m.inside, m.parent = true, d.any()
	parent := d.made[m.parent]
	if d.IntN(9) > 0 {
		m.account = parent.account
	}
	if d.IntN(4) > 0 {
		m.holds = slices.Clone(parent.holds)
		for i := range m.holds {
			h := &m.holds[i]
			if h.spills = false; h.amount > 1 {
				h.amount = d.amount(h.amount)
			}
		}
	}
	if d.IntN(3) == 0 {
		m.holds[d.IntN(len(m.holds))].spills = true
	}
}

func (d *drawer) charge() move {
	m := d.reserve().(*reserveMove)
	m.charge, m.lease, m.wait, m.inside = true, 0, 0, false
	return m
}

// any draws a reservation, the latest more often.
func (d *drawer) any() int {
	return max(len(d.made)-1-min(d.IntN(5), d.IntN(5)), 0)
}

func (d *drawer) again() move {
	if len(d.made) == 0 {
		return nil
	}
	return &againMove{n: d.any()}
}

func (d *drawer) refund() move {
	if len(d.made) == 0 {
		return nil
	}
	m := &refundMove{n: d.any(), orphan: d.IntN(6) == 0, held: d.IntN(8) == 0}
	whole := d.IntN(3) == 0
	for _, h := range d.made[m.n].holds {
		switch {
		case whole || d.IntN(4) == 0:
			m.actual = append(m.actual, 0)
		case d.IntN(5) == 0:
			m.actual = append(m.actual, h.amount+1+quota.Amount(d.IntN(4)))
		default:
			m.actual = append(m.actual, quota.Amount(d.Int64N(int64(h.amount)+1)))
		}
	}
	return m
}

func (d *drawer) renew() move {
	if len(d.made) == 0 {
		return nil
	}
	m := &renewMove{n: d.any(), lease: d.lease()}
	d.made[m.n].ends = max(d.made[m.n].ends, d.now+m.lease)
	return m
}

func (d *drawer) confirm() move {
	if len(d.made) == 0 {
		return nil
	}
	return &confirmMove{n: d.any(), orphan: d.IntN(3) == 0}
}

func (d *drawer) giveBack() move {
	m := &giveBackMove{account: pick(d, d.accounts)}
	for _, l := range d.limits {
		if l.hold.Kind == quota.KindBucket {
			m.holds = append(m.holds, seqHold{name: l.hold.Limit, amount: quota.Amount(d.IntN(20))})
		}
	}
	if len(m.holds) == 0 {
		return nil
	}
	return m
}

func (d *drawer) sweep() move { return &sweepMove{} }

// pass lets time pass: a span, or to the end of a lease or of a window, or to the
// microsecond before it.
func (d *drawer) pass() move {
	step := pick(d, []time.Duration{
		time.Millisecond, time.Microsecond, 333_333 * time.Microsecond, time.Second, 3 * time.Second,
		10 * time.Second, time.Minute, time.Hour, 19 * time.Hour,
	})
	switch d.IntN(4) {
	case 0:
		if len(d.made) > 0 {
			if to := d.made[d.any()].ends - d.now; to > 0 {
				step = to
			}
		}
	case 1:
		if l := pick(d, d.limits); l.hold.Kind.IsWindow() {
			step = l.rate.Every - (Epoch.Sub(time.UnixMicro(0))+d.now)%l.rate.Every
		}
	}
	if step > time.Microsecond && d.IntN(4) == 0 {
		step -= time.Microsecond
	}
	d.now += step
	return &timeMove{step}
}

func (d *drawer) stepBack() move {
	step := -pick(d, []time.Duration{time.Microsecond, time.Millisecond, 500 * time.Millisecond, 4 * time.Second})
	if !d.back || d.now+step < 0 {
		return d.pass()
	}
	d.now += step
	return &timeMove{step}
}

// change gives a limit other parameters, or another algorithm.
func (d *drawer) change() move {
	i := d.IntN(len(d.limits))
	l := d.limits[i]
	switch {
	case d.IntN(4) == 0:
		pooled := l.hold.Pool != ""
		l = d.limit(i, pooled)
		if pooled != (l.hold.Pool != "") {
			return nil // a quota
		}
	case l.hold.Kind == quota.KindFixedWindow && d.IntN(4) == 0:
		l.hold.Window.Calendar = !l.hold.Window.Calendar
		fallthrough
	default:
		d.parameters(&l)
	}
	d.limits[i] = l
	return &limitMove{l}
}

// ---- moves

type (
	reserveMove struct {
		n                int
		account          string
		holds            []seqHold
		lease, retention time.Duration
		key              string
		charge, dry      bool
		wait             time.Duration
		inside           bool // in the reservation number parent
		parent           int
	}
	againMove  struct{ n int }
	refundMove struct {
		n            int
		actual       []quota.Amount
		orphan, held bool
	}
	renewMove struct {
		n     int
		lease time.Duration
	}
	confirmMove struct {
		n      int
		orphan bool
	}
	giveBackMove struct {
		account string
		holds   []seqHold
	}
	sweepMove struct{}
	timeMove  struct{ step time.Duration }
	limitMove struct{ to seqLimit }
)

// names are the limits that a sequence speaks of.
func (s sequence) names() map[string]bool {
	names := map[string]bool{}
	for _, l := range s.limits {
		names[l.hold.Limit] = true
	}
	for _, m := range s.moves {
		if change, ok := m.(*limitMove); ok {
			names[change.to.hold.Limit] = true
		}
	}
	return names
}

// without returns the sequence without a limit, whoever holds of it.
func (s sequence) without(name string) sequence {
	out := sequence{back: s.back, unmodelled: s.unmodelled, limits: slices.DeleteFunc(slices.Clone(s.limits), func(l seqLimit) bool { return l.hold.Limit == name })}
	keep := func(holds []seqHold) (kept []seqHold, which []int) {
		for i, h := range holds {
			if h.name != name {
				kept, which = append(kept, h), append(which, i)
			}
		}
		return kept, which
	}
	left := map[int][]int{}
	for _, m := range s.moves {
		switch m := m.(type) {
		case *reserveMove:
			c := *m
			c.holds, left[m.n] = keep(m.holds)
			out.moves = append(out.moves, &c)
		case *refundMove:
			c := *m
			c.actual = nil
			for _, i := range left[m.n] {
				c.actual = append(c.actual, m.actual[i])
			}
			out.moves = append(out.moves, &c)
		case *giveBackMove:
			c := *m
			if c.holds, _ = keep(m.holds); len(c.holds) > 0 {
				out.moves = append(out.moves, &c)
			}
		case *limitMove:
			if m.to.hold.Limit != name {
				out.moves = append(out.moves, m)
			}
		default:
			out.moves = append(out.moves, m)
		}
	}
	return out
}

// limitLine is a limit as a line of a scenario.
func limitText(l seqLimit) string {
	h := l.hold
	var words []string
	switch {
	case h.Kind == quota.KindBucket:
		words = append(words, "bucket", fmt.Sprint(h.Bucket.Capacity), rateText(l.rate))
	case h.Kind == quota.KindGCRA:
		words = append(words, "gcra", fmt.Sprint(h.Bucket.Capacity), rateText(l.rate))
	case h.Kind == quota.KindLeakyQueue:
		words = append(words, "queue", fmt.Sprint(h.Bucket.Capacity), rateText(l.rate))
	case h.Kind == quota.KindSlots:
		words = append(words, "slots", fmt.Sprint(h.Max))
	case h.Kind == quota.KindQuota:
		words = append(words, "quota", fmt.Sprint(h.Max), string(l.unit))
	default:
		word := map[quota.Kind]string{quota.KindFixedWindow: "first_use", quota.KindSlidingCounter: "counter", quota.KindSlidingLog: "log"}[h.Kind]
		if h.Window.Calendar {
			word = "fixed"
		}
		words = append(words, word, rateText(l.rate))
	}
	if h.OnExpiry == quota.ExpiryCharge {
		words = append(words, "charge")
	}
	if h.Shadow {
		words = append(words, "shadow")
	}
	if h.Pool != "" {
		words = append(words, "pool="+h.Pool)
	}
	return "limit " + h.Limit + " " + strings.Join(words, " ")
}

func rateText(r quota.Rate) string { return fmt.Sprintf("%d/%s", r.Amount, r.Every) }
