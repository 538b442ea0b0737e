package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Model is the reference: the contract of reservation.Store in its plainest
// form. Lists are searched from the front, sums are formed anew each time, a
// bucket's level is one exact fraction, and nothing is ever cleaned up unless
// the contract says that it can be seen. It is not safe for concurrent use.
type Model struct {
	clock       *Clock
	incarnation int
	tickets     int64
	records     []*modelRecord
	buckets     []*modelBucket
	funds       []*modelHold // during a Reserve: what its parent has for each hold
	quotas      []*modelQuota
	rates       []*modelRate
	starts      []modelStart
	line        []modelPlace                // who waits for slots
	asking      *reservation.ReserveRequest // under way
	bans        []*modelBan
	shared      []modelShare
}

var _ reservation.Store = (*Model)(nil)

// NewModel returns a model without reservations.
func NewModel(clock *Clock) *Model { return &Model{clock: clock, incarnation: 1} }

// counterName is where a counter lives: a pool's belong to no account.
type counterName struct {
	account string
	reservation.Counter
}

func nameOf(account string, c reservation.Counter) counterName {
	if c.Pool != "" {
		account = ""
	}
	return counterName{account, c}
}

type modelRecord struct {
	account   string
	id        reservation.ID
	key       string
	ask       reservation.Hash
	token     []byte
	retention int64
	start     int64 // that it was given, if that was later than the Reserve
	expires   int64

	state     reservation.State
	rank      ledger.Rank
	body      reservation.Hash
	outcome   []byte
	late      bool
	confirmed bool
	closedAt  int64
	due       int64 // when Sweep hands it out, while it waits for the ledger

	holds []modelHold

	kin  reservation.Kin // its envelope, and what was taken from it
	tree bool            // it has, or had, a parent or children
	over bool            // it has, or had, children
}

type modelHold struct {
	reservation.Hold
	held     quota.Amount // a quota's or a slot's share of what is open
	unposted quota.Amount // a quota's share of what the ledger has not confirmed
	charged  quota.Amount // what the bucket was charged so far; once closed, the actual
	at       int64        // the instant under which a window counts it
	sharing  int          // of a fair limit: how many accounts used it when it took
	used     quota.Amount // the most that a Renew told
}

// modelBucket is the state of a bucket: an exact level at an instant.
type modelBucket struct {
	name   counterName
	params quota.Bucket
	level  *big.Rat
	at     int64
}

type modelQuota struct {
	name        counterName
	period      string
	end         int64
	used        quota.Amount
	version     int64
	incarnation int // in which it was seeded; 0: never
	ticket      int64
	ticketOf    int // incarnation of the ticket

	driftHeld, driftUnposted quota.Amount // what the counter says beyond the records
}

// LoseData forgets everything and begins another incarnation.
func (m *Model) LoseData() {
	m.records, m.buckets, m.quotas, m.rates, m.starts, m.line, m.bans, m.shared = nil, nil, nil, nil, nil, nil, nil, nil
	m.incarnation++
}

// Incarnate begins another incarnation with the same data.
func (m *Model) Incarnate() { m.incarnation++ }

func (m *Model) now() int64 { return m.clock.Now().UnixMicro() }

func instant(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func (m *Model) find(account string, id reservation.ID) *modelRecord {
	for _, r := range m.records {
		if r.account == account && r.id == id {
			return r
		}
	}
	return nil
}

// Forgettable says that the contract no longer obliges an engine to know the
// record.
func (m *Model) Forgettable(account string, id reservation.ID) bool {
	r := m.find(account, id)
	return r != nil && r.confirmed && m.now() >= r.expires+r.retention &&
		m.now()-id.Minted().UnixMicro() > reservation.MintSkew.Microseconds() // else the id could hold again
}

// Forget drops a record.
func (m *Model) Forget(account string, id reservation.ID) {
	m.records = slices.DeleteFunc(m.records, func(r *modelRecord) bool { return r.account == account && r.id == id })
}

// ---- buckets, as exact fractions

func (m *Model) bucket(name counterName) *modelBucket {
	for _, b := range m.buckets {
		if b.name == name {
			return b
		}
	}
	return nil
}

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// rate is what the bucket earns in a microsecond.
func rate(p quota.Bucket) *big.Rat { return big.NewRat(int64(p.Refill), p.PerMicros) }

// floor returns the greatest integer that is not above x.
func floor(x *big.Rat) quota.Amount {
	return quota.Amount(new(big.Int).Div(x.Num(), x.Denom()).Int64()) // Euclidean: floors, as denominators are positive
}

// microsUntil is the smallest whole number of microseconds in which the level
// grows to want, or -1 when 64 bits do not hold it.
func microsUntil(level *big.Rat, p quota.Bucket, want quota.Amount) int64 {
	wait := new(big.Rat).Sub(whole(int64(want)), level)
	if wait.Sign() <= 0 {
		return 0
	}
	wait.Quo(wait, rate(p))
	up := new(big.Int).Add(wait.Num(), new(big.Int).Sub(wait.Denom(), big.NewInt(1)))
	up.Div(up, wait.Denom())
	if !up.IsInt64() {
		return -1
	}
	return up.Int64()
}

// fullBy says that the bucket is full at an instant by its own parameters: it
// then counts as absent.
func (b *modelBucket) fullBy(now int64) bool {
	wait := microsUntil(b.level, b.params, b.params.Capacity)
	return wait >= 0 && now-b.at >= wait
}

// levelAt is the level that parameters p see now.
func (m *Model) levelAt(name counterName, p quota.Bucket, now int64) *big.Rat {
	b := m.bucket(name)
	if b == nil || b.fullBy(now) {
		return whole(int64(p.Capacity))
	}
	level := new(big.Rat).Set(b.level)
	if b.params.PerMicros != p.PerMicros {
		level = whole(int64(floor(level)))
	}
	if now > b.at {
		level.Add(level, new(big.Rat).Mul(whole(now-b.at), rate(p)))
	}
	if limit := whole(int64(p.Capacity)); level.Cmp(limit) > 0 {
		return limit
	}
	return level
}

// change takes amount (or gives it back when negative) under parameters p.
func (m *Model) change(name counterName, p quota.Bucket, amount quota.Amount) {
	now := m.at(name, quota.KindBucket)
	level := m.levelAt(name, p, now)
	level.Sub(level, whole(int64(amount)))
	if limit := whole(int64(p.Capacity)); level.Cmp(limit) > 0 {
		level = limit
	}
	if n := floor(level); n < -quota.MaxAmount {
		level.Add(level, whole(int64(-quota.MaxAmount-n)))
	}
	b := m.bucket(name)
	if b == nil {
		b = &modelBucket{name: name, at: now}
		m.buckets = append(m.buckets, b)
	}
	b.params, b.level, b.at = p, level, max(b.at, now)
}

// correct brings what hold i has charged to its bucket to actual.
func (m *Model) correct(r *modelRecord, i int, actual quota.Amount) {
	h := &r.holds[i]
	before, difference := h.charged, actual-h.charged
	h.charged = actual
	if !h.Kind.HasRate() || difference == 0 {
		return
	}
	name, p := nameOf(r.account, h.Counter), h.Bucket
	if difference -= m.paid(r, i, before, actual); difference != 0 {
		m.passStart(name, h.Kind)
	}
	m.correctShare(r.account, h, difference)
	if h.Kind != quota.KindBucket {
		if r.tree {
			m.shiftRate(name, h, r.start, difference)
		} else {
			m.correctRate(name, h, r.start, before, actual)
		}
		return
	}
	if difference == 0 {
		return
	}
	if b := m.bucket(name); b != nil && !b.fullBy(m.at(name, quota.KindBucket)) {
		p = b.params
	}
	if booked := m.rebook(name, h.Kind, r.start, int64(difference)); difference < 0 {
		m.giveBeside(name, p, -difference, booked)
		return
	}
	m.change(name, p, difference)
}

// ---- slots and quotas, counted from the records

// holders returns the lease ends of those who hold a slot now.
func (m *Model) holders(name counterName) []int64 {
	var ends []int64
	for _, r := range m.records {
		for _, h := range r.holds {
			if h.Kind == quota.KindSlots && nameOf(r.account, h.Counter) == name && h.held > 0 && r.expires > m.now() {
				ends = append(ends, r.expires)
			}
		}
	}
	slices.Sort(ends)
	return ends
}

// sums are what the counter says.
func (m *Model) sums(name counterName, period string) (held, unposted quota.Amount) {
	held, unposted = m.shares(name, period)
	if q := m.quotaOf(name, period); q != nil {
		held += q.driftHeld
		unposted += q.driftUnposted
	}
	return held, unposted
}

// shares are what the records add up to.
func (m *Model) shares(name counterName, period string) (held, unposted quota.Amount) {
	for _, r := range m.records {
		for _, h := range r.holds {
			if h.Kind == quota.KindQuota && nameOf(r.account, h.Counter) == name && h.Period.Key == period {
				held += h.held
				unposted += h.unposted
			}
		}
	}
	return held, unposted
}

func (m *Model) quotaOf(name counterName, period string) *modelQuota {
	for _, q := range m.quotas {
		if q.name == name && q.period == period {
			return q
		}
	}
	return nil
}

func (m *Model) quotaOrNew(name counterName, period quota.Period) *modelQuota {
	q := m.quotaOf(name, period.Key)
	if q == nil {
		q = &modelQuota{name: name, period: period.Key, end: period.End.UnixMicro()}
		m.quotas = append(m.quotas, q)
	}
	return q
}

// dropPastPeriods forgets the counters of periods that are over and settled.
func (m *Model) dropPastPeriods() {
	m.quotas = slices.DeleteFunc(m.quotas, func(q *modelQuota) bool {
		held, unposted := m.sums(q.name, q.period)
		return m.now() >= q.end && held == 0 && unposted == 0
	})
}

func (m *Model) seeded(name counterName, period string) bool {
	q := m.quotaOf(name, period)
	return q != nil && q.incarnation == m.incarnation
}

// ---- levels

func (m *Model) level(account string, h reservation.Hold) reservation.Level {
	name, now := nameOf(account, h.Counter), m.now()
	switch h.Kind {
	case quota.KindBucket:
		at := m.at(name, h.Kind)
		level := m.levelAt(name, h.Bucket, at)
		l := reservation.Level{Remaining: m.takenNow(floor(level), at), Seeded: true, Risk: m.risks(name)}
		if wait := microsUntil(level, h.Bucket, h.Bucket.Capacity); wait != 0 || at > now {
			if wait != 0 {
				at = m.refillsFrom(name)
			}
			l.ResetsAt = after(at, wait)
		}
		return l
	case quota.KindGCRA, quota.KindLeakyQueue, quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
		return m.rateLevel(name, h)
	case quota.KindSlots:
		ends := m.holders(name)
		taken := quota.Amount(len(ends))
		l := reservation.Level{Remaining: h.Max - taken, Held: taken, Seeded: true}
		if len(ends) > 0 {
			l.ResetsAt = instant(ends[0])
		}
		return l
	default:
		l := reservation.Level{ResetsAt: h.Period.End}
		l.Held, l.Unposted = m.sums(name, h.Period.Key)
		if l.Seeded = m.seeded(name, h.Period.Key); l.Seeded {
			q := m.quotaOf(name, h.Period.Key)
			l.Used, l.Version = q.used, q.version
			l.Remaining = h.Max - l.Used - l.Held - l.Unposted
		}
		return l
	}
}

// farMicros is an instant in the year 2200; what lies after it is all the same
// to the suite.
var farMicros = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// after is now + wait, with a wait of -1 for never.
func after(now, wait int64) time.Time {
	if wait < 0 || wait > 2*farMicros {
		return instant(2 * farMicros)
	}
	return instant(now + wait)
}

func (m *Model) levels(account string, holds []reservation.Hold) []reservation.Level {
	m.dropPastPeriods()
	levels := make([]reservation.Level, len(holds))
	for i, h := range holds {
		levels[i] = m.level(account, h)
		m.showShare(&levels[i], account, h)
	}
	return levels
}

func (r *modelRecord) plan() []reservation.Hold {
	holds := make([]reservation.Hold, len(r.holds))
	for i, h := range r.holds {
		holds[i] = h.Hold
	}
	return holds
}

// refusal says why a hold does not fit now; ok is true when it does.
func (m *Model) refusal(account string, i int, h reservation.Hold) (reservation.Refusal, bool) {
	return m.refusalBy(account, i, h, m.now())
}

// refusalBy says why a hold can't start by an instant.
func (m *Model) refusalBy(account string, i int, h reservation.Hold, until int64) (reservation.Refusal, bool) {
	if i < len(m.funds) && m.funds[i] != nil {
		return m.exhausted(i, h, m.funds[i])
	}
	l := m.level(account, h)
	m.behindLine(account, h, &l)
	refusal := reservation.Refusal{Hold: i, Asked: h.Amount, Remaining: l.Remaining}
	if m.isAhead(account, h) {
		refusal.Sharing = len(m.sharers(h))
	}
	limit, reason := h.Max, reservation.QuotaExhausted
	switch {
	case h.Kind.IsLevel():
		limit, reason = h.Bucket.Capacity, reservation.RateLimited
	case h.Kind.IsWindow():
		limit, reason = h.Window.Max, reservation.RateLimited
	case h.Kind == quota.KindSlots:
		reason = reservation.ConcurrencyLimited
	}
	switch {
	case h.Amount == 0, h.Kind.HasRate() && m.firstFor(account, h) <= until, !h.Kind.HasRate() && h.Amount <= l.Remaining-h.Keep:
		return refusal, true
	case h.Amount > limit-h.Keep:
		refusal.Reason = reservation.ExceedsCapacity
		return refusal, false
	}
	refusal.Reason, refusal.RetryAt = reason, l.ResetsAt
	if start := m.startFor(account, h); h.Kind == quota.KindLeakyQueue && start == math.MaxInt64 {
		refusal.RetryAt = after(m.now(), m.rateWait(nameOf(account, h.Counter), h, h.Amount+h.Keep))
	} else if h.Kind.HasRate() {
		refusal.RetryAt = instant(min(m.retryAhead(account, h, start), 2*farMicros))
	}
	return refusal, false
}

// stricter orders refusals: what no waiting helps first, then the latest.
func stricter(a, b reservation.Refusal) bool {
	never := []reservation.Reason{reservation.ExceedsCapacity, reservation.EnvelopeExhausted}
	aNever, bNever := slices.Contains(never, a.Reason), slices.Contains(never, b.Reason)
	if aNever != bNever {
		return aNever
	}
	return a.RetryAt.After(b.RetryAt)
}

// ---- the end of leases

// reclaim ends up to most of the account's leases that have ended.
func (m *Model) reclaim(account string, most int) int {
	now := m.now()
	var ended []*modelRecord
	for _, r := range m.records {
		if r.account == account && r.state == reservation.StateHeld && r.expires <= now {
			ended = append(ended, r)
		}
	}
	slices.SortFunc(ended, func(a, b *modelRecord) int {
		return cmp.Or(cmp.Compare(a.expires, b.expires), bytes.Compare(a.id[:], b.id[:]))
	})
	if len(ended) > most {
		ended = ended[:most]
	}
	for _, r := range ended {
		r.state, r.rank, r.closedAt, r.due = reservation.StateExpired, ledger.RankExpired, r.expires, now
		for i := range r.holds {
			h := &r.holds[i]
			if h.Kind == quota.KindQuota {
				h.unposted += h.held
			}
			h.held = 0
			kept := h.charged + h.Risk
			if h.OnExpiry != quota.ExpiryCharge {
				kept = 0
			}
			m.correct(r, i, max(kept, h.used))
		}
	}
	return len(ended)
}

// close gives a record its closing and drops what it held.
func (m *Model) close(r *modelRecord, rank ledger.Rank, actual []quota.Amount) {
	m.endBelow(r)
	for i, h := range r.holds {
		if h.Kind == quota.KindQuota {
			m.paid(r, i, r.quotaCost(i), actual[i])
		}
	}
	r.rank, r.state = rank, reservation.StateSettled
	if rank == ledger.RankExpired {
		r.state = reservation.StateExpired
	}
	for i := range r.holds {
		r.holds[i].held, r.holds[i].unposted = 0, 0
		if r.holds[i].Kind != quota.KindSlots {
			m.correct(r, i, actual[i])
		}
	}
}

// wait makes the closing's quota amounts unposted and due for the ledger.
func (r *modelRecord) wait(now int64) {
	for i := range r.holds {
		if r.holds[i].Kind == quota.KindQuota {
			r.holds[i].unposted = r.holds[i].charged
		}
	}
	r.confirmed = false
	r.closedAt, r.due = now, now+reservation.OutboxDelay.Microseconds()
}

func (r *modelRecord) show(now int64) reservation.Record {
	out := reservation.Record{
		State: r.state, ExpiresAt: instant(r.expires), Token: r.token, Rank: r.rank, Body: r.body,
		Outcome: r.outcome, Late: r.late, Confirmed: r.confirmed,
	}
	if r.state == reservation.StateHeld {
		if r.expires <= now {
			out.State = reservation.StateExpired
		} else if r.start != 0 {
			out.StartAt = instant(r.start)
		}
		return out
	}
	out.ClosedAt = instant(r.closedAt)
	for _, h := range r.holds {
		out.Actual = append(out.Actual, h.charged)
	}
	return out
}

func young(id reservation.ID, lease, retention time.Duration, now int64) bool {
	return id.Minted().UnixMicro()+lease.Microseconds()+retention.Microseconds() > now
}

// orphan is a record that the engine lost, without what it held.
func (m *Model) orphan(account string, id reservation.ID, lease, retention time.Duration, token []byte, holds []reservation.Hold, kin reservation.Kin) *modelRecord {
	r := &modelRecord{
		account: account, id: id, token: token, retention: retention.Microseconds(),
		expires: id.Minted().UnixMicro() + lease.Microseconds(), kin: kin, tree: kin.InEnvelope(),
	}
	for _, h := range holds {
		r.holds = append(r.holds, modelHold{Hold: withoutRefusals(h), at: id.Minted().UnixMicro()})
		if h.Kind == quota.KindQuota {
			m.quotaOrNew(nameOf(account, h.Counter), h.Period)
		}
	}
	m.records = append(m.records, r)
	return r
}

// ---- the contract

// Reserve follows the steps of the contract.
func (m *Model) Reserve(ctx context.Context, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	now := m.now()
	answer := reservation.ReserveAnswer{Now: instant(now), Reclaimed: m.reclaim(q.Account, reservation.ReclaimBatch)}
	m.dropPastPeriods()
	if q.Key != "" {
		for _, r := range m.records {
			if r.account == q.Account && r.key == q.Key && now < r.expires+r.retention {
				answer.Verdict = reservation.KeyReused
				if r.ask == q.Body {
					answer.Verdict, answer.Record = reservation.Replayed, r.show(now)
				}
				return answer, nil
			}
		}
	}
	if m.find(q.Account, q.ID) != nil {
		answer.Verdict = reservation.Closed
		return answer, nil
	}
	skew := q.ID.Minted().UnixMicro() - now
	stale := max(skew, -skew) > reservation.MintSkew.Microseconds()
	for _, h := range q.Holds {
		stale = stale || h.Kind == quota.KindQuota && !h.Period.Contains(instant(now))
	}
	if stale {
		answer.Verdict = reservation.Stale
		return answer, nil
	}
	var parent *modelRecord
	if q.Parent != (reservation.ID{}) {
		parent = m.find(q.Account, q.Parent)
		if !m.isOpen(parent) || parent.start > now {
			answer.Verdict = reservation.ParentEnded
			return answer, nil
		}
		if m.isFull(parent) {
			answer.Verdict = reservation.ParentFull
			return answer, nil
		}
	}
	for i, h := range q.Holds {
		name := nameOf(q.Account, h.Counter)
		if h.Kind == quota.KindQuota && h.Amount > 0 && !m.seeded(name, h.Period.Key) {
			answer.Verdict = reservation.Unseeded
			ticket := reservation.Ticket{Hold: i}
			if c := m.quotaOf(name, h.Period.Key); c != nil && c.ticket != 0 && c.ticketOf == m.incarnation {
				ticket.Ticket = c.ticket
			} else if !q.DryRun {
				m.tickets++
				c = m.quotaOrNew(name, h.Period)
				c.ticket, c.ticketOf, ticket.Ticket = m.tickets, m.incarnation, m.tickets
			}
			answer.Tickets = append(answer.Tickets, ticket)
		}
	}
	if answer.Verdict == reservation.Unseeded {
		return answer, nil
	}
	m.funds = m.envelope(parent, &q)
	defer func() { m.funds = nil }()
	m.asking = &q
	defer func() { m.asking = nil }()
	decided, shadowing, refusing := false, q, []reservation.Refusal(nil)
	if q.Output != nil && !m.banned(&q) {
		var holds []reservation.Hold
		if holds, answer.Decided, decided = m.decide(&q); decided {
			shadowing.Output = outputFor(q.Output, answer.Decided.Tokens)
			q.Holds = holds
		}
	}
	until := m.startUntil(&q)
	for i, h := range q.Holds {
		if h.Kind == quota.KindSlots && q.Settle != nil || h.Shadow {
			continue
		}
		refusal, fits := m.whyNot(&q, i, decided, until)
		if !fits {
			refusing = append(refusing, refusal)
		}
		if !fits && (answer.Verdict != reservation.Refused || stricter(refusal, answer.Refusal)) {
			answer.Verdict, answer.Refusal = reservation.Refused, refusal
		}
	}
	if answer.Verdict == reservation.Refused {
		answer.Levels = m.shownLevels(q.Account, q.Holds)
		if q.Line != nil && !q.DryRun {
			answer.Place = m.wait(&q, refusing)
		}
		if answer.Place == 0 {
			m.countRefusal(&q, &answer, until)
		}
		return answer, nil
	}

	start := m.startOf(&q)
	if q.Decides() {
		q.Holds = m.missShadows(&shadowing, q.Holds, start, &answer)
		q.Token = answer.Decided.AppendTo(q.Token)
	}

	before := *m
	before.buckets, before.quotas, before.rates = m.cloneBuckets(), m.cloneQuotas(), m.cloneRates()
	before.records, before.starts, before.line = slices.Clone(m.records), m.cloneStarts(), slices.Clone(m.line)
	before.bans = m.cloneBans()
	if q.Line != nil {
		m.leave(q.Account, q.Holds, q.Line.Waiter)
	}

	r := &modelRecord{
		account: q.Account, id: q.ID, key: q.Key, ask: q.Body, token: q.Token, retention: q.Retention.Microseconds(),
		state: reservation.StateHeld,
	}
	if start > now {
		r.start = start
	}
	r.expires = start + q.Lease.Microseconds()
	var parentBefore modelRecord
	if parent != nil {
		parentBefore = *parent
		parentBefore.holds = slices.Clone(parent.holds)
		r.kin.Parent, r.tree, parent.tree, parent.over = parent.id, true, true, true
		if cut := r.expires - parent.expires; cut > 0 {
			r.expires, r.retention = parent.expires, r.retention+cut
		}
	}
	m.records = append(m.records, r)
	for i, h := range q.Holds {
		taken := modelHold{Hold: withoutRefusals(h)}
		if own := m.funds[i]; own != nil {
			taken.sharing = own.sharing
			own.hand(h.Amount)
			r.kin.Taken = r.kin.Taken.With(i)
			taken.at = own.at
			if h.Kind != quota.KindSlots {
				taken.charged = h.Amount
			}
			if h.Kind == quota.KindQuota {
				taken.held = h.Amount
			}
			r.holds = append(r.holds, taken)
			continue
		}
		taken.sharing = m.takeShare(q.Account, h, start)
		switch h.Kind {
		case quota.KindBucket:
			taken.charged = h.Amount
			m.takeAt(q.Account, h, start)
		case quota.KindGCRA, quota.KindLeakyQueue, quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
			taken.charged = h.Amount
			taken.at = m.takeAt(q.Account, h, start)
		case quota.KindQuota:
			taken.held, taken.charged = h.Amount, h.Amount
		case quota.KindSlots:
			taken.held = h.Amount
		}
		r.holds = append(r.holds, taken)
	}
	if q.Settle != nil {
		r.expires = now
		r.body, r.outcome = q.Settle.Body, q.Settle.Outcome
		m.close(r, ledger.RankRefunded, charges(r))
		r.wait(now)
	}
	answer.Verdict, answer.StartAt, answer.ExpiresAt = reservation.Granted, instant(start), instant(r.expires)
	answer.Levels = m.shownLevels(q.Account, q.Holds)
	if q.DryRun {
		if parent != nil {
			*parent = parentBefore
		}
		*m = before
	}
	return answer, nil
}

func charges(r *modelRecord) []quota.Amount {
	var out []quota.Amount
	for _, h := range r.holds {
		out = append(out, h.charged)
	}
	return out
}

func (m *Model) cloneBuckets() []*modelBucket {
	var out []*modelBucket
	for _, b := range m.buckets {
		c := *b // levels are replaced, never changed in place
		out = append(out, &c)
	}
	return out
}

func (m *Model) cloneQuotas() []*modelQuota {
	var out []*modelQuota
	for _, q := range m.quotas {
		c := *q
		out = append(out, &c)
	}
	return out
}

// Refund follows PROTOCOL step 3.
func (m *Model) Refund(ctx context.Context, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
	now := m.now()
	answer := reservation.RefundAnswer{Now: instant(now), Reclaimed: m.reclaim(q.Account, reservation.ReclaimBatch)}
	r := m.find(q.Account, q.ID)
	switch {
	case r == nil && !young(q.ID, q.Lease, q.Retention, now):
		answer.Verdict = reservation.RefundForgotten
		return answer, nil
	case r == nil && len(q.Holds) == 0:
		answer.Verdict = reservation.RefundUnknown
		return answer, nil
	case r == nil && q.OnlyHeld && now >= q.ID.Minted().Add(q.Lease).UnixMicro():
		answer.Verdict = reservation.RefundEnded
		return answer, nil
	case r == nil:
		r = m.orphan(q.Account, q.ID, q.Lease, q.Retention, q.Token, q.Holds, q.Kin)
	case r.state == reservation.StateSettled:
		answer.Verdict, answer.Record = reservation.RefundConflict, r.show(now)
		if r.body == q.Body {
			answer.Verdict = reservation.RefundSame
		}
		return answer, nil
	case q.OnlyHeld && now >= r.expires:
		answer.Verdict, answer.Record = reservation.RefundEnded, r.show(now)
		return answer, nil
	}
	if len(q.Actual) != len(r.holds) {
		return answer, fmt.Errorf("actual: %d amounts for %d holds", len(q.Actual), len(r.holds))
	}
	r.late = now >= r.expires
	r.body, r.outcome = q.Body, q.Outcome
	m.close(r, ledger.RankRefunded, q.Actual)
	r.wait(now)
	answer.Verdict, answer.Record = reservation.RefundSettled, r.show(now)
	answer.Levels = m.levels(q.Account, unshared(r.plan()))
	return answer, nil
}

// Renew extends a lease that has not ended.
func (m *Model) Renew(ctx context.Context, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
	now := m.now()
	answer := reservation.RenewAnswer{Now: instant(now), Reclaimed: m.reclaim(q.Account, reservation.ReclaimBatch)}
	r := m.find(q.Account, q.ID)
	if r == nil {
		return answer, nil
	}
	if r.state == reservation.StateHeld && now < r.expires {
		if err := q.Matches(len(r.holds)); err != nil {
			return reservation.RenewAnswer{}, err
		}
		to := now + q.Lease.Microseconds()
		if r.kin.InEnvelope() {
			if p := m.find(q.Account, r.kin.Parent); p != nil {
				to = min(to, p.expires)
				if p.state != reservation.StateHeld {
					to = now
				}
			}
		}
		r.expires = max(r.expires, to)
	}
	shown := r.show(now)
	answer.State, answer.ExpiresAt = shown.State, shown.ExpiresAt
	if answer.State == reservation.StateHeld {
		r.told(q.Used)
		answer.Envelope, answer.Company, answer.Standing = r.over, m.hasCompany(r), m.standing(r, q.Peek)
	}
	return answer, nil
}

// Confirm follows PROTOCOL step 5.
func (m *Model) Confirm(ctx context.Context, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	now := m.now()
	m.reclaim(q.Account, reservation.ReclaimBatch)
	for _, u := range q.Usage {
		c := m.quotaOrNew(nameOf(q.Account, u.Counter), u.Period)
		if u.Version > c.version {
			c.used, c.version = u.Used, u.Version
		}
	}
	defer m.dropPastPeriods()
	r := m.find(q.Account, q.ID)
	switch {
	case r == nil && !young(q.ID, q.Lease, q.Retention, now):
		return reservation.ConfirmOld, nil
	case r == nil && len(q.Holds) == 0:
		return reservation.ConfirmUnknown, nil
	case r == nil:
		r = m.orphan(q.Account, q.ID, q.Lease, q.Retention, q.Token, q.Holds, q.Kin)
	case r.rank > q.Rank || r.rank == q.Rank && r.confirmed:
		return reservation.ConfirmStopped, nil
	}
	if len(q.Actual) != len(r.holds) {
		return 0, fmt.Errorf("actual: %d amounts for %d holds", len(q.Actual), len(r.holds))
	}
	m.close(r, q.Rank, q.Actual)
	r.body, r.outcome, r.late, r.closedAt, r.confirmed = q.Body, q.Outcome, q.Late, q.ClosedAt.UnixMicro(), true
	return reservation.ConfirmAdopted, nil
}

// Seed follows PROTOCOL step 2.
func (m *Model) Seed(ctx context.Context, s reservation.SeedRequest) (bool, error) {
	m.reclaim(s.Account, reservation.ReclaimBatch)
	m.dropPastPeriods()
	c := m.quotaOf(nameOf(s.Account, s.Counter), s.Period.Key)
	if c == nil || c.ticket == 0 || c.ticket != s.Ticket || c.ticketOf != m.incarnation || s.Version < c.version {
		return false, nil
	}
	c.used, c.version, c.incarnation, c.ticket = s.Used, s.Version, m.incarnation, 0
	return true, nil
}

// Sweep ends every lease that has ended and hands out what is due, without
// any bound but most.
func (m *Model) Sweep(ctx context.Context, most int) (reservation.SweepAnswer, error) {
	now := m.now()
	answer := reservation.SweepAnswer{Now: instant(now), Epoch: strconv.Itoa(m.incarnation)}
	for _, r := range slices.Clone(m.records) {
		answer.Expired += m.reclaim(r.account, len(m.records))
	}
	m.dropPastPeriods()
	for _, r := range m.records {
		if r.rank == 0 || r.confirmed || r.due > now {
			continue
		}
		if len(answer.Pending) == most {
			answer.More = true
			break
		}
		r.due = now + reservation.OutboxRetry.Microseconds()
		answer.Pending = append(answer.Pending, reservation.Pending{Account: r.account, ID: r.id, Record: r.show(now)})
	}
	return answer, nil
}

// Lookup shows a record.
func (m *Model) Lookup(ctx context.Context, account string, id reservation.ID) (reservation.Record, error) {
	if r := m.find(account, id); r != nil {
		return r.show(m.now()), nil
	}
	return reservation.Record{}, nil
}

// Levels shows counters.
func (m *Model) Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error) {
	return m.shownLevels(account, holds), instant(m.now()), nil
}

// Ping answers nil.
func (m *Model) Ping(ctx context.Context) error { return nil }

// Close answers nil.
func (m *Model) Close() error { return nil }
