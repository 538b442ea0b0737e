package replay

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota"
)

// sound is the evidence of a replay without gaps: 3 requests refunded, 1 crashed
// and 1 refused.
func sound() Evidence {
	return Evidence{
		Totals: Totals{
			Offered: Count{5, 1500}, Admitted: Count{4, 1000}, Refunded: Count{3, 900}, Crashed: Count{1, 100}, Refused: Count{1, 500},
			// The refunded held 2,000 for 900, one of them 50 too little; the
			// crashed one 4,000.
			HeldTokens: 6000, GivenBackTokens: 1150, OverrunTokens: 50, ExpiredTokens: 4000,
			RefusedBy: map[string]int64{"tokens RATE_LIMITED": 1},
		},
		LedgerTokens: 900, LedgerRequests: 3,
		Counters: []Counter{{"tokens-month", "tokens", 900}, {"requests-month", "requests", 3}},
		Slots:    []Level{{Limit: "slots"}},
		Quotas:   []Level{{Limit: "tokens-month"}, {Limit: "requests-month"}},
		Buckets: []Bucket{
			{Limit: "slow", Meter: "tokens", Capacity: 1_000_000, Before: 10, Missing: 880, MayRefill: 100, Plain: true},
			{Limit: "fast", Meter: "tokens", Capacity: 1_000_000, MayRefill: 1 << 40, Plain: true, Rested: true},
			{Limit: "calls", Meter: "requests", Capacity: 100, Missing: 3, Plain: true},
		},
		Expired: 1, Settled: 3,
	}
}

func TestCheckPassesWhatIsSound(t *testing.T) {
	if gaps := Check(sound()); len(gaps) > 0 {
		t.Errorf("gaps in sound evidence: %q", gaps)
	}
	if gaps := Check(Evidence{}); len(gaps) > 0 {
		t.Errorf("gaps where nothing happened: %q", gaps)
	}
}

// Each falsified figure is found, whichever way it is off.
func TestCheckFindsEachGap(t *testing.T) {
	for _, c := range []struct {
		name    string
		falsify func(e *Evidence, by int64)
		want    string
	}{
		{"ledger tokens", func(e *Evidence, by int64) { e.LedgerTokens += by }, "the ledger has"},
		{"ledger requests", func(e *Evidence, by int64) { e.LedgerRequests += by }, "requests; 3 were refunded"},
		{"token counter", func(e *Evidence, by int64) { e.Counters[0].Used += by }, "quota tokens-month has"},
		{"request counter", func(e *Evidence, by int64) { e.Counters[1].Used += by }, "quota requests-month has"},
		{"trace", func(e *Evidence, by int64) {
			e.Totals.Refunded.Tokens += by
			e.Totals.Admitted.Tokens += by
			e.Totals.Offered.Tokens += by
		}, "the trace's admitted requests used"},
		{"held", func(e *Evidence, by int64) { e.Totals.HeldTokens += by }, "expired 4000 is"},
		{"given back", func(e *Evidence, by int64) { e.Totals.GivenBackTokens += by }, "expired 4000 is"},
		{"overrun", func(e *Evidence, by int64) { e.Totals.OverrunTokens += by }, "expired 4000 is"},
		{"admitted", func(e *Evidence, by int64) { e.Totals.Admitted.Tokens += by }, "were admitted, refused or not answered"},
		{"refused", func(e *Evidence, by int64) { e.Totals.Refused.Requests += by }, "were admitted, refused or not answered"},
		{"crashed", func(e *Evidence, by int64) { e.Totals.Crashed.Requests += by }, "crashed"},
		{"expired", func(e *Evidence, by int64) { e.Expired += by }, "in the ledger as expired"},
		{"settled", func(e *Evidence, by int64) { e.Settled += by }, "in the ledger as settled"},
		{"what expiry charged", func(e *Evidence, by int64) { e.ExpiredTokens += by }, "the ledger has"},
		{"slot", func(e *Evidence, by int64) { e.Slots[0].Held += by }, "slots taken"},
		{"held quota", func(e *Evidence, by int64) { e.Quotas[1].Held += by }, "quota requests-month still has"},
		{"unposted", func(e *Evidence, by int64) { e.Quotas[0].Unposted += by }, "quota tokens-month still has"},
		{"rested bucket", func(e *Evidence, by int64) { e.Buckets[1].RestedMissing += by }, "bucket fast has had time"},
	} {
		for _, by := range []int64{1, -1} {
			e := sound()
			c.falsify(&e, by)
			if found := strings.Join(Check(e), "\n"); !strings.Contains(found, c.want) {
				t.Errorf("%s off by %d: found %q, want %q", c.name, by, found, c.want)
			}
		}
	}
	for _, c := range []struct {
		name    string
		falsify func(e *Evidence)
		want    string
	}{
		{"leaked", func(e *Evidence) { e.Leaked = 1 }, "1 reservations are still held"},
		{"not posted", func(e *Evidence) { e.NotPosted = 1 }, "not posted"},
		{"unanswered", func(e *Evidence) {
			e.Totals.Unanswered = Count{1, 7}
			e.Totals.Offered = Count{6, 1507}
		}, "1 requests were never answered"},
		{"period", func(e *Evidence) { e.PeriodChanged = true }, "month ended"},
		{"problem", func(e *Evidence) { e.Problems = []string{"the sky fell"} }, "the sky fell"},
		{"a hold that never came back", func(e *Evidence) { e.Buckets[0].Missing += 4000 }, "bucket slow lacks 4880 tokens"},
		{"a hold that came back twice", func(e *Evidence) { e.Buckets[0].Missing -= 4000 }, "more came back than was taken"},
		{"a call that was not counted", func(e *Evidence) { e.Buckets[2].Missing = 1 }, "bucket calls lacks 1 requests"},
	} {
		e := sound()
		c.falsify(&e)
		if found := strings.Join(Check(e), "\n"); !strings.Contains(found, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, found, c.want)
		}
	}
}

// What checkBucket says of a bucket holds for every order of reserving,
// refilling, refunding and expiring, and fails once a hold is lost.
func TestCheckBucketAgainstASimulatedBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 1000).Draw(t, "capacity")
		before := rapid.Int64Range(0, capacity).Draw(t, "before")
		level, refills, charged := capacity-before, int64(0), int64(0)
		var open []int64
		refill := func(n int64) {
			refills += n
			level = min(level+n, capacity)
		}
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			refill(rapid.Int64Range(0, 20).Draw(t, "refill"))
			if n := rapid.Int64Range(1, capacity).Draw(t, "ask"); n <= level {
				level -= n
				open = append(open, n)
			}
			if len(open) > 0 && rapid.Bool().Draw(t, "close") {
				used := rapid.Int64Range(0, 2*open[0]).Draw(t, "used")
				level = min(level+open[0]-used, capacity)
				charged += used
				open = open[1:]
			}
		}
		for _, n := range open { // they expire, and give back all
			level = min(level+n, capacity)
		}
		b := Bucket{Limit: "b", Meter: "tokens", Capacity: capacity, Before: before, Missing: capacity - level, MayRefill: refills, Plain: true}
		if gaps := checkBucket(b, Totals{}, charged); len(gaps) > 0 {
			t.Fatalf("a sound bucket: %q", gaps)
		}
		lost := b
		lost.Missing = before + charged + 2
		if gaps := checkBucket(lost, Totals{}, charged); len(gaps) == 0 {
			t.Fatal("a bucket that lacks more than was charged passes")
		}
	})
}

func TestTally(t *testing.T) {
	tally := newTally()
	a, b, c, d := trace.Request{Context: 100, Generated: 20}, trace.Request{Context: 7, Generated: 1}, trace.Request{Context: 5}, trace.Request{Context: 3}
	for _, r := range []trace.Request{a, b, c, d} {
		tally.offered(r)
	}
	tally.refunded(a, 110, 0, 10)
	tally.crashed(b, 107)
	tally.refused(c, "tokens RATE_LIMITED")
	tally.unanswered(d)
	got, err := tally.result()
	if err != nil {
		t.Fatal(err)
	}
	if got.Offered != (Count{4, 136}) || got.Admitted != (Count{2, 128}) || got.Refunded != (Count{1, 120}) || got.Crashed != (Count{1, 8}) ||
		got.Refused != (Count{1, 5}) || got.Unanswered != (Count{1, 3}) || got.RefusedBy["tokens RATE_LIMITED"] != 1 {
		t.Errorf("counted %+v", got)
	}
	if got.HeldTokens != 217 || got.OverrunTokens != 10 || got.GivenBackTokens != 0 || got.ExpiredTokens != 107 {
		t.Errorf("tokens %+v", got)
	}
	got.RefusedBy["tokens RATE_LIMITED"] = 9
	if again, _ := tally.result(); again.RefusedBy["tokens RATE_LIMITED"] != 1 {
		t.Error("a result shares its map with the tally")
	}
}

func TestTallyReportsOverflow(t *testing.T) {
	tally := newTally()
	tally.refunded(trace.Request{}, int64(quota.MaxAmount), 0, 0)
	if _, err := tally.result(); err != nil {
		t.Fatal(err)
	}
	tally.refunded(trace.Request{}, 1, 0, 0)
	if got, err := tally.result(); err == nil {
		t.Errorf("%d + 1 is %d without an error", int64(quota.MaxAmount), got.HeldTokens)
	}
	if _, err := addTokens(1, -1); err == nil {
		t.Error("a negative amount adds up")
	}
}
