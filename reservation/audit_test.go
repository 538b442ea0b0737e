package reservation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

const auditedPolicy = `
plans:
  pro:
    quotas:
      - {name: budget, meter: tokens, amount: 50000, period: month}
      - {name: daily, meter: tokens, amount: 9000, period: day}
      - {name: users, meter: requests, amount: 9000, period: week, per: [user]}
accounts:
  acme: {plan: pro}
  globex: {plan: pro}
`

// traffic leaves one reservation open, one settled and one whose closing waits
// for the ledger, for each of three users.
func (r *rig) traffic(account string) {
	r.tb.Helper()
	for user := range 3 {
		ask := reservation.Ask{Account: account, Labels: map[string]string{"user": fmt.Sprint("u", user)}, Amounts: quota.Amounts{quota.MeterTokens: quota.Amount(100 + user)}}
		r.reserve(ask)
		r.refund(r.reserve(ask).Reservation, used(50))
	}
	r.eventually("nothing is unposted", func() bool {
		view, err := r.Overview(context.Background(), account, map[string]string{"user": "u2"})
		if err != nil {
			r.tb.Fatal(err)
		}
		return !slices.ContainsFunc(view.Limits, func(l reservation.LimitStatus) bool { return l.Level.Unposted != 0 })
	})
	r.ledger.silent.Store(true)
	for user := range 3 {
		ask := reservation.Ask{Account: account, Labels: map[string]string{"user": fmt.Sprint("u", user)}, Amounts: quota.Amounts{quota.MeterTokens: 10}}
		if _, err := r.Refund(context.Background(), r.reserve(ask).Reservation, used(7)); !errors.Is(err, ledger.ErrUnavailable) {
			r.tb.Fatalf("Refund while the ledger is away: %v", err)
		}
	}
	r.ledger.silent.Store(false)
}

func (r *rig) audit(q reservation.AuditQuery) reservation.AuditReport {
	r.tb.Helper()
	report, err := reservation.NewAuditor(r.Broker).Audit(context.Background(), q)
	if err != nil {
		r.tb.Fatalf("Audit: %v", err)
	}
	return report
}

// damage changes a value of a quota's counter in Redis behind everybody's back.
// what is "used", "held" or "unposted".
func (r *serverRig) damage(account, limit, what string, by quota.Amount) {
	r.tb.Helper()
	place := map[string]int{"used": 2, "held": 7, "unposted": 8}[what]
	const script = `
		for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
			if string.sub(field, 1, #ARGV[1]) == ARGV[1] then
				local t = {cmsgpack.unpack(redis.call('HGET', KEYS[1], field))}
				local at = 2 + tonumber(ARGV[2])
				t[at] = t[at] + tonumber(ARGV[3])
				redis.call('HSET', KEYS[1], field, cmsgpack.pack(unpack(t)))
				return 1
			end
		end
		return 0`
	client := r.redis.Client(r.tb)
	keys, err := client.Keys(context.Background(), "*:a:"+account).Result()
	if err != nil || len(keys) != 1 {
		r.tb.Fatalf("keys of the account: %v, %v", keys, err)
	}
	n, err := client.Eval(context.Background(), script, keys, "q"+limit+".", place, int64(by)).Int()
	if err != nil || n != 1 {
		r.tb.Fatalf("damage %s of %s: %d counters, %v", what, limit, n, err)
	}
}

// TestAuditRepairsTheEngine damages what Redis counts at random: an audit finds
// exactly that, and repairs it.
func TestAuditRepairsTheEngine(t *testing.T) {
	t.Parallel()
	r := newServerRig(t, auditedPolicy)
	r.traffic("acme")
	r.traffic("globex")
	clean := r.audit(reservation.AuditQuery{All: true})
	if clean.Gaps != 0 || clean.Repaired != 0 || clean.Accounts != 2 || clean.Waiting != 6 || len(clean.Counters) != clean.Checked {
		t.Fatalf("before any damage: %+v", clean)
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	want := map[string]string{}
	for _, account := range []string{"acme", "globex"} {
		for _, limit := range []string{"budget", "daily"} {
			what := []string{"used", "held", "unposted"}[random.IntN(3)]
			r.damage(account, limit, what, 1+quota.Amount(random.IntN(5000)))
			want[account+" "+limit] = what
		}
	}
	found := r.audit(reservation.AuditQuery{})
	if found.Gaps != len(want) || found.Repaired != 0 || len(found.Counters) != len(want) {
		t.Errorf("%d gaps and %d repaired, want %d and none: %+v", found.Gaps, found.Repaired, len(want), found.Counters)
	}
	for _, c := range found.Counters {
		if what := want[c.Account+" "+c.LimitName]; what == "" || !strings.Contains(c.Gap, what) {
			t.Errorf("%s %s: %q, want something of %q", c.Account, c.LimitName, c.Gap, what)
		}
	}
	if got := r.metric("budgetd_audit_drift", "unit=tokens") + r.metric("budgetd_audit_drift", "unit=nano_usd"); got <= 0 {
		t.Errorf("a drift of %v is exported", got)
	}
	mended := r.audit(reservation.AuditQuery{Repair: true})
	if mended.Gaps != 0 || mended.Repaired != len(want) {
		t.Errorf("after the repair: %+v", mended)
	}
	if after := r.audit(reservation.AuditQuery{}); after.Gaps != 0 || after.Repaired != 0 {
		t.Errorf("after that: %+v", after)
	}
	r.settled()
	r.balanced()
}

// damagedRow changes the usage row of a quota, which is then not the sum of its
// entries any more.
func (r *serverRig) damagedRow(account, limit string, by quota.Amount) {
	r.tb.Helper()
	tag, err := r.pool.Exec(context.Background(), `UPDATE usage SET used = used + $3 WHERE account = $1 AND limit_id LIKE $2 || '.%'`, account, limit, int64(by))
	if err != nil || tag.RowsAffected() != 1 {
		r.tb.Fatalf("%v, %d rows", err, tag.RowsAffected())
	}
}

// TestAuditLeavesTheLedger: a usage row that is not the sum of its entries is
// found and not repaired, and the engine is not made to show it.
func TestAuditLeavesTheLedger(t *testing.T) {
	t.Parallel()
	r := newServerRig(t, auditedPolicy)
	r.traffic("acme")
	r.settled()
	r.damagedRow("acme", "budget", 1000)
	for range 2 {
		report := r.audit(reservation.AuditQuery{Account: "acme", Repair: true})
		if report.Gaps != 1 || report.Repaired != 0 || report.Waiting != 0 {
			t.Fatalf("%+v", report)
		}
		c := report.Counters[0]
		if c.LimitName != "budget" || c.Row-c.Entries != 1000 || c.Used != c.Entries || !strings.Contains(c.Gap, "entries add up to") {
			t.Errorf("%+v", c)
		}
	}
	if got := r.metric("budgetd_audit_gaps", "kind=entries"); got != 1 {
		t.Errorf("%v gaps of entries are exported, want 1", got)
	}
	r.damagedRow("acme", "budget", -1000)
	if report := r.audit(reservation.AuditQuery{Account: "acme"}); report.Gaps != 0 {
		t.Errorf("after the row was put right: %+v", report)
	}
	if got := r.metric("budgetd_audit_gaps", "kind=entries"); got != 0 {
		t.Errorf("%v gaps of entries are exported, want none", got)
	}
}

// TestAuditNoticesAnOlderLedger: an engine that has seen more than the ledger
// has is not set back.
func TestAuditNoticesAnOlderLedger(t *testing.T) {
	t.Parallel()
	r := newServerRig(t, auditedPolicy)
	r.traffic("acme")
	r.settled()
	if _, err := r.pool.Exec(context.Background(), `UPDATE usage SET version = version - 1`); err != nil {
		t.Fatal(err)
	}
	report := r.audit(reservation.AuditQuery{Account: "acme", Repair: true})
	if report.Gaps == 0 || report.Repaired != 0 || !strings.Contains(report.Counters[0].Gap, "rolled back") {
		t.Errorf("%+v", report)
	}
}

// TestAuditWaits: what is on its way is no gap.
func TestAuditWaits(t *testing.T) {
	r := newRig(t, auditedPolicy)
	r.traffic("acme")
	reports := make(chan reservation.AuditReport)
	go func() {
		report, err := reservation.NewAuditor(r.Broker).Audit(context.Background(), reservation.AuditQuery{Account: "acme", All: true})
		if err != nil {
			t.Error(err)
		}
		reports <- report
	}()
	r.settled()
	report := <-reports
	if report.Gaps != 0 || report.Waiting != 0 {
		t.Errorf("%+v", report)
	}
	rows := 0
	for _, c := range report.Counters {
		if c.Entries != c.Row {
			t.Errorf("%+v", c)
		}
		if c.InEngine {
			rows++
			if c.LimitName == "" || c.Used != c.Row || c.Version != c.EngineVersion || c.Held != c.HeldRecords {
				t.Errorf("%+v", c)
			}
		}
	}
	if rows != 5 || !slices.IsSortedFunc(report.Counters, func(x, y reservation.AuditedCounter) int { return x.UsageKey.Compare(y.UsageKey) }) {
		t.Errorf("%d counters in the engine, want 5 in order: %+v", rows, report.Counters)
	}
}

func TestAuditOfNobody(t *testing.T) {
	r := newRig(t, auditedPolicy)
	auditor := reservation.NewAuditor(r.Broker)
	if _, err := auditor.Audit(context.Background(), reservation.AuditQuery{Account: "initech"}); !errors.Is(err, reservation.ErrNotFound) {
		t.Errorf("an unknown account: %v", err)
	}
	var invalid *reservation.InvalidError
	if _, err := auditor.Audit(context.Background(), reservation.AuditQuery{Account: "no name"}); !errors.As(err, &invalid) {
		t.Errorf("a name that is none: %v", err)
	}
	if report := r.audit(reservation.AuditQuery{}); report.Accounts != 2 || report.Gaps != 0 {
		t.Errorf("of accounts without traffic: %+v", report)
	}
	r.engine.silent.Store(true)
	if _, err := auditor.Audit(context.Background(), reservation.AuditQuery{}); !errors.Is(err, reservation.ErrUnavailable) {
		t.Errorf("without an engine: %v", err)
	}
	// An account that was removed still has its books.
	r.engine.silent.Store(false)
	r.refund(r.reserve(tokens(10)).Reservation, used(10))
	r.settled()
	r.setPolicy(strings.ReplaceAll(auditedPolicy, "  acme: {plan: pro}\n", ""))
	if report := r.audit(reservation.AuditQuery{Account: "acme"}); report.Checked == 0 || report.Gaps != 0 {
		t.Errorf("of a removed account: %+v", report)
	}
}

// TestAuditorRuns: the background audit mends the engine, and exports what it
// can't mend.
func TestAuditorRuns(t *testing.T) {
	t.Parallel()
	r := newServerRig(t, auditedPolicy)
	r.config.AuditRate = 1000
	r.start(r.ledger)
	r.traffic("acme")
	r.settled()
	r.damage("acme", "budget", "used", -17)
	r.damage("acme", "daily", "held", 4)
	r.damagedRow("acme", "daily", 1000)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { reservation.NewAuditor(r.Broker).Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	r.eventually("the account was looked at twice", func() bool {
		return r.metric("budgetd_audit_repaired_total", "kind=row") > 0 && r.metric("budgetd_audit_gaps", "kind=entries") > 0 && r.metric("budgetd_audit_gaps", "kind=row") > 0
	})
	for metric, want := range map[string][4]float64{ // entries, row, held, unposted
		"budgetd_audit_repaired_total": {0, 1, 1, 0},
		"budgetd_audit_gaps":           {1, 1, 0, 0},
	} {
		for i, kind := range []string{"entries", "row", "held", "unposted"} {
			if got := r.metric(metric, "kind="+kind); got != want[i] {
				t.Errorf("%s of kind %s: %v, want %v", metric, kind, got, want[i])
			}
		}
	}
	if level := r.quotaLevel(); level.Used != 171 {
		t.Errorf("%+v, want 171 used", level)
	}
	// Nobody looks at an account that was removed: what was found of it is
	// forgotten.
	r.setPolicy(strings.ReplaceAll(auditedPolicy, "  acme: {plan: pro}\n", ""))
	r.eventually("the removed account's gaps are forgotten", func() bool {
		return r.metric("budgetd_audit_gaps", "kind=entries") == 0 && r.metric("budgetd_audit_gaps", "kind=row") == 0 && r.metric("budgetd_audit_drift", "unit=tokens") == 0
	})
}

// TestFollowBringsWhatWasNeverConfirmed: window W4. A Refund went around the
// silent engine after the lease's end had been confirmed, and its broker died
// before it could tell. Another node's auditor does, and lets its observer hear.
func TestFollowBringsWhatWasNeverConfirmed(t *testing.T) {
	r := newRig(t, plainPolicy)
	g := r.reserve(tokens(4000))
	r.clock.Add(2 * 60 * 1e9)
	r.settled()
	dead := r.Broker
	hears := &heard{}
	r.observer = hears
	r.start(r.ledger)
	auditor := reservation.NewAuditor(r.Broker)
	follow := func() {
		t.Helper()
		if _, err := auditor.Follow(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	follow()

	r.engine.noConfirm.Store(true)
	r.engine.silent.Store(true)
	if _, err := dead.Refund(context.Background(), g.Reservation, used(1500)); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	dead.Close(ended)
	follow() // the engine is silent: it is told later
	r.engine.silent.Store(false)
	if level := r.quotaLevel(); level.Used != 0 {
		t.Fatalf("%+v, want an engine that never heard", level)
	}
	follow()
	if level := r.quotaLevel(); level.Used != 1500 {
		t.Errorf("%+v, want 1,500 used", level)
	}
	if hears.count() == 0 {
		t.Error("the observer did not hear of it")
	}
}

// TestAuditGoesOnBesideDamage: an account that can't be read is named, and all
// others are audited.
func TestAuditGoesOnBesideDamage(t *testing.T) {
	t.Parallel()
	r := newServerRig(t, auditedPolicy)
	r.traffic("acme")
	r.settled()
	client := r.redis.Client(t)
	keys, err := client.Keys(context.Background(), "*:a:acme").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys of the account: %v, %v", keys, err)
	}
	if err := client.Del(context.Background(), keys[0]).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(context.Background(), keys[0], "not a hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	report := r.audit(reservation.AuditQuery{})
	if report.Accounts != 1 || report.Failed != 1 || !slices.Equal(report.FailedAccounts, []string{"acme"}) {
		t.Errorf("%+v, want globex audited and acme failed", report)
	}
	if _, err := reservation.NewAuditor(r.Broker).Audit(context.Background(), reservation.AuditQuery{Account: "acme"}); err == nil {
		t.Error("an audit of the damaged account alone has no error")
	}
}

// TestAuditSaysWhatItLeftOut: more records than are added up, and more rows than
// are read at once.
func TestAuditSaysWhatItLeftOut(t *testing.T) {
	r := newRig(t, auditedPolicy)
	ask := reservation.Ask{Account: "acme", Labels: map[string]string{"user": "u"}}
	for range reservation.MaxAuditRecords + 1 {
		r.reserve(ask)
	}
	now := r.clock.Now()
	for n, row := 0, 0; row <= ledger.MaxAccountUsage; n++ {
		c := ledger.Closing{Account: "globex", Reservation: [16]byte{1, byte(n)}, Minted: now, ClosedAt: now, Rank: ledger.RankRefunded}
		for ; len(c.Lines) < ledger.MaxLines && row <= ledger.MaxAccountUsage; row++ {
			c.Lines = append(c.Lines, ledger.Line{Limit: "gone.01234567", Scope: fmt.Sprint("user=", row), Period: "d2026-01-01", Meter: quota.MeterTokens, Amount: 1})
		}
		if _, err := r.ledger.Append(context.Background(), []ledger.Closing{c}); err != nil {
			t.Fatal(err)
		}
	}
	if report := r.audit(reservation.AuditQuery{}); report.Unsummed != 1 || report.Partial != 1 || report.Gaps != 0 || report.Failed != 0 {
		t.Errorf("%+v, want one account unsummed and one partial", report)
	}
}
