package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
	"github.com/budgetd/budgetd/reservation/storetest"
)

const (
	monthly  quota.Amount = 1000      // the quota
	capacity quota.Amount = 1_000_000 // the bucket, which refills 1 a day
	slots    quota.Amount = 6
	lease                 = 30 * time.Second
)

func fixedPolicy() *quota.Policy {
	plan := quota.Plan{Name: "p", Limits: []quota.Limit{
		{Name: "bucket", Meter: quota.MeterTokens, Kind: quota.KindBucket, Rate: quota.Rate{Amount: 1, Every: 24 * time.Hour}, Burst: capacity},
		{Name: "slots", Meter: quota.MeterInFlight, Kind: quota.KindSlots, Max: slots},
		{Name: "month", Meter: quota.MeterTokens, Kind: quota.KindQuota, Max: monthly, Period: quota.PeriodMonth},
		forecastLimit(),
	}}
	policy, err := quota.NewPolicy([]quota.Plan{plan}, nil, []quota.Account{{Name: "acme", Plan: "p"}}, 1)
	if err != nil {
		panic(err)
	}
	return policy
}

type policies struct{ atomic.Pointer[quota.Policy] }

func (p *policies) Current() *quota.Policy { return p.Load() }

type signing struct{}

func (signing) Current() (uint16, []byte) { return 1, []byte("the same on every node, as it should") }
func (s signing) ByID(id uint16) ([]byte, bool) {
	_, key := s.Current()
	return key, id == 1
}

var counter = func() *estimator.Estimator {
	e, err := estimator.New(estimator.Config{})
	if err != nil {
		panic(err)
	}
	return e
}()

// promise is what the history knows of one reservation.
type promise struct {
	id      string // as the caller has it
	held    quota.Amount
	period  string
	made    time.Time
	overrun bool          // some Refund, acknowledged or not, used more than was held
	acked   *quota.Amount // what the first acknowledged Refund used
	tried   bool          // a Refund was sent: the call is over, whether it was acknowledged or not
	sent    map[quota.Amount]bool
	kept    bool // some node kept a Refund on its disk while the ledger was away
	late    bool // some Refund was sent after the lease had ended

	output quota.Amount // of a model call: the most that it may write
	risk   quota.Amount // by how much less is held of it
	uses   quota.Amount // tokens, in and out, that it uses
}

// disputed says that window W3 may be open: two different Refunds, of which one
// was acknowledged by a node that could not ask the ledger.
func (p *promise) disputed() bool { return p.kept && len(p.sent) > 1 }

// node is a broker with its auditor, and the spool on its disk, which outlives
// it.
type node struct {
	*reservation.Broker
	auditor *reservation.Auditor
	*disk
}

// world is one history.
type world struct {
	t        *rapid.T
	clock    *storetest.Clock
	network  *network
	policies *policies
	dir      string
	disks    *[2]*disk
	nodes    [2]*node
	promises []*promise
	keys     int
	lossless bool // the engine never lost its data
	refills  time.Time
}

var (
	histories atomic.Int64
	forecasts atomic.Int64 // holds that were less than their maximum
	beyond    atomic.Int64 // looks at the limit that found it below zero
)

func newWorld(t *rapid.T, dir string, disks *[2]*disk) *world {
	w := &world{t: t, disks: disks, clock: storetest.NewClock(), policies: &policies{}, lossless: true}
	w.policies.Store(fixedPolicy())
	w.dir = filepath.Join(dir, fmt.Sprint(histories.Add(1)))
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.dir, "ledger.db")
	if err := os.WriteFile(path, emptyLedger(), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := sqliteledger.Open(context.Background(), sqliteledger.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	w.network = &network{ledger: l}
	w.newEngine()
	w.clock.Set(time.Date(2026, 11, 30, 23, 50, 0, 0, time.UTC)) // the month rolls in ten minutes
	w.refills = w.clock.Now()
	for n := range w.nodes {
		w.nodes[n] = w.newNode(n)
	}
	return w
}

// emptyLedger is the file of a ledger that nothing was posted to: to migrate one
// for each history would take longer than the history.
var emptyLedger = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "budgetd-model-empty-*")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "ledger.db")
	db, err := sqliteledger.OpenFile(path, 5*time.Second)
	if err != nil {
		panic(err)
	}
	if _, err := migrations.Up(context.Background(), db, migrations.SQLite); err != nil {
		panic(err)
	}
	if err := db.Close(); err != nil { // what is in its log is in the file then
		panic(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return text
})

func (w *world) end() {
	for _, node := range w.nodes {
		node.Close(context.Background())
	}
	w.network.ledger.Close()
	os.RemoveAll(w.dir)
}

func (w *world) newEngine() {
	engine, err := memstore.New(memstore.Config{Clock: w.clock.Now})
	if err != nil {
		w.t.Fatal(err)
	}
	w.network.mu.Lock()
	w.network.engine = engine
	w.network.mu.Unlock()
}

func (w *world) newNode(n int) *node {
	made := &node{disk: w.disks[n]}
	books := books{w.network.ledger, w.network}
	made.disk.next.Ledger = books
	made.disk.drained = func(drained []ledger.Drained) { made.Drained(drained) }
	made.Broker = reservation.NewBroker(reservation.Parts{
		Store: wire{w.network}, Ledger: made.spool, Poster: books, Policies: w.policies, Estimator: counter, Keys: signing{},
		Forecasts: known{},
	}, reservation.Config{Now: w.clock.Now, Deadline: 10 * time.Second, Logger: quiet})
	made.auditor = reservation.NewAuditor(made.Broker)
	w.warm(made)
	return made
}

func (w *world) node() *node {
	return w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(w.t, "node")]
}

// fates draws what becomes of the next messages.
func (w *world) fates(label string) []fate {
	return rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 9), func(n int) fate {
		return [...]fate{arrives, arrives, arrives, arrives, arrives, arrives, arrives, loses, drops, lingersOn}[n]
	}), 0, 4).Draw(w.t, label)
}

func (w *world) disturb() {
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	w.network.engineNext = w.fates("engine")
	w.network.ledgerNext = w.fates("ledger")
}

func (w *world) reserve(*rapid.T) {
	w.disturb()
	amount := quota.Amount(rapid.IntRange(1, 300).Draw(w.t, "amount"))
	length := lease
	w.keys++
	ask := reservation.Ask{Account: "acme", Key: fmt.Sprint("key-", w.keys), Amounts: quota.Amounts{"tokens": amount}, Lease: &length}
	for try := range rapid.IntRange(1, 3).Draw(w.t, "tries") {
		d, err := w.node().Reserve(context.Background(), ask)
		switch {
		case errors.Is(err, reservation.ErrUnavailable):
			continue // the caller repeats with the same key, perhaps elsewhere
		case err != nil:
			w.t.Fatalf("Reserve, try %d: %v", try, err)
		case d.Grant != nil && d.Grant.State == reservation.StateHeld:
			w.granted(d.Grant, amount)
		}
		return
	}
}

// granted notes a grant and holds it against the promises.
func (w *world) granted(g *reservation.Grant, amount quota.Amount) {
	now := w.clock.Now()
	period := fixedPolicy().Accounts["acme"].PeriodAt(quota.PeriodMonth, now).Key
	w.promises = append(w.promises, &promise{id: g.Reservation, held: amount, period: period, made: now, sent: map[quota.Amount]bool{}})

	// Promise 8: exact for all spend that the ledger holds, whatever the
	// engine lost.
	posted := w.posted(period)
	if posted+amount > monthly && !w.overran(period) {
		w.t.Fatalf("%d granted while the ledger holds %d of %d", amount, posted, monthly)
	}
	if !w.lossless {
		return // W1: holds that the engine forgot may be granted again
	}
	// Promise 1: what is spent and what is open never pass the limit. The
	// ledger may hold closings of expired reservations too: they are posted.
	open, taken := quota.Amount(0), quota.Amount(0)
	acked := quota.Amount(0) // in the ledger or on some node's disk
	for _, p := range w.promises {
		if p.period == period && p.acked != nil && !p.disputed() {
			acked += *p.acked
		}
		if p.period == period && !p.tried && now.Before(p.made.Add(lease)) {
			open += p.held
			taken++
		}
	}
	if posted+open > monthly && !w.overran(period) {
		w.t.Fatalf("%d granted: %d posted and %d open pass %d", amount, posted, open, monthly)
	}
	if acked+open > monthly && !w.overran(period) {
		w.t.Fatalf("%d granted: %d acknowledged and %d open pass %d", amount, acked, open, monthly)
	}
	if taken > slots {
		w.t.Fatalf("%d slots of %d are held", taken, slots)
	}
}

// overran says whether the callers' own usage passed the quota, which no hold
// can prevent.
func (w *world) overran(period string) bool {
	for _, p := range w.promises {
		if p.period == period && (p.overrun || !w.clock.Now().Before(p.made.Add(lease))) {
			return true
		}
	}
	return false
}

func (w *world) posted(period string) quota.Amount {
	rows, err := w.network.ledger.AccountUsage(context.Background(), "acme", period, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, row := range rows {
		if row.Limit != "" {
			return row.Used
		}
	}
	return 0
}

func (w *world) somePromise() *promise {
	if len(w.promises) == 0 {
		w.t.Skip("nothing was granted yet")
	}
	return w.promises[rapid.IntRange(0, len(w.promises)-1).Draw(w.t, "reservation")]
}

func (w *world) refund(*rapid.T) {
	p := w.somePromise()
	w.disturb()
	amount := p.held / 2
	if p.output > 0 {
		amount = p.uses
	}
	if rapid.IntRange(0, 5).Draw(w.t, "another body") == 0 {
		amount = quota.Amount(rapid.IntRange(0, int(p.held)+50).Draw(w.t, "used"))
	}
	p.tried, p.sent[amount] = true, true
	p.late = p.late || !w.clock.Now().Before(p.made.Add(lease))
	p.overrun = p.overrun || amount > p.held
	node := w.node()
	before := node.spool.Waiting()
	_, err := node.Refund(context.Background(), p.id, reservation.Usage{Amounts: p.used(amount)})
	p.kept = p.kept || node.spool.Waiting() > before
	switch {
	case err == nil:
		w.acknowledged(node, p, amount)
	case errors.Is(err, reservation.ErrConflict):
		if p.acked != nil && *p.acked == amount && !p.disputed() {
			w.t.Fatalf("a conflict is answered to a repeat of the acknowledged Refund of %d", amount)
		}
	case errors.Is(err, ledger.ErrUnavailable), errors.Is(err, reservation.ErrUnavailable):
	default:
		w.t.Fatalf("Refund: %v", err)
	}
}

// acknowledged holds an answered Refund against promises 3 and 7.
func (w *world) acknowledged(by *node, p *promise, amount quota.Amount) {
	if p.acked != nil && *p.acked != amount && !p.disputed() {
		w.t.Fatalf("acknowledged with %d and then with %d", *p.acked, amount)
	}
	if p.acked == nil {
		p.acked = &amount
	}
	story, err := by.Reservation(context.Background(), p.id)
	if err == nil && story.Receipt != nil && p.disputed() && p.sent[story.Receipt.Charged["tokens"]] {
		return
	}
	if err != nil || story.Receipt == nil || story.Receipt.Charged["tokens"] != amount {
		w.t.Fatalf("a Refund of %d was acknowledged; what is known of it: state %d, %+v, %v", amount, story.State, story.Receipt, err)
	}
}

func (w *world) renew(*rapid.T) {
	p := w.somePromise()
	if _, err := w.nodes[0].Renew(context.Background(), p.id, reservation.Renewal{}); err == nil {
		p.made = w.clock.Now() // the lease counts from here
	}
}

func (w *world) sweep(*rapid.T) {
	w.disturb()
	_, _ = reservation.NewSweeper(w.node().Broker).Sweep(context.Background())
}

func (w *world) drain(*rapid.T) {
	w.disturb()
	_ = w.node().spool.Drain(context.Background())
}

func (w *world) follow(*rapid.T) {
	w.disturb()
	_, _ = w.node().auditor.Follow(context.Background())
}

func (w *world) wait(*rapid.T) {
	w.clock.Add(time.Duration(rapid.IntRange(1, 40).Draw(w.t, "seconds")) * time.Second)
}

func (w *world) thaw(*rapid.T) {
	if n := w.network.waiting(); n > 0 {
		w.network.thaw(rapid.IntRange(0, n-1).Draw(w.t, "which"))
	}
}

func (w *world) killNode(*rapid.T) {
	n := rapid.IntRange(0, len(w.nodes)-1).Draw(w.t, "node")
	dead, cancel := context.WithCancel(context.Background())
	cancel() // what it had still to say is lost
	w.nodes[n].Close(dead)
	if err := w.nodes[n].reopen(); err != nil {
		w.t.Fatal(err)
	}
	w.nodes[n] = w.newNode(n)
}

func (w *world) loseEngine(*rapid.T) {
	if rapid.IntRange(0, 3).Draw(w.t, "really") > 0 {
		w.t.Skip("rarely")
	}
	w.lossless = false
	w.newEngine()
}

func (w *world) ledgerAway(*rapid.T) {
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	w.network.ledgerAway = !w.network.ledgerAway
}

func (w *world) confirms(*rapid.T) {
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	w.network.confirms = rapid.SampledFrom([]fate{arrives, arrives, loses, drops, lingersOn}).Draw(w.t, "confirms")
}

// settle ends all trouble, lets everything late arrive and every lease end, and
// holds the books against each other.
func (w *world) settle() {
	w.network.mu.Lock()
	w.network.engineNext, w.network.ledgerNext, w.network.ledgerAway, w.network.confirms = nil, nil, false, arrives
	w.network.mu.Unlock()
	for w.network.waiting() > 0 {
		w.network.thaw(0)
	}
	for n, node := range w.nodes {
		if err := node.spool.Drain(context.Background()); err != nil || node.spool.Waiting() > 0 || node.spool.Away() {
			w.t.Fatalf("with all well, node %d has %d spooled closings: %v", n, node.spool.Waiting(), err)
		}
	}
	sweeper := reservation.NewSweeper(w.nodes[0].Broker)
	for range 8 {
		w.clock.Add(lease)
		for more := true; more; {
			var err error
			if more, err = sweeper.Sweep(context.Background()); err != nil {
				w.t.Fatalf("with all well, Sweep: %v", err)
			}
		}
	}
	for i, p := range w.promises {
		if p.acked == nil {
			continue
		}
		story, err := w.nodes[1].Reservation(context.Background(), p.id)
		if err == nil && story.Receipt != nil && story.Posted && p.disputed() && p.sent[story.Receipt.Charged["tokens"]] {
			continue // one of them, once
		}
		if err != nil || story.Receipt == nil || story.Receipt.Charged["tokens"] != *p.acked || !story.Posted {
			w.t.Fatalf("reservation %d: acknowledged with %d, in the end state %d, %+v, posted %v, %v", i, *p.acked, story.State, story.Receipt, story.Posted, err)
		}
	}
	wrong, err := w.network.ledger.CheckSums(context.Background(), "acme")
	if err != nil || len(wrong) > 0 {
		w.t.Fatalf("sums of the ledger: %+v, %v", wrong, err)
	}
	view, err := w.nodes[0].Overview(context.Background(), "acme", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, limit := range view.Limits {
		level := limit.Level
		switch limit.Kind {
		case quota.KindSlots:
			if level.Held != 0 {
				w.t.Fatalf("%d slots were never freed", level.Held)
			}
		case quota.KindQuota:
			if level.Held != 0 || level.Unposted != 0 {
				w.t.Fatalf("quota: %d held and %d unposted for good", level.Held, level.Unposted)
			}
			if level.Seeded && level.Used != limit.Posted {
				w.checkHeals(limit)
			}
		case quota.KindBucket:
			if limit.Limit == outputs {
				if level.Risk != 0 {
					w.t.Fatalf("forecasts are short by %d for good", level.Risk)
				}
				continue
			}
			w.checkBucket(level.Remaining)
		}
	}
	w.audit()
}

// audit: the auditor finds the books in order, too. What a lost confirmation
// left behind it brings up to date.
func (w *world) audit() {
	report, err := w.nodes[0].auditor.Audit(context.Background(), reservation.AuditQuery{Account: "acme"})
	switch {
	case errors.Is(err, reservation.ErrNotFound) && len(w.promises) == 0:
	case err != nil || report.Gaps > 0 || report.Waiting > 0 || report.Unsummed > 0 || report.Partial > 0:
		w.t.Fatalf("with all well, the audit found: %+v, %v", report, err)
	}
}

// checkHeals: the one confirmation that nothing repeats when its broker dies is
// that of a Refund which went around the engine after the confirmed expiry
// (window W4). The next closing on the counter brings the engine up to date.
func (w *world) checkHeals(limit reservation.LimitStatus) {
	if limit.Level.Used > limit.Posted {
		w.t.Fatalf("quota: the engine shows %d, the ledger %d", limit.Level.Used, limit.Posted)
	}
	d, err := w.nodes[0].Reserve(context.Background(), reservation.Ask{Account: "acme", Amounts: quota.Amounts{"tokens": 1}})
	if err != nil || d.Grant == nil {
		return // nothing more is granted from the counter that lags
	}
	if _, err := w.nodes[0].Refund(context.Background(), d.Grant.Reservation, reservation.Usage{Unused: true}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.nodes[0].Close(context.Background()); err != nil { // waits for the confirmation
		w.t.Fatal(err)
	}
	w.nodes[0] = w.newNode(0)
	view, err := w.nodes[0].Overview(context.Background(), "acme", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, now := range view.Limits {
		if now.Kind == quota.KindQuota && (now.Level.Used != now.Posted || now.Level.Unposted != 0) {
			w.t.Fatalf("quota: the engine still shows %d and %d unposted, the ledger %d", now.Level.Used, now.Level.Unposted, now.Posted)
		}
	}
}

// checkBucket: what the bucket lacks is what the ledger says was used, but for
// the one token that may have refilled. A Refund that reached the ledger after
// the engine had confirmed the lease's end may be missing (window W4): nothing
// repeats its confirmation when its broker dies.
func (w *world) checkBucket(left quota.Amount) {
	if !w.lossless {
		return // it started full again
	}
	used := quota.Amount(0)
	for _, period := range []string{"m2026-11-01", "m2026-12-01"} {
		used += w.posted(period)
	}
	refilled := quota.Amount(w.clock.Now().Sub(w.refills)/(24*time.Hour)) + 1
	for _, p := range w.promises {
		if !p.late && !p.kept {
			continue
		}
		if story, err := w.nodes[1].Reservation(context.Background(), p.id); err == nil && story.Receipt != nil {
			refilled += story.Receipt.Charged["tokens"]
		}
	}
	if left < capacity-used || left > capacity-used+refilled {
		w.t.Fatalf("the bucket has %d left of %d, and the ledger says that %d were used", left, capacity, used)
	}
}

// TestProtocol runs random histories. -rapid.checks says how many; a failure
// prints how to run it again.
func TestProtocol(t *testing.T) {
	dir, err := os.MkdirTemp("", "budgetd-model-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var disks [2]*disk
	for n := range disks {
		disks[n] = &disk{path: filepath.Join(dir, fmt.Sprintf("spool-%d.db", n))}
		t.Cleanup(func() { disks[n].close() })
	}
	rapid.Check(t, func(rt *rapid.T) {
		for _, d := range disks {
			if err := d.clear(); err != nil {
				rt.Fatal(err)
			}
		}
		w := newWorld(rt, dir, &disks)
		defer w.end()
		rt.Repeat(map[string]func(*rapid.T){
			"reserve": w.reserve, "reserve more": w.reserve, "refund": w.refund, "refund more": w.refund, "renew": w.renew,
			"sweep": w.sweep, "drain": w.drain, "follow": w.follow, "wait": w.wait, "thaw": w.thaw, "kill a node": w.killNode, "lose the engine": w.loseEngine,
			"ledger away or back": w.ledgerAway, "fate of confirms": w.confirms,
			"reserve a call": w.reserveCall, "reserve more calls": w.reserveCall,
			"": w.checkTolerance,
		})
		w.settle()
	})
	t.Logf("%d forecasts were held; %d times more than the burst had passed", forecasts.Load(), beyond.Load())
	if forecasts.Load() == 0 {
		t.Error("no forecast was held")
	}
}
