package storetest

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// runModel runs random histories against the engine and the model at once.
func runModel(t *testing.T, newEngine New) {
	for name, world := range worlds {
		t.Run(name, func(t *testing.T) {
			engine, clock := begin(t, newEngine)
			if world.pools && engine.SplitPools {
				return
			}
			check(t, engine.Checks, func(rt *rapid.T) { history(rt, engine, clock, world) })
		})
	}
}

// check runs a property as often as the engine wants, unless the command line
// says how often. When it fails, rapid shrinks the history, prints what it
// drew and the seed, and how to run it again.
func check(t rapid.TB, checks int, property func(*rapid.T)) {
	t.Helper()
	stated := false
	flag.Visit(func(f *flag.Flag) { stated = stated || f.Name == "rapid.checks" })
	if checks > 0 && !stated {
		// rapid reads its flags at each Check, and has no other way in.
		before := flag.Lookup("rapid.checks").Value.String()
		if err := flag.Lookup("rapid.checks").Value.Set(fmt.Sprint(checks)); err != nil {
			t.Fatalf("rapid.checks: %v", err)
		}
		defer flag.Lookup("rapid.checks").Value.Set(before)
	}
	rapid.Check(t, property)
}

// world is what a history may do.
type world struct {
	changing bool // limits change between calls
	pools    bool // limits that accounts share
	lossy    bool // data is lost, incarnations change

	algorithms bool // GCRA and windows beside one bucket
	shadows    bool // limits of every kind go into shadow and back
	trees      bool // reservations are made in others
	waits      bool // reservations wait for their start, and there are queues
	keeps      bool // Reserves must leave something to higher priorities
	lines      bool // callers wait for slots, of which most limits are
	refusals   bool // limits count refusals, and ban
	fair       bool // accounts share the limits of pools; with pools
	usages     bool // Renews tell what was used so far
}

var worlds = map[string]world{
	"FixedLimits":    {},
	"ChangingLimits": {changing: true},
	"Pools":          {pools: true},
	"Losses":         {lossy: true},
	"Everything":     {changing: true, pools: true, lossy: true},
	"Algorithms":     {algorithms: true},
	"All algorithms": {algorithms: true, changing: true, pools: true, lossy: true},
	"Shadows":        {shadows: true, algorithms: true},
	"All shadows":    {shadows: true, algorithms: true, changing: true, pools: true, lossy: true},
	"Trees":          {trees: true},
	"All in trees":   {trees: true, algorithms: true, changing: true, pools: true, lossy: true},
	"Waits":          {algorithms: true, waits: true},
	"Waits in trees": {algorithms: true, waits: true, trees: true},
	"All waits":      {algorithms: true, waits: true, shadows: true, trees: true, changing: true, pools: true, lossy: true},

	"Priorities":                {keeps: true},
	"Priorities and algorithms": {keeps: true, algorithms: true, changing: true, pools: true},
	"Priorities and all":        {keeps: true, algorithms: true, shadows: true, trees: true, changing: true, pools: true},
	"Lines":                     {lines: true, changing: true, lossy: true},
	"Lines of pools":            {lines: true, pools: true},
	"Lines and priorities":      {lines: true, keeps: true},
	"Lines and waits":           {lines: true, keeps: true, algorithms: true, waits: true, changing: true},
	"Lines and trees":           {lines: true, shadows: true, trees: true, changing: true},
	"Priorities and waits":      {keeps: true, algorithms: true, waits: true, changing: true, pools: true},

	"Refusals":                {refusals: true},
	"Refusals and algorithms": {refusals: true, algorithms: true, changing: true, pools: true, lossy: true},
	"Refusals and shadows":    {refusals: true, algorithms: true, shadows: true, keeps: true},
	"Refusals and lines":      {refusals: true, lines: true, keeps: true},
	"Refusals and waits":      {refusals: true, algorithms: true, waits: true, shadows: true, trees: true},
	"Fair shares":             {fair: true, pools: true},
	"Fair shares and all":     {fair: true, pools: true, algorithms: true, keeps: true, shadows: true, trees: true, changing: true, lossy: true},
	"Fair shares, waits":      {fair: true, pools: true, algorithms: true, waits: true, trees: true, changing: true},
	"Usages":                  {usages: true},
	"Usages in trees":         {usages: true, trees: true, algorithms: true},
	"All usages":              {usages: true, algorithms: true, waits: true, shadows: true, trees: true, changing: true, pools: true, lossy: true},
}

func bucketOf(capacity, amount quota.Amount, every time.Duration) quota.Bucket {
	return quota.Limit{Kind: quota.KindBucket, Burst: capacity, Rate: quota.Rate{Amount: amount, Every: every}}.Bucket()
}

// Buckets that a history changes between: small numbers, so that a history
// meets their ends, odd rates with remainders, and money.
var historyBuckets = []quota.Bucket{
	bucketOf(10, 10, time.Second),
	bucketOf(7, 3, 7*time.Second),
	bucketOf(20, 7, time.Second),
	bucketOf(5_000_000_000, 5_000_000_000, time.Minute),
	bucketOf(10, 1, 24*time.Hour),
}

// Windows that a history changes between: small, with odd lengths.
var historyWindows = []quota.Window{
	{Max: 10, Length: 1_000_000},
	{Max: 7, Length: 7_000_001},
	{Max: 40, Length: 60_000_000},
	{Max: 3, Length: 3},
}

// windowOf is a window of a kind.
func windowOf(w quota.Window, kind quota.Kind, calendar bool) quota.Window {
	w.Kind, w.Calendar = kind, calendar
	return w
}

// newHistoryLimits returns the limits of a world, as holds without amounts.
func newHistoryLimits(w world) []reservation.Hold {
	limits := []reservation.Hold{
		{Counter: reservation.Counter{Limit: "fast"}, Kind: quota.KindBucket, Bucket: historyBuckets[0], OnExpiry: quota.ExpiryGiveBack},
		{Counter: reservation.Counter{Limit: "odd"}, Kind: quota.KindBucket, Bucket: historyBuckets[1], OnExpiry: quota.ExpiryCharge},
		{Counter: reservation.Counter{Limit: "money", Scope: "user=7"}, Kind: quota.KindBucket, Bucket: historyBuckets[3], OnExpiry: quota.ExpiryGiveBack},
		{Counter: reservation.Counter{Limit: "slow"}, Kind: quota.KindSlots, Max: 2, OnExpiry: quota.ExpiryGiveBack},
		{Counter: reservation.Counter{Limit: "slow", Scope: "user=7"}, Kind: quota.KindSlots, Max: 1, OnExpiry: quota.ExpiryCharge},
		{Counter: reservation.Counter{Limit: "daily"}, Kind: quota.KindQuota, Max: 20, OnExpiry: quota.ExpiryGiveBack},
		{Counter: reservation.Counter{Limit: "monthly", Scope: "user=7"}, Kind: quota.KindQuota, Max: 50, OnExpiry: quota.ExpiryCharge},
	}
	if w.algorithms {
		limits = slices.DeleteFunc(limits, func(h reservation.Hold) bool { return h.Kind == quota.KindBucket && h.Limit != "odd" })
		limits = append(limits,
			reservation.Hold{Counter: reservation.Counter{Limit: "cells"}, Kind: quota.KindGCRA, Bucket: historyBuckets[0], OnExpiry: quota.ExpiryGiveBack},
			reservation.Hold{Counter: reservation.Counter{Limit: "cells", Scope: "user=7"}, Kind: quota.KindGCRA, Bucket: historyBuckets[1], OnExpiry: quota.ExpiryCharge},
			reservation.Hold{Counter: reservation.Counter{Limit: "fixed"}, Kind: quota.KindFixedWindow, Window: windowOf(historyWindows[0], quota.KindFixedWindow, true), OnExpiry: quota.ExpiryGiveBack},
			reservation.Hold{Counter: reservation.Counter{Limit: "first", Scope: "user=7"}, Kind: quota.KindFixedWindow, Window: windowOf(historyWindows[1], quota.KindFixedWindow, false), OnExpiry: quota.ExpiryCharge},
			reservation.Hold{Counter: reservation.Counter{Limit: "sliding"}, Kind: quota.KindSlidingCounter, Window: windowOf(historyWindows[0], quota.KindSlidingCounter, false), OnExpiry: quota.ExpiryGiveBack},
			reservation.Hold{Counter: reservation.Counter{Limit: "log"}, Kind: quota.KindSlidingLog, Window: windowOf(historyWindows[2], quota.KindSlidingLog, false), OnExpiry: quota.ExpiryGiveBack},
			reservation.Hold{Counter: reservation.Counter{Limit: "log", Scope: "user=7"}, Kind: quota.KindSlidingLog, Window: windowOf(historyWindows[1], quota.KindSlidingLog, false), OnExpiry: quota.ExpiryCharge},
		)
	}
	if w.lines {
		limits = slices.DeleteFunc(limits, func(h reservation.Hold) bool { return h.Kind == quota.KindBucket && h.Limit != "odd" })
		limits = append(limits, reservation.Hold{Counter: reservation.Counter{Limit: "narrow"}, Kind: quota.KindSlots, Max: 1, OnExpiry: quota.ExpiryGiveBack})
		limits = append(limits, reservation.Hold{Counter: reservation.Counter{Limit: "middle"}, Kind: quota.KindSlots, Max: 4, OnExpiry: quota.ExpiryGiveBack})
	}
	if w.waits {
		limits = append(limits,
			reservation.Hold{Counter: reservation.Counter{Limit: "fast"}, Kind: quota.KindBucket, Bucket: historyBuckets[0], OnExpiry: quota.ExpiryGiveBack},
			reservation.Hold{Counter: reservation.Counter{Limit: "queue"}, Kind: quota.KindLeakyQueue, Bucket: historyBuckets[1], OnExpiry: quota.ExpiryGiveBack},
			reservation.Hold{Counter: reservation.Counter{Limit: "queue", Scope: "user=7"}, Kind: quota.KindLeakyQueue, Bucket: historyBuckets[2], OnExpiry: quota.ExpiryCharge},
		)
	}
	if w.waits && w.pools {
		limits = append(limits, reservation.Hold{
			Counter: reservation.Counter{Pool: "openai", Limit: "queue"}, Kind: quota.KindLeakyQueue, Bucket: historyBuckets[0], OnExpiry: quota.ExpiryGiveBack,
		})
	}
	if w.algorithms && w.pools {
		limits = append(limits,
			reservation.Hold{Counter: reservation.Counter{Pool: "openai", Limit: "sliding"}, Kind: quota.KindSlidingCounter, Window: windowOf(historyWindows[0], quota.KindSlidingCounter, false), OnExpiry: quota.ExpiryGiveBack},
			reservation.Hold{Counter: reservation.Counter{Pool: "openai", Limit: "cells"}, Kind: quota.KindGCRA, Bucket: historyBuckets[0], OnExpiry: quota.ExpiryGiveBack},
		)
	}
	if w.pools {
		limits = append(limits,
			reservation.Hold{Counter: reservation.Counter{Pool: "openai", Limit: "tokens"}, Kind: quota.KindBucket, Bucket: historyBuckets[0], OnExpiry: quota.ExpiryGiveBack},
			reservation.Hold{Counter: reservation.Counter{Pool: "openai", Limit: "workers"}, Kind: quota.KindSlots, Max: 2, OnExpiry: quota.ExpiryGiveBack},
		)
	}
	if w.fair {
		for i := range limits {
			h := &limits[i]
			h.Fair = h.Pool != "" && (h.Kind == quota.KindBucket || h.Kind == quota.KindGCRA)
		}
		// Of fewer limits, the fair ones are met more often.
		limits = slices.DeleteFunc(limits, func(h reservation.Hold) bool { return h.Pool == "" && h.Scope != "" })
	}
	return limits
}

// unitOf is the period of a history's quota.
func unitOf(limit string) quota.PeriodUnit {
	if limit == "monthly" {
		return quota.PeriodMonth
	}
	return quota.PeriodDay
}

// historyState is one history under way.
type historyState struct {
	*lockstep
	ctx     context.Context
	clock   *Clock
	world   world
	limits  []reservation.Hold
	made    []reservation.ReserveRequest          // everything that was ever asked, latest last
	taken   map[reservation.ID][]reservation.Hold // what was granted of those whose holds the engine chose
	seeds   []reservation.SeedRequest             // with every ticket that was given
	ledger  map[string]*posted                    // by counter
	counter int
}

// posted is a usage row of the ledger.
type posted struct {
	used    quota.Amount
	version int64
}

var historyAccounts = []string{"acme", "globex"}

func history(t *rapid.T, engine Engine, clock *Clock, w world) {
	clock.Set(Epoch)
	engine.LoseData()
	h := &historyState{
		lockstep: newLockstep(engine, clock), ctx: context.Background(), clock: clock, world: w,
		limits: newHistoryLimits(w), taken: map[reservation.ID][]reservation.Hold{}, ledger: map[string]*posted{},
	}
	actions := map[string]func(*rapid.T){
		"":        h.compareAll,
		"reserve": h.reserveAny,
		"again":   h.reserveAgain,
		"refund":  h.refundAny,
		"confirm": h.confirmAny,
		"renew":   h.renewAny,
		"restore": h.restoreAny,
		"push":    h.pushAny,
		"credit":  h.giveBackAny,
		"open":    h.openAny,
		"audit":   h.auditAny,
		"seed":    h.seedAny,
		"sweep":   h.sweepAll,
		"time":    h.passTime,
		"more":    h.reserveAny, // reserve more often than the rest
	}
	if w.changing {
		actions["change"], actions["change more"] = h.changeLimit, h.changeLimit
	}
	if w.lines {
		actions["leave"], actions["wait more"] = h.leaveAny, h.reserveAny
	}
	if w.shadows {
		actions["shadow"], actions["shadow more"] = h.switchShadow, h.switchShadow
		for i := range h.limits {
			h.limits[i].Shadow = i%3 == 0
		}
	}
	if w.refusals {
		actions["refusals"] = h.changeRefusals
		firstRefusals(h.limits)
	}
	if w.lossy {
		actions["disaster"] = h.disaster
	}
	t.Repeat(actions)
}

func (h *historyState) must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("at %s: %v", h.clock.Now().Sub(Epoch), err)
	}
}

// plan draws holds, each limit at most once, in any order.
func (h *historyState) plan(t *rapid.T) []reservation.Hold {
	which := rapid.SliceOfNDistinct(rapid.IntRange(0, len(h.limits)-1), 0, 4, rapid.ID[int]).Draw(t, "limits")
	holds := make([]reservation.Hold, 0, len(which))
	for _, i := range which {
		hold := h.limits[i]
		switch hold.Kind {
		case quota.KindBucket, quota.KindGCRA, quota.KindLeakyQueue:
			hold.Amount = h.amount(t, hold.Bucket.Capacity)
		case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
			hold.Amount = h.amount(t, hold.Window.Max)
		case quota.KindQuota:
			hold.Amount = h.amount(t, hold.Max)
			hold.Period = quota.Account{TimeZone: "UTC", AnchorDay: 1}.PeriodAt(unitOf(hold.Limit), h.clock.Now())
		case quota.KindSlots:
			hold.Amount = 1
		}
		if h.world.keeps {
			hold.Keep = quota.Amount(rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(1, max(1, int64(hold.Capacity())/2)), rapid.Int64Range(1, int64(hold.Capacity())+1)).Draw(t, "keep"))
		}
		holds = append(holds, hold)
	}
	return holds
}

// amount draws parts of what a limit can hold: nothing, a few, all, too much.
func (h *historyState) amount(t *rapid.T, most quota.Amount) quota.Amount {
	return quota.Amount(rapid.OneOf(
		rapid.Int64Range(0, int64(most)/2),
		rapid.Int64Range(0, int64(most)+1),
		rapid.Just[int64](0),
	).Draw(t, "amount"))
}

var (
	someLeases     = rapid.SampledFrom([]time.Duration{time.Second, time.Millisecond, 10 * time.Second, time.Minute, 24 * time.Hour})
	someRetentions = rapid.SampledFrom([]time.Duration{10 * time.Second, 0, time.Minute, 24 * time.Hour})
	someBodies     = rapid.SampledFrom([]string{"one", "other"})
	someSkews      = rapid.SampledFrom([]time.Duration{0, 0, 0, 0, 0, time.Second, -time.Second, reservation.MintSkew, -reservation.MintSkew, reservation.MintSkew + time.Microsecond, -reservation.MintSkew - time.Microsecond})
)

func (h *historyState) reserveAny(t *rapid.T) {
	h.counter++
	q := reservation.ReserveRequest{
		Account: rapid.SampledFrom(historyAccounts).Draw(t, "account"),
		ID:      reservation.NewID(h.clock.Now().Add(someSkews.Draw(t, "minted"))),
		Holds:   h.plan(t),
		Lease:   someLeases.Draw(t, "lease"), Retention: someRetentions.Draw(t, "retention"),
		Key: rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(t, "key"), Body: hash(someBodies.Draw(t, "body")),
		Token:  fmt.Appendf(nil, "token %d", h.counter),
		DryRun: rapid.IntRange(0, 9).Draw(t, "dry") == 9,
	}
	// Ids are compared where leases end together: make them grow, whatever
	// the random part is, so that a history runs the same twice.
	copy(q.ID[8:], fmt.Sprintf("%08d", h.counter))
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 3, 4, 5:
		h.chooseOutput(t, &q)
	case 6:
		q.Settle = &reservation.Settlement{Body: hash(someBodies.Draw(t, "closing")), Outcome: fmt.Appendf(nil, "charge %d", h.counter)}
		q.Lease = 0
	}
	if h.world.trees {
		h.chooseParent(t, &q)
	}
	if h.world.waits {
		h.wait(t, &q)
	}
	h.drawLine(t, &q)
	h.made = append(h.made, q)
	h.send(t, q)
}

var someWaits = rapid.SampledFrom([]time.Duration{time.Second, 0, 333_333 * time.Microsecond, 10 * time.Second, time.Minute, time.Hour})

// wait lets a reservation wait, which neither a charge nor one that chooses can.
func (h *historyState) wait(t *rapid.T, q *reservation.ReserveRequest) {
	wait := someWaits.Draw(t, "max wait")
	if q.Settle == nil && q.Parent == (reservation.ID{}) && (q.Output == nil || rapid.Bool().Draw(t, "waits")) {
		q.Output, q.MaxWait = nil, wait
	}
	if q.Output != nil && q.Waits() {
		q.Output = nil
	}
}

// reserveAgain sends what was sent before: a replay, or a script that is late.
func (h *historyState) reserveAgain(t *rapid.T) {
	if q, ok := h.any(t); ok {
		if rapid.IntRange(0, 3).Draw(t, "other id") == 3 {
			h.counter++
			q.ID = reservation.NewID(h.clock.Now())
			copy(q.ID[8:], fmt.Sprintf("%08d", h.counter))
			h.made = append(h.made, q)
		}
		h.send(t, q)
	}
}

func (h *historyState) send(t *rapid.T, q reservation.ReserveRequest) {
	h.forgetKey(&q.Key, q.Account)
	answer, err := h.Reserve(h.ctx, q)
	t.Logf("reserve %s -> %s", q.Account, nameIn(reserveNames, answer.Verdict))
	h.must(t, err)
	h.note(q, answer)
	if answer.Verdict != reservation.Unseeded || q.DryRun {
		return
	}
	now := rapid.Bool().Draw(t, "seed at once")
	for _, ticket := range answer.Tickets {
		hold := q.Holds[ticket.Hold]
		row := h.row(q.Account, hold)
		s := reservation.SeedRequest{
			Account: q.Account, Counter: hold.Counter, Period: hold.Period, Ticket: ticket.Ticket, Used: row.used, Version: row.version,
		}
		h.seeds = append(h.seeds, s)
		if now {
			_, err := h.Seed(h.ctx, s)
			h.must(t, err)
		}
	}
	if now {
		answer, err := h.Reserve(h.ctx, q)
		t.Logf("reserve %s after seed -> %s", q.Account, nameIn(reserveNames, answer.Verdict))
		h.must(t, err)
		h.note(q, answer)
	}
}

// chooseOutput lets the engine choose how much of each hold it takes: amounts of
// tokens, money that is rounded up, and holds that do not depend on the output.
func (h *historyState) chooseOutput(t *rapid.T, q *reservation.ReserveRequest) {
	o := &reservation.Output{Asked: rapid.Int64Range(0, 30).Draw(t, "asked")}
	o.Least = rapid.OneOf(rapid.Int64Range(0, o.Asked), rapid.Just(o.Asked)).Draw(t, "least")
	o.Forecast = rapid.OneOf(rapid.Int64Range(0, o.Asked), rapid.Just(o.Asked)).Draw(t, "forecast")
	q.Holds = slices.Clone(q.Holds)
	for i := range q.Holds {
		var s reservation.Slope
		hold := &q.Holds[i]
		if hold.Kind != quota.KindSlots && rapid.IntRange(0, 3).Draw(t, "fixed") < 3 {
			s.PerToken = rapid.Int64Range(1, 7).Draw(t, "per token")
			s.Per = rapid.SampledFrom([]int64{1, 1, 3, 10, reservation.MaxSlopePer}).Draw(t, "per")
			s.Rest = rapid.Int64Range(0, s.Per-1).Draw(t, "rest")
			s.Weight = rapid.SampledFrom([]quota.Amount{1, 1, 2, 5}).Draw(t, "weight")
			if hold.Kind == quota.KindBucket {
				s.Tolerance = quota.Amount(rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(1, 10), rapid.Int64Range(1, 100)).Draw(t, "tolerance"))
			}
			// The least that the hold can be without its input falling below zero.
			least := s.Weight * quota.Amount((s.Rest+s.PerToken*o.Asked)/s.Per)
			hold.Amount = least + hold.Amount/4
		}
		o.Slopes = append(o.Slopes, s)
	}
	q.Output = o
}

// note keeps what was granted of a plan that the engine chose.
func (h *historyState) note(q reservation.ReserveRequest, answer reservation.ReserveAnswer) {
	if !q.Decides() || answer.Verdict != reservation.Granted || q.DryRun {
		return
	}
	holds := slices.Clone(q.Holds)
	for i, taken := range q.Taken(answer.Decided) {
		holds[i].Amount, holds[i].Risk = taken.Amount, taken.Risk
	}
	h.taken[q.ID] = holds
}

// holdsOf is what a reservation holds, as its broker knows it.
func (h *historyState) holdsOf(made reservation.ReserveRequest) []reservation.Hold {
	if holds := h.taken[made.ID]; holds != nil {
		return holds
	}
	return made.Holds
}

// forgetKey leaves a key out past its life: an engine may know it or not.
func (h *historyState) forgetKey(key *string, account string) {
	for _, r := range h.model.records {
		if *key != "" && r.key == *key && r.account == account && h.clock.Now().UnixMicro() >= r.expires+r.retention {
			*key = ""
		}
	}
}

// row is the ledger's for a quota's counter.
func (h *historyState) row(account string, hold reservation.Hold) *posted {
	key := fmt.Sprintf("%q %q %q %q", account, hold.Limit, hold.Scope, hold.Period.Key)
	if h.ledger[key] == nil {
		h.ledger[key] = &posted{}
	}
	return h.ledger[key]
}

// any draws a reservation that was asked for, the latest more often.
func (h *historyState) any(t *rapid.T) (reservation.ReserveRequest, bool) {
	if len(h.made) == 0 {
		return reservation.ReserveRequest{}, false
	}
	back := rapid.IntRange(0, min(len(h.made), 8)-1).Draw(t, "which")
	return h.made[len(h.made)-1-back], true
}

// actual draws what each hold used: less, the same, or more than was held.
func (h *historyState) actual(t *rapid.T, holds []reservation.Hold) []quota.Amount {
	actual := make([]quota.Amount, len(holds))
	for i, hold := range holds {
		if hold.Kind != quota.KindSlots {
			actual[i] = quota.Amount(rapid.Int64Range(0, int64(hold.Amount)+3).Draw(t, "actual"))
		}
	}
	return actual
}

func (h *historyState) refundAny(t *rapid.T) {
	made, ok := h.any(t)
	if !ok {
		return
	}
	body := rapid.IntRange(0, 1).Draw(t, "body")
	q := reservation.RefundRequest{
		Account: made.Account, ID: made.ID, Lease: made.Lease, Retention: made.Retention,
		Body: hash(fmt.Sprint("refund", body)), Outcome: fmt.Appendf(nil, "refund %d", body), Token: made.Token,
		Actual: h.actual(t, made.Holds), OnlyHeld: rapid.IntRange(0, 3).Draw(t, "only held") == 0,
	}
	if rapid.Bool().Draw(t, "with holds") {
		q.Holds, q.Kin = h.holdsOf(made), h.kinOf(made)
	}
	answer, err := h.Refund(h.ctx, q)
	t.Logf("refund %s -> %s", q.Account, nameIn(refundNames, answer.Verdict))
	h.must(t, err)
}

func (h *historyState) confirmAny(t *rapid.T) {
	made, ok := h.any(t)
	if !ok {
		return
	}
	record, err := h.Lookup(h.ctx, made.Account, made.ID)
	h.must(t, err)
	q := reservation.ConfirmRequest{
		Account: made.Account, ID: made.ID, Lease: made.Lease, Retention: made.Retention, Token: made.Token,
		Rank: record.Rank, Body: record.Body, Outcome: record.Outcome, Actual: record.Actual, Late: record.Late, ClosedAt: record.ClosedAt,
	}
	if record.Rank == 0 || rapid.IntRange(0, 3).Draw(t, "other winner") == 3 {
		q.Rank = rapid.SampledFrom([]ledger.Rank{ledger.RankExpired, ledger.RankRefunded}).Draw(t, "rank")
		q.Body, q.Outcome, q.Actual = hash("winner"), []byte("winner"), h.actual(t, made.Holds)
		q.Late, q.ClosedAt = rapid.Bool().Draw(t, "late"), h.clock.Now()
	}
	for i, hold := range made.Holds {
		if hold.Kind != quota.KindQuota || rapid.IntRange(0, 3).Draw(t, "no usage") == 3 {
			continue
		}
		row := h.row(made.Account, hold)
		u := reservation.CounterUsage{Counter: hold.Counter, Period: hold.Period, Used: row.used, Version: row.version}
		if rapid.IntRange(0, 4).Draw(t, "old usage") == 4 && row.version > 0 {
			u.Used, u.Version = 999, row.version-1 // a push that comes late
		} else {
			row.used += q.Actual[i]
			row.version++
			u.Used, u.Version = row.used, row.version
		}
		q.Usage = append(q.Usage, u)
	}
	if rapid.Bool().Draw(t, "with holds") {
		q.Holds, q.Kin = h.holdsOf(made), h.kinOf(made)
	}
	verdict, err := h.Confirm(h.ctx, q)
	t.Logf("confirm %s rank %d -> %s", q.Account, q.Rank, nameIn(confirmNames, verdict))
	h.must(t, err)
}

func (h *historyState) renewAny(t *rapid.T) {
	if made, ok := h.any(t); ok {
		q := reservation.RenewRequest{Account: made.Account, ID: made.ID, Lease: someLeases.Draw(t, "lease"), Peek: made.Holds}
		if h.world.usages {
			q.Used = h.used(t, made.Holds)
		}
		answer, err := h.Renew(h.ctx, q)
		t.Logf("renew -> %s", stateName(answer.State))
		h.must(t, err)
	}
}

// restoreAny brings back what was asked for at some time, whether the engine
// knows it, has lost it or never granted it.
func (h *historyState) restoreAny(t *rapid.T) {
	made, ok := h.any(t)
	if !ok {
		return
	}
	q := reservation.RestoreRequest{
		Account: made.Account, ID: made.ID, Holds: h.holdsOf(made), ExpiresAt: h.clock.Now().Add(someLeases.Draw(t, "lease")),
		Retention: made.Retention, Key: made.Key, Body: made.Body, Token: made.Token, Kin: h.kinOf(made),
	}
	if rapid.IntRange(0, 2).Draw(t, "its own end") == 2 {
		q.ExpiresAt = made.ID.Minted().Add(made.Lease)
	}
	if h.world.waits {
		if wait := someWaits.Draw(t, "starts in"); wait > 0 && rapid.Bool().Draw(t, "still waits") {
			q.StartAt = h.clock.Now().Add(wait)
			if q.StartAt.After(q.ExpiresAt) {
				q.StartAt = q.ExpiresAt
			}
		}
	}
	h.forgetKey(&q.Key, q.Account)
	verdict, err := h.Restore(h.ctx, q)
	t.Logf("restore %s -> %s", q.Account, nameIn(restoreNames, verdict))
	h.must(t, err)
}

// giveBackAny gives the buckets of a plan something back, of no reservation.
func (h *historyState) giveBackAny(t *rapid.T) {
	made, ok := h.any(t)
	if !ok {
		return
	}
	var holds []reservation.Hold
	for _, hold := range made.Holds {
		if hold.Kind == quota.KindBucket {
			hold.Amount = quota.Amount(rapid.Int64Range(0, 20).Draw(t, "amount"))
			holds = append(holds, hold)
		}
	}
	answer, err := h.GiveBack(h.ctx, made.Account, holds)
	t.Logf("give back to %d buckets of %s -> %v", len(holds), made.Account, answer.Given)
	h.must(t, err)
}

// pushAny brings a counter's present ledger value, or one from before.
func (h *historyState) pushAny(t *rapid.T) {
	made, ok := h.any(t)
	if !ok {
		return
	}
	var usage []reservation.CounterUsage
	for _, hold := range made.Holds {
		if hold.Kind != quota.KindQuota {
			continue
		}
		row := h.row(made.Account, hold)
		u := reservation.CounterUsage{Counter: hold.Counter, Period: hold.Period, Used: row.used, Version: row.version}
		switch rapid.IntRange(0, 2).Draw(t, "which value") {
		case 0: // changed by another node
			row.used += 2
			row.version++
			u.Used, u.Version = row.used, row.version
		case 1:
			if row.version > 0 {
				u.Used, u.Version = 999, row.version-1
			}
		}
		usage = append(usage, u)
	}
	t.Logf("push %d values to %s", len(usage), made.Account)
	h.must(t, h.Push(h.ctx, made.Account, usage))
}

// auditAny names some counters of this period, and adds up what records say of
// them and of others. Nothing may differ, and so nothing be repaired.
func (h *historyState) auditAny(t *rapid.T) {
	q := reservation.AuditRequest{
		Account: rapid.SampledFrom(historyAccounts).Draw(t, "account"), Repair: rapid.Bool().Draw(t, "repair"),
	}
	for _, limit := range h.limits {
		if limit.Kind == quota.KindQuota && rapid.Bool().Draw(t, "named") {
			period := quota.Account{TimeZone: "UTC", AnchorDay: 1}.PeriodAt(unitOf(limit.Limit), h.clock.Now())
			q.Counters = append(q.Counters, reservation.AuditCounter{Counter: limit.Counter, Period: period})
		}
	}
	answer, err := h.Audit(h.ctx, q)
	t.Logf("audit %s -> %d counters of %d records", q.Account, len(answer.Counters), answer.Records)
	h.must(t, err)
	for _, c := range answer.Counters {
		if c.Held != c.HeldSum || c.Unposted != c.UnpostedSum || c.Repaired {
			t.Fatalf("account %s: a counter is not the sum of its records: %+v", q.Account, c)
		}
	}
}

func (h *historyState) openAny(t *rapid.T) {
	account := rapid.SampledFrom(historyAccounts).Draw(t, "account")
	open, err := h.Open(h.ctx, account, rapid.IntRange(1, 4).Draw(t, "most"))
	t.Logf("open %s -> %d", account, len(open))
	h.must(t, err)
}

// seedAny brings any ticket that was ever given, with a present or an old value.
func (h *historyState) seedAny(t *rapid.T) {
	if len(h.seeds) == 0 {
		return
	}
	s := h.seeds[len(h.seeds)-1-rapid.IntRange(0, min(len(h.seeds), 6)-1).Draw(t, "which")]
	known := h.model.quotaOf(nameOf(s.Account, s.Counter), s.Period.Key)
	// Whether a version pushed to a counter that was never seeded counts as
	// known is left open.
	if old := rapid.IntRange(0, 3).Draw(t, "old") == 3; !old || known == nil || known.incarnation == 0 {
		row := h.row(s.Account, reservation.Hold{Counter: s.Counter, Period: s.Period})
		s.Used, s.Version = row.used, row.version
	}
	accepted, err := h.Seed(h.ctx, s)
	t.Logf("seed -> %v", accepted)
	h.must(t, err)
}

func (h *historyState) sweepAll(t *rapid.T) {
	answer, err := h.Sweep(h.ctx)
	t.Logf("sweep -> %d expired, %d pending", answer.Expired, len(answer.Pending))
	h.must(t, err)
}

// passTime steps by a span, or to an instant at which something changes, or
// to the microsecond before it.
func (h *historyState) passTime(t *rapid.T) {
	now := h.clock.Now()
	step := rapid.SampledFrom([]time.Duration{
		time.Millisecond, time.Microsecond, 333_333 * time.Microsecond, time.Second, reservation.OutboxDelay,
		reservation.OutboxRetry, 10 * time.Second, time.Minute, time.Hour, 25 * time.Hour,
	}).Draw(t, "step")
	var instants []time.Time
	for _, r := range h.model.records {
		if r.state == reservation.StateHeld {
			instants = append(instants, instant(r.expires))
			if r.start > now.UnixMicro() {
				instants = append(instants, instant(r.start))
			}
		} else if !r.confirmed {
			instants = append(instants, instant(r.due))
		}
	}
	instants = append(instants, quota.Account{TimeZone: "UTC"}.PeriodAt(quota.PeriodDay, now).End)
	instants = slices.DeleteFunc(instants, func(at time.Time) bool { return !at.After(now) })
	if rapid.IntRange(0, 2).Draw(t, "to an event") == 2 {
		to := instants[rapid.IntRange(0, len(instants)-1).Draw(t, "event")]
		if rapid.Bool().Draw(t, "just before") {
			to = to.Add(-time.Microsecond)
		}
		step = to.Sub(now)
	}
	h.clock.Add(step)
	t.Logf("time passes: %s, it is %s", step, h.clock.Now().Sub(Epoch))
}

// changeLimit gives a limit other parameters: counters stay, plans that were
// made keep the old ones.
func (h *historyState) changeLimit(t *rapid.T) {
	limit := &h.limits[rapid.IntRange(0, len(h.limits)-1).Draw(t, "limit")]
	switch {
	case limit.Kind.IsLevel():
		limit.Bucket = rapid.SampledFrom(historyBuckets).Draw(t, "bucket")
	case limit.Kind.IsWindow():
		limit.Window = windowOf(rapid.SampledFrom(historyWindows).Draw(t, "window"), limit.Kind, limit.Window.Calendar)
	default:
		limit.Max = quota.Amount(rapid.Int64Range(1, 60).Draw(t, "max"))
	}
	if rapid.Bool().Draw(t, "rule") {
		limit.OnExpiry = quota.ExpiryCharge
	} else {
		limit.OnExpiry = quota.ExpiryGiveBack
	}
}

func (h *historyState) disaster(t *rapid.T) {
	switch rapid.IntRange(0, 7).Draw(t, "disaster") {
	case 6:
		t.Logf("the data is lost")
		h.loseData()
	case 7:
		if h.engine.Incarnate != nil {
			t.Logf("another incarnation")
			h.incarnate()
		}
	}
}

// compareAll compares every counter, checks that nothing was made or lost, and
// compares the latest records.
func (h *historyState) compareAll(t *rapid.T) {
	holds := slices.Clone(h.limits)
	for i := range holds {
		if holds[i].Kind == quota.KindQuota {
			holds[i].Period = quota.Account{TimeZone: "UTC", AnchorDay: 1}.PeriodAt(unitOf(holds[i].Limit), h.clock.Now())
		}
	}
	for _, account := range historyAccounts {
		levels, _, err := h.Levels(h.ctx, account, holds)
		h.must(t, err)
		for i, l := range levels {
			if err := conserved(holds[i], l); err != nil {
				t.Fatalf("account %s: %v", account, err)
			}
		}
	}
	for _, made := range h.made[max(0, len(h.made)-8):] {
		_, err := h.Lookup(h.ctx, made.Account, made.ID)
		h.must(t, err)
	}
}

// conserved checks that what is available, held and spent is the limit, and
// that nothing is negative that must not be.
func conserved(hold reservation.Hold, l reservation.Level) error {
	whole := hold.Max
	switch {
	case hold.Kind == quota.KindBucket:
		if l.Remaining > hold.Bucket.Capacity {
			return fmt.Errorf("%s: level %d is above the capacity %d", hold.Limit, l.Remaining, hold.Bucket.Capacity)
		}
		if l.Risk < 0 {
			return fmt.Errorf("%s: the open sum is %d", hold.Limit, l.Risk)
		}
		return nil
	case hold.Kind.HasRate():
		if l.Remaining > hold.Capacity() {
			return fmt.Errorf("%s: %d remain of %d", hold.Limit, l.Remaining, hold.Capacity())
		}
		return nil
	case l.Held < 0 || l.Unposted < 0 || l.Used < 0:
		return fmt.Errorf("%s: held %d, unposted %d, used %d: none may be negative", hold.Limit, l.Held, l.Unposted, l.Used)
	case !l.Seeded:
		return nil
	}
	if sum := l.Remaining + l.Held + l.Used + l.Unposted; sum != whole {
		return fmt.Errorf("%s: remaining %d + held %d + used %d + unposted %d = %d, not %d", hold.Limit, l.Remaining, l.Held, l.Used, l.Unposted, sum, whole)
	}
	return nil
}
