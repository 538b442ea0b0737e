package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

func runEdges(t *testing.T, newEngine New) { runCases(t, newEngine, edgeCases) }

var edgeCases = []testCase{
	{"OddNames", oddNames},
	{"NamesDoNotRunTogether", namesDoNotRunTogether},
	{"OpaqueBytes", opaqueBytes},
	{"LargestPlan", largestPlan},
	{"OutOfBounds", outOfBounds},
	{"ForgedIDs", forgedIDs},
	{"CancelledContext", cancelledContext},
	{"ReclaimBatches", reclaimBatches},
	{"EndedButNotReclaimed", endedButNotReclaimed},
	{"LookingChangesNothing", lookingChangesNothing},
	{"SweepManyAccounts", sweepManyAccounts},
	{"OpenAtOneInstant", openAtOneInstant},
	{"RestoreBeyondTheLargest", restoreBeyondTheLargest},
	{"AnswersAreTheCallers", answersAreTheCallers},
	{"RequestsAreTheCallers", requestsAreTheCallers},
	{"Ping", func(ctx context.Context, engine Engine, clock *Clock) error { return engine.Store.Ping(ctx) }},
}

// strangeNames are what a label's value, a key or a name could be.
var strangeNames = []string{
	"{acme}", "a{b", "}{", "{}", "a}b{c}", "*", "a*", "?", "[a-z]", "\\", "a\x00b", "\x00", "line\nfeed", "\r\n$3\r\nfoo\r\n",
	"tab\t", " ", "a b", "'", "\"", "`", "$(id)", "%s%d%n", "../../etc", "a:b", "a|b", "a,b", "ümlaut", "日本語", "🙂", "e\u0301", "\u202e",
	"\xff\xfe", strings.Repeat("x", 128), "1", "01", "-1", "1e3", "nil", "true", "acme", "ACME", "account:x", "b:tokens", "~", "\x7f",
}

// openAtOneInstant: pages end where they should among leases that all end at
// the same instant, whatever bytes the ids have, and are cut by most exactly.
func openAtOneInstant(ctx context.Context, engine Engine, clock *Clock) error {
	want := map[reservation.ID]bool{}
	for i := range 50 {
		q := ask(clock, "acme", aBucket("tokens", 1, 1000, 24*time.Hour))
		q.ID[8], q.ID[9] = byte(i*5), byte(255-i*5) // on both sides of what is signed, or a letter
		if _, err := reserve(ctx, engine.Store, q, reservation.Granted); err != nil {
			return err
		}
		want[q.ID] = true
	}
	cursor, pages := "", 0
	for {
		page, err := engine.Store.Open(ctx, "acme", cursor, 7)
		if err != nil {
			return fmt.Errorf("Open: %w", err)
		}
		pages++
		if len(page.Open) > 7 {
			return fmt.Errorf("%d are on a page of at most 7", len(page.Open))
		}
		for _, open := range page.Open {
			if !want[open.ID] {
				return fmt.Errorf("%s is shown twice, or was never made", open.ID)
			}
			delete(want, open.ID)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if len(want) > 0 || pages != 8 {
		return fmt.Errorf("%d of 50 were not shown on %d pages", len(want), pages)
	}
	return nil
}

// restoreBeyondTheLargest: holds that no counter can add up exactly are
// refused, and nothing of the reservation is restored.
func restoreBeyondTheLargest(ctx context.Context, engine Engine, clock *Clock) error {
	all := aQuota(clock, "daily", quota.MaxAmount, quota.MaxAmount)
	one := aQuota(clock, "daily", 1, quota.MaxAmount)
	slot := aSlot("slow", 3)
	for i, hold := range []reservation.Hold{all, one} {
		q := reservation.RestoreRequest{Account: "acme", ID: reservation.NewID(clock.Now()), Holds: []reservation.Hold{slot, hold}, ExpiresAt: clock.Now().Add(time.Minute)}
		verdict, err := engine.Store.Restore(ctx, q)
		if i == 0 && (err != nil || verdict != reservation.Restored) || i == 1 && !errors.Is(err, quota.ErrOverflow) {
			return fmt.Errorf("Restore %d: %s, error %v", i, nameIn(restoreNames, verdict), err)
		}
	}
	return remaining(ctx, engine.Store, "acme", []reservation.Hold{slot}, 2)
}

// oddNames: every name is a name, and no two are one.
func oddNames(ctx context.Context, engine Engine, clock *Clock) error {
	hold := aBucket("tokens", 4, 10, 24*time.Hour)
	slot := aSlot("slow", 1)
	daily := aQuota(clock, "daily", 1, 10)
	pooled := aSlot("workers", 1)
	type asked struct {
		reservation.ReserveRequest
		name string
	}
	var all []asked
	for _, name := range strangeNames {
		hold.Scope, slot.Scope, daily.Scope, pooled.Pool = name, name, name, name
		if err := seedQuota(ctx, engine.Store, clock, name, daily, 0); err != nil {
			return fmt.Errorf("name %q: %w", name, err)
		}
		q := ask(clock, name, hold, slot, daily, pooled)
		q.Key = name
		answer, err := reserve(ctx, engine.Store, q, reservation.Granted)
		if err != nil {
			return fmt.Errorf("name %q: %w", name, err)
		}
		for i, want := range []quota.Amount{6, 0, 9, 0} {
			if answer.Levels[i].Remaining != want {
				return fmt.Errorf("name %q shares its counter %d with another: %d remain", name, i, answer.Levels[i].Remaining)
			}
		}
		all = append(all, asked{q, name})
	}
	for _, a := range all {
		replay := a.ReserveRequest
		replay.ID = reservation.NewID(clock.Now())
		if _, err := reserve(ctx, engine.Store, replay, reservation.Replayed); err != nil {
			return fmt.Errorf("key %q: %w", a.name, err)
		}
		if _, err := refund(ctx, engine.Store, closing(a.ReserveRequest, "used", 1, 0, 1, 0), reservation.RefundSettled); err != nil {
			return fmt.Errorf("name %q: %w", a.name, err)
		}
		if err := remaining(ctx, engine.Store, a.name, a.Holds, 9, 1, 9, 1); err != nil {
			return err
		}
	}
	clock.Add(reservation.OutboxDelay)
	pending, _, err := sweepAll(ctx, engine.Store, 100)
	if err != nil {
		return err
	}
	waiting := map[string]reservation.ID{}
	for _, p := range pending {
		waiting[p.Account] = p.ID
	}
	for _, a := range all {
		if waiting[a.name] != a.ID {
			return fmt.Errorf("the sweeper did not find account %q", a.name)
		}
	}
	return nil
}

// namesDoNotRunTogether: where names are put into one key, their ends count.
func namesDoNotRunTogether(ctx context.Context, engine Engine, clock *Clock) error {
	triples := [][3]string{
		{"a", "b", "c"}, {"ab", "", "c"}, {"", "ab", "c"}, {"", "abc", ""}, {"a", "bc", ""}, {"", "a", "bc"},
		{"a:", "b", "c"}, {"a", ":b", "c"}, {"a", "b:", "c"}, {"a", "b", ":c"}, {"", "a:b", "c"}, {"", "a", "b:c"},
		{"a\x00", "b", "c"}, {"a", "\x00b", "c"}, {"a", "b\x00", "c"}, {"a", "b", "\x00c"}, {"", "b", "c"},
	}
	for i, t := range triples {
		hold := aBucket(t[1], quota.Amount(1+i), 100, 24*time.Hour)
		hold.Pool, hold.Scope = t[0], t[2]
		if _, err := reserve(ctx, engine.Store, ask(clock, "acme", hold), reservation.Granted); err != nil {
			return fmt.Errorf("%q: %w", t, err)
		}
	}
	for i, t := range triples {
		hold := aBucket(t[1], 0, 100, 24*time.Hour)
		hold.Pool, hold.Scope = t[0], t[2]
		if err := remaining(ctx, engine.Store, "acme", []reservation.Hold{hold}, quota.Amount(99-i)); err != nil {
			return fmt.Errorf("%q: %w", t, err)
		}
	}
	return nil
}

// opaqueBytes: token and outcome come back as they were, whatever is in them.
func opaqueBytes(ctx context.Context, engine Engine, clock *Clock) error {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	token := bytes.Repeat(every, reservation.MaxTokenBytes/len(every))
	outcome := bytes.Repeat(every, reservation.MaxOutcomeBytes/len(every))
	outcome[0] = 0xff
	q := ask(clock, "acme", aBucket("tokens", 4, 10, 24*time.Hour))
	q.Token, q.Key = token, string(every)
	if _, err := reserve(ctx, engine.Store, q, reservation.Granted); err != nil {
		return err
	}
	r := closing(q, "used", 4)
	r.Outcome = outcome
	if _, err := refund(ctx, engine.Store, r, reservation.RefundSettled); err != nil {
		return err
	}
	q.ID = reservation.NewID(clock.Now())
	replayed, err := reserve(ctx, engine.Store, q, reservation.Replayed)
	if err != nil {
		return err
	}
	clock.Add(reservation.OutboxDelay)
	pending, _, err := sweepAll(ctx, engine.Store, 10)
	if err != nil || len(pending) != 1 {
		return fmt.Errorf("%d closings are pending, not 1 (error %v)", len(pending), err)
	}
	for name, record := range map[string]reservation.Record{"replayed": replayed.Record, "swept": pending[0].Record} {
		if !bytes.Equal(record.Token, token) || !bytes.Equal(record.Outcome, outcome) || record.Body != hash("used") {
			return fmt.Errorf("%s: token, outcome or body is not what it was", name)
		}
	}
	return nil
}

// largestPlan: MaxHolds counters in one step, all or nothing.
func largestPlan(ctx context.Context, engine Engine, clock *Clock) error {
	var holds []reservation.Hold
	for i := range reservation.MaxHolds {
		hold := aBucket("tokens", 4, 10, 24*time.Hour)
		if i%2 == 1 {
			hold = aSlot("slow", 10)
		}
		hold.Scope = fmt.Sprintf("user=%d", i)
		holds = append(holds, hold)
	}
	for range 2 {
		answer, err := reserve(ctx, engine.Store, ask(clock, "acme", holds...), reservation.Granted)
		if err != nil {
			return err
		}
		if len(answer.Levels) != len(holds) {
			return fmt.Errorf("%d levels for %d holds", len(answer.Levels), len(holds))
		}
	}
	answer, err := reserve(ctx, engine.Store, ask(clock, "acme", holds...), reservation.Refused)
	if err != nil {
		return err
	}
	if answer.Refusal.Hold != 0 || answer.Refusal.Reason != reservation.RateLimited {
		return fmt.Errorf("refused by hold %d, %s", answer.Refusal.Hold, nameIn(reasonNames, answer.Refusal.Reason))
	}
	return remaining(ctx, engine.Store, "acme", holds, 2, 8, 2, 8)
}

// outOfBounds: what the contract does not allow is an error, not a panic, and
// changes nothing.
func outOfBounds(ctx context.Context, engine Engine, clock *Clock) error {
	hold := aBucket("tokens", 4, 10, 24*time.Hour)
	held := ask(clock, "acme", hold, aSlot("slow", 3))
	if _, err := reserve(ctx, engine.Store, held, reservation.Granted); err != nil {
		return err
	}
	many := make([]reservation.Hold, reservation.MaxHolds+1)
	for i := range many {
		many[i] = aBucket("tokens", 0, 10, time.Second)
		many[i].Scope = fmt.Sprint(i)
	}
	reserves := map[string]func(*reservation.ReserveRequest){
		"account": func(q *reservation.ReserveRequest) { q.Account = "" },
		"holds":   func(q *reservation.ReserveRequest) { q.Holds = many },
		"one hold on a counter": func(q *reservation.ReserveRequest) {
			q.Holds = []reservation.Hold{hold, aSlot("slow", 3), hold}
		},
		"amount below 0":   func(q *reservation.ReserveRequest) { q.Holds[0].Amount = -1 },
		"amount at -2^63":  func(q *reservation.ReserveRequest) { q.Holds[0].Amount = math.MinInt64 },
		"amount above max": func(q *reservation.ReserveRequest) { q.Holds[0].Amount = quota.MaxAmount + 1 },
		"kind":             func(q *reservation.ReserveRequest) { q.Holds[0].Kind = 77 },
		"lease of 0":       func(q *reservation.ReserveRequest) { q.Lease = 0 },
		"lease below 0":    func(q *reservation.ReserveRequest) { q.Lease = -time.Second },
		"lease of 10 years": func(q *reservation.ReserveRequest) {
			q.Lease = 10 * 365 * 24 * time.Hour
		},
		"retention below 0": func(q *reservation.ReserveRequest) { q.Retention = -time.Second },
		"retention above 24h": func(q *reservation.ReserveRequest) {
			q.Retention = 24*time.Hour + time.Microsecond
		},
		"key":   func(q *reservation.ReserveRequest) { q.Key = strings.Repeat("k", reservation.MaxKeyBytes+1) },
		"token": func(q *reservation.ReserveRequest) { q.Token = make([]byte, reservation.MaxTokenBytes+1) },
		"outcome of a charge": func(q *reservation.ReserveRequest) {
			q.Settle = &reservation.Settlement{Outcome: make([]byte, reservation.MaxOutcomeBytes+1)}
		},
	}
	for name, spoil := range reserves {
		q := ask(clock, "acme", hold)
		spoil(&q)
		if answer, err := engine.Store.Reserve(ctx, q); err == nil {
			return fmt.Errorf("Reserve, %s: no error, but %s", name, nameIn(reserveNames, answer.Verdict))
		}
	}
	refunds := map[string]func(*reservation.RefundRequest){
		"account":           func(q *reservation.RefundRequest) { q.Account = "" },
		"too few amounts":   func(q *reservation.RefundRequest) { q.Actual = q.Actual[:1] },
		"too many amounts":  func(q *reservation.RefundRequest) { q.Actual = append(q.Actual, 1) },
		"amount below 0":    func(q *reservation.RefundRequest) { q.Actual[0] = -1 },
		"amount above max":  func(q *reservation.RefundRequest) { q.Actual[0] = quota.MaxAmount + 1 },
		"outcome":           func(q *reservation.RefundRequest) { q.Outcome = make([]byte, reservation.MaxOutcomeBytes+1) },
		"lease of 10 years": func(q *reservation.RefundRequest) { q.Lease = 10 * 365 * 24 * time.Hour },
	}
	for name, spoil := range refunds {
		q := closing(held, "used", 4, 0)
		spoil(&q)
		if answer, err := engine.Store.Refund(ctx, q); err == nil {
			return fmt.Errorf("Refund, %s: no error, but %s", name, nameIn(refundNames, answer.Verdict))
		}
	}
	for _, lease := range []time.Duration{0, -time.Second, 25 * time.Hour} {
		if answer, err := engine.Store.Renew(ctx, reservation.RenewRequest{Account: "acme", ID: held.ID, Lease: lease}); err == nil {
			return fmt.Errorf("Renew with a lease of %s: no error, but %s", lease, stateName(answer.State))
		}
	}
	if _, err := engine.Store.Confirm(ctx, reservation.ConfirmRequest{Account: "acme", ID: held.ID, Rank: 0, Actual: []quota.Amount{4, 0}}); err == nil {
		return errors.New("Confirm of rank 0: no error")
	}
	restores := map[string]func(*reservation.RestoreRequest){
		"account":             func(q *reservation.RestoreRequest) { q.Account = "" },
		"holds":               func(q *reservation.RestoreRequest) { q.Holds = many },
		"amount below 0":      func(q *reservation.RestoreRequest) { q.Holds[0].Amount = -1 },
		"no end":              func(q *reservation.RestoreRequest) { q.ExpiresAt = time.Time{} },
		"retention above 24h": func(q *reservation.RestoreRequest) { q.Retention = 24*time.Hour + time.Microsecond },
		"key":                 func(q *reservation.RestoreRequest) { q.Key = strings.Repeat("k", reservation.MaxKeyBytes+1) },
		"token":               func(q *reservation.RestoreRequest) { q.Token = make([]byte, reservation.MaxTokenBytes+1) },
		"an end too far ahead": func(q *reservation.RestoreRequest) {
			q.ExpiresAt = clock.Now().Add(reservation.MaxRestoredLease + time.Microsecond)
		},
	}
	for name, spoil := range restores {
		q := reservation.RestoreRequest{Account: "acme", ID: reservation.NewID(clock.Now()), Holds: []reservation.Hold{hold}, ExpiresAt: clock.Now().Add(time.Minute)}
		spoil(&q)
		if verdict, err := engine.Store.Restore(ctx, q); !errors.Is(err, reservation.ErrBadRequest) {
			return fmt.Errorf("Restore, %s: error %v, verdict %s", name, err, nameIn(restoreNames, verdict))
		}
	}
	for name, page := range map[string]struct {
		account, cursor string
		most            int
	}{
		"account": {"", "", 10}, "none": {"acme", "", 0}, "too many": {"acme", "", reservation.MaxOpenPage + 1},
		"cursor": {"acme", "7", 10}, "cursor of no id": {"acme", "7.QUJD", 10}, "long cursor": {"acme", strings.Repeat("7", 1000), 10},
		"cursor before all time": {"acme", reservation.OpenPlace{Ends: -1}.Cursor(), 10},
	} {
		if _, err := engine.Store.Open(ctx, page.account, page.cursor, page.most); !errors.Is(err, reservation.ErrBadRequest) {
			return fmt.Errorf("Open, %s: error %v", name, err)
		}
	}
	daily := aQuota(clock, "daily", 1, 10)
	for name, usage := range map[string][]reservation.CounterUsage{
		"too many":         make([]reservation.CounterUsage, reservation.MaxPush+1),
		"used above max":   {{Counter: daily.Counter, Period: daily.Period, Used: quota.MaxAmount + 1}},
		"version below 0":  {{Counter: daily.Counter, Period: daily.Period, Version: -1}},
		"a pool's counter": {{Counter: reservation.Counter{Pool: "openai", Limit: "daily"}, Period: daily.Period}},
	} {
		if err := engine.Store.Push(ctx, "acme", usage); !errors.Is(err, reservation.ErrBadRequest) {
			return fmt.Errorf("Push, %s: error %v", name, err)
		}
	}
	for name, holds := range map[string][]reservation.Hold{
		"a quota": {daily}, "below 0": {aBucket("tokens", -1, 10, time.Second)}, "too many buckets": many,
	} {
		if _, err := engine.Store.GiveBack(ctx, "acme", holds); !errors.Is(err, reservation.ErrBadRequest) {
			return fmt.Errorf("GiveBack, %s: error %v", name, err)
		}
	}
	for name, q := range map[string]reservation.AuditRequest{
		"account":          {},
		"too many":         {Account: "acme", Counters: make([]reservation.AuditCounter, reservation.MaxAuditCounters+1)},
		"no period":        {Account: "acme", Counters: []reservation.AuditCounter{{Counter: daily.Counter}}},
		"a pool's counter": {Account: "acme", Counters: []reservation.AuditCounter{{Counter: reservation.Counter{Pool: "openai"}, Period: daily.Period}}},
	} {
		if _, err := engine.Store.Audit(ctx, q); !errors.Is(err, reservation.ErrBadRequest) {
			return fmt.Errorf("Audit, %s: error %v", name, err)
		}
	}
	record, err := engine.Store.Lookup(ctx, "acme", held.ID)
	if err != nil || record.State != reservation.StateHeld || !record.ExpiresAt.Equal(clock.Now().Add(defaultLease)) {
		return fmt.Errorf("after bad requests the reservation is %s (error %v)", stateName(record.State), err)
	}
	return remaining(ctx, engine.Store, "acme", held.Holds, 6, 2)
}

// forgedIDs: ids from no time at all hold nothing.
func forgedIDs(ctx context.Context, engine Engine, clock *Clock) error {
	hold := aBucket("tokens", 4, 10, 24*time.Hour)
	for _, first := range []byte{0x00, 0x7f, 0x80, 0xff} {
		var id reservation.ID
		for i := range id {
			id[i] = 0xff
		}
		id[0] = first
		if first == 0 {
			id = reservation.ID{}
		}
		q := ask(clock, "acme", hold)
		q.ID = id
		if _, err := reserve(ctx, engine.Store, q, reservation.Stale); err != nil {
			return fmt.Errorf("id %x: %w", id, err)
		}
		if record, err := engine.Store.Lookup(ctx, "acme", id); err != nil || record.State != reservation.StateUnknown {
			return fmt.Errorf("id %x: Lookup shows %s (error %v)", id, stateName(record.State), err)
		}
		if answer, err := engine.Store.Renew(ctx, reservation.RenewRequest{Account: "acme", ID: id, Lease: time.Second}); err != nil || answer.State != reservation.StateUnknown {
			return fmt.Errorf("id %x: Renew answers %s (error %v)", id, stateName(answer.State), err)
		}
	}
	return remaining(ctx, engine.Store, "acme", []reservation.Hold{hold}, 10)
}

// cancelledContext: a caller that hung up gets an error, and spends nothing.
func cancelledContext(ctx context.Context, engine Engine, clock *Clock) error {
	q := ask(clock, "acme", aBucket("tokens", 4, 10, 24*time.Hour))
	if _, err := reserve(ctx, engine.Store, q, reservation.Granted); err != nil {
		return err
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	calls := map[string]func() error{
		"Reserve": func() error {
			_, err := engine.Store.Reserve(gone, ask(clock, "acme", q.Holds...))
			return err
		},
		"Refund": func() error { _, err := engine.Store.Refund(gone, closing(q, "used", 0)); return err },
		"Renew": func() error {
			_, err := engine.Store.Renew(gone, reservation.RenewRequest{Account: "acme", ID: q.ID, Lease: time.Hour})
			return err
		},
		"Sweep":  func() error { _, err := engine.Store.Sweep(gone, 10); return err },
		"Lookup": func() error { _, err := engine.Store.Lookup(gone, "acme", q.ID); return err },
		"Levels": func() error { _, _, err := engine.Store.Levels(gone, "acme", q.Holds); return err },
	}
	for name, call := range calls {
		if err := call(); err == nil {
			return fmt.Errorf("%s with a cancelled context: no error", name)
		}
	}
	record, err := engine.Store.Lookup(ctx, "acme", q.ID)
	if err != nil || record.State != reservation.StateHeld || !record.ExpiresAt.Equal(clock.Now().Add(q.Lease)) {
		return fmt.Errorf("the reservation is %s until %s (error %v)", stateName(record.State), shown(record.ExpiresAt), err)
	}
	return remaining(ctx, engine.Store, "acme", q.Holds, 6)
}

// endAtOnce reserves n times, with leases that end one microsecond after the
// other, and lets all of them end.
func endAtOnce(ctx context.Context, engine Engine, clock *Clock, n int, holds ...reservation.Hold) ([]reservation.ReserveRequest, error) {
	var asked []reservation.ReserveRequest
	for i := range n {
		q := ask(clock, "acme", holds...)
		q.Lease = time.Second + time.Duration(i)*time.Microsecond
		if _, err := reserve(ctx, engine.Store, q, reservation.Granted); err != nil {
			return nil, err
		}
		asked = append(asked, q)
	}
	clock.Add(2 * time.Second)
	return asked, nil
}

// reclaimBatches: a call reclaims a bounded number of leases, the earliest
// first, and a slot is free whoever waits to be reclaimed.
func reclaimBatches(ctx context.Context, engine Engine, clock *Clock) error {
	const n = 3*reservation.ReclaimBatch + 8
	hold, slot := aBucket("tokens", 1, 1000, 24*time.Hour), aSlot("slow", n)
	asked, err := endAtOnce(ctx, engine, clock, n, hold, slot)
	if err != nil {
		return err
	}
	if err := remaining(ctx, engine.Store, "acme", []reservation.Hold{hold, slot}, 1000-n, n); err != nil {
		return fmt.Errorf("before anything was reclaimed: %w", err)
	}
	total := 0
	for _, want := range []int{64, 64, 64, 8, 0} {
		answer, err := reserve(ctx, engine.Store, ask(clock, "acme", slot), reservation.Granted)
		if err != nil {
			return err
		}
		if answer.Reclaimed != want {
			return fmt.Errorf("a call reclaimed %d leases, not %d", answer.Reclaimed, want)
		}
		total += want
		if err := remaining(ctx, engine.Store, "acme", []reservation.Hold{hold}, quota.Amount(1000-n+total)); err != nil {
			return err
		}
		if total == reservation.ReclaimBatch {
			for i, state := range map[int]ledger.Rank{0: ledger.RankExpired, total - 1: ledger.RankExpired} {
				record, err := engine.Store.Lookup(ctx, "acme", asked[i].ID)
				if err != nil || record.Rank != state {
					return fmt.Errorf("lease %d has rank %d after the first batch (error %v)", i, record.Rank, err)
				}
			}
		}
	}
	pending, expired, err := sweepAll(ctx, engine.Store, 50)
	if err != nil {
		return err
	}
	if len(pending) != n || expired != 0 {
		return fmt.Errorf("a sweep handed out %d closings and found %d leases ended, not %d and 0", len(pending), expired, n)
	}
	return nil
}

// endedButNotReclaimed: a lease that has ended is over, even while a batch of
// others is before it.
func endedButNotReclaimed(ctx context.Context, engine Engine, clock *Clock) error {
	const n = 3 * reservation.ReclaimBatch
	hold, slot := aBucket("tokens", 1, 1000, 24*time.Hour), aSlot("slow", n)
	asked, err := endAtOnce(ctx, engine, clock, n, hold, slot)
	if err != nil {
		return err
	}
	last, before := asked[n-1], asked[n-2]
	if record, err := engine.Store.Lookup(ctx, "acme", last.ID); err != nil || record.State != reservation.StateExpired {
		return fmt.Errorf("Lookup shows %s (error %v)", stateName(record.State), err)
	}
	renewed, err := engine.Store.Renew(ctx, reservation.RenewRequest{Account: "acme", ID: last.ID, Lease: time.Hour})
	if err != nil || renewed.State != reservation.StateExpired {
		return fmt.Errorf("Renew answers %s (error %v)", stateName(renewed.State), err)
	}
	answer, err := refund(ctx, engine.Store, closing(before, "late", 1, 0), reservation.RefundSettled)
	if err != nil {
		return err
	}
	if !answer.Record.Late || answer.Record.Rank != ledger.RankRefunded {
		return fmt.Errorf("the Refund is recorded as %+v, not as late", answer.Record)
	}
	if _, _, err := sweepAll(ctx, engine.Store, 100); err != nil {
		return err
	}
	// One unit was really used; all else came back.
	return remaining(ctx, engine.Store, "acme", []reservation.Hold{hold, slot}, 999, n)
}

// lookingChangesNothing: Lookup and Levels reclaim nothing.
func lookingChangesNothing(ctx context.Context, engine Engine, clock *Clock) error {
	hold := aBucket("tokens", 4, 10, 24*time.Hour)
	q := ask(clock, "acme", hold)
	if _, err := reserve(ctx, engine.Store, q, reservation.Granted); err != nil {
		return err
	}
	clock.Add(q.Lease)
	for range 3 {
		record, err := engine.Store.Lookup(ctx, "acme", q.ID)
		if err != nil || record.State != reservation.StateExpired {
			return fmt.Errorf("Lookup shows %s (error %v)", stateName(record.State), err)
		}
		if err := remaining(ctx, engine.Store, "acme", q.Holds, 6); err != nil {
			return err
		}
	}
	answer, err := reserve(ctx, engine.Store, ask(clock, "acme", hold), reservation.Granted)
	if err != nil {
		return err
	}
	if answer.Reclaimed != 1 || answer.Levels[0].Remaining != 6 {
		return fmt.Errorf("the next call reclaimed %d and left %d", answer.Reclaimed, answer.Levels[0].Remaining)
	}
	return nil
}

// sweepManyAccounts: idle accounts are found, each closing is handed out once
// per OutboxRetry, and never more than was asked for.
func sweepManyAccounts(ctx context.Context, engine Engine, clock *Clock) error {
	const accounts = 300
	hold := aBucket("tokens", 4, 10, 24*time.Hour)
	asked := map[reservation.ID]string{}
	for i := range accounts {
		q := ask(clock, fmt.Sprintf("acme-%d", i), hold)
		if _, err := reserve(ctx, engine.Store, q, reservation.Granted); err != nil {
			return err
		}
		asked[q.ID] = q.Account
	}
	if pending, expired, err := sweepAll(ctx, engine.Store, 16); err != nil || len(pending)+expired != 0 {
		return fmt.Errorf("before any lease ended a sweep found %d closings and %d leases (error %v)", len(pending), expired, err)
	}
	clock.Add(defaultLease)
	for round, wantExpired := range []int{accounts, 0} {
		pending, expired, err := sweepAll(ctx, engine.Store, 16)
		if err != nil {
			return err
		}
		if len(pending) != accounts || expired != wantExpired {
			return fmt.Errorf("round %d: %d closings and %d leases, not %d and %d", round, len(pending), expired, accounts, wantExpired)
		}
		for _, p := range pending {
			if asked[p.ID] != p.Account || p.Record.State != reservation.StateExpired || len(p.Record.Actual) != 1 || p.Record.Actual[0] != 0 {
				return fmt.Errorf("pending %+v is not what was asked", p)
			}
			if round == 1 {
				verdict, err := engine.Store.Confirm(ctx, confirmation(p))
				if err != nil || verdict != reservation.ConfirmAdopted {
					return fmt.Errorf("Confirm answers %s (error %v)", nameIn(confirmNames, verdict), err)
				}
			}
		}
		clock.Add(reservation.OutboxRetry)
	}
	if pending, expired, err := sweepAll(ctx, engine.Store, 16); err != nil || len(pending)+expired != 0 {
		return fmt.Errorf("after all were confirmed a sweep found %d closings and %d leases (error %v)", len(pending), expired, err)
	}
	for account := range asked {
		if err := remaining(ctx, engine.Store, asked[account], []reservation.Hold{hold}, 10); err != nil {
			return err
		}
	}
	return nil
}

// answersAreTheCallers: an answer does not change when the engine goes on.
func answersAreTheCallers(ctx context.Context, engine Engine, clock *Clock) error {
	hold := aBucket("tokens", 4, 100, 24*time.Hour)
	q := ask(clock, "acme", hold)
	granted, err := reserve(ctx, engine.Store, q, reservation.Granted)
	if err != nil {
		return err
	}
	settled, err := refund(ctx, engine.Store, closing(q, "used", 3), reservation.RefundSettled)
	if err != nil {
		return err
	}
	for range 20 {
		other := ask(clock, "acme", hold)
		other.Token = []byte("other")
		if _, err := reserve(ctx, engine.Store, other, reservation.Granted); err != nil {
			return err
		}
		if _, err := refund(ctx, engine.Store, closing(other, "otherwise", 0), reservation.RefundSettled); err != nil {
			return err
		}
	}
	switch {
	case granted.Levels[0].Remaining != 96, settled.Levels[0].Remaining != 97:
		return errors.New("levels of an earlier answer changed")
	case settled.Record.Actual[0] != 3, string(settled.Record.Outcome) != "used", string(settled.Record.Token) != "token":
		return errors.New("the record of an earlier answer changed")
	}
	return nil
}

// requestsAreTheCallers: a caller may use the memory of its request again.
func requestsAreTheCallers(ctx context.Context, engine Engine, clock *Clock) error {
	q := ask(clock, "acme", aBucket("tokens", 4, 10, 24*time.Hour))
	q.Token = []byte("token")
	if _, err := reserve(ctx, engine.Store, q, reservation.Granted); err != nil {
		return err
	}
	r := closing(q, "used", 3)
	copy(q.Token, "xxxxx")
	q.Holds[0].Amount, q.Holds[0].Limit = 9, "other"
	r.Token = []byte("token")
	if _, err := refund(ctx, engine.Store, r, reservation.RefundSettled); err != nil {
		return err
	}
	copy(r.Outcome, "xxxx")
	r.Actual[0] = 7
	record, err := engine.Store.Lookup(ctx, "acme", q.ID)
	if err != nil {
		return err
	}
	if string(record.Token) != "token" || string(record.Outcome) != "used" || record.Actual[0] != 3 {
		return fmt.Errorf("the record changed with the request: token %q, outcome %q, actual %v", record.Token, record.Outcome, record.Actual)
	}
	return remaining(ctx, engine.Store, "acme", []reservation.Hold{aBucket("tokens", 0, 10, 24*time.Hour)}, 7)
}
