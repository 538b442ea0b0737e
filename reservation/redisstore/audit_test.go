package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/test/servers"
)

func auditing(h reservation.Hold, repair bool) reservation.AuditRequest {
	return reservation.AuditRequest{
		Account: "acme", Counters: []reservation.AuditCounter{{Counter: h.Counter, Period: h.Period}}, Repair: repair,
	}
}

func mustAudit(tb testing.TB, s *Store, r reservation.AuditRequest) reservation.AuditAnswer {
	tb.Helper()
	answer, err := s.Audit(within(tb, 30*time.Second), r)
	if err != nil {
		tb.Fatalf("Audit: %v", err)
	}
	return answer
}

// TestAuditIsBounded: at the bound every record is added up; beyond it the
// counters are shown, and nothing is added up or repaired.
func TestAuditIsBounded(t *testing.T) {
	server := servers.NewRedis(t)
	s := open(t, patient(t, server.URL()), Config{})
	h := spend(3, 1<<40)
	seeded(t, s, "acme", h, 0)
	r := asking("acme", h)
	mustReserve(t, s, r, reservation.Granted)

	// More records of the same, by other means: the counter knows nothing of them.
	ctx := within(t, 30*time.Second)
	admin, hash := server.Client(t), s.account("acme").hash()
	raw, err := admin.HGet(ctx, hash, "r"+string(r.ID[:])).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var fields []any
	for i := 1; i < reservation.MaxAuditRecords; i++ {
		fields = append(fields, fmt.Sprintf("r%016d", i), raw)
	}
	if err := admin.HSet(ctx, hash, fields...).Err(); err != nil {
		t.Fatal(err)
	}
	answer := mustAudit(t, s, auditing(h, false))
	row := answer.Counters[0]
	if answer.TooMany || answer.Records != reservation.MaxAuditRecords || row.HeldSum != 3*reservation.MaxAuditRecords || row.Held != 3 {
		t.Errorf("at the bound: %+v", answer)
	}
	if err := admin.HSet(ctx, hash, "r one more record.", raw).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		answer = mustAudit(t, s, auditing(h, true))
		row = answer.Counters[0]
		if !answer.TooMany || row.Held != 3 || row.HeldSum != 0 || row.Repaired || !row.Seeded {
			t.Errorf("beyond the bound: %+v", answer)
		}
	}
}

// TestAuditOutlivesTheTightTimeouts: an audit may take longer than the client
// waits for other calls.
func TestAuditOutlivesTheTightTimeouts(t *testing.T) {
	server := servers.NewRedis(t)
	s := open(t, patient(t, server.URL()), Config{})
	tight, err := Options(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	quick := open(t, tight, Config{Prefix: s.prefix})
	h := spend(3, 1<<40)
	seeded(t, s, "acme", h, 0)
	eventually(t, "the scripts are loaded", func(ctx context.Context) bool {
		_, err := quick.Audit(ctx, auditing(h, false))
		return err == nil
	})
	const pause = 10 * DefaultIOTimeout
	if err := server.Client(t).Do(within(t, 10*time.Second), "CLIENT", "PAUSE", pause.Milliseconds()).Err(); err != nil {
		t.Fatal(err)
	}
	if answer := mustAudit(t, quick, auditing(h, false)); !answer.Counters[0].Seeded {
		t.Errorf("%+v", answer)
	}
}

// TestAuditNamesScopes: counters that only records name are named as they were
// made, whatever is in their names.
func TestAuditNamesScopes(t *testing.T) {
	s := open(t, patient(t, servers.SharedRedis(t).URL()), Config{})
	scopes := []string{"", "user=7", "user=a:b,key={x}", "%41", "日本語\x00", "user=%"}
	want := map[reservation.Counter]bool{}
	for _, scope := range scopes {
		h := spend(5, 100)
		h.Scope = scope
		mustRestore(t, s, asking("ac:me", h), reservation.Restored)
		want[h.Counter] = true
	}
	answer := mustAudit(t, s, reservation.AuditRequest{Account: "ac:me"})
	for _, row := range answer.Counters {
		if !want[row.Counter] || row.HeldSum != 5 || row.Held != 5 || row.PeriodKey != spend(0, 0).Period.Key {
			t.Errorf("%+v", row)
		}
		delete(want, row.Counter)
	}
	if len(want) > 0 {
		t.Errorf("not named: %v", want)
	}
}

// FuzzUnescape: what escape makes of a name that is not hashed leads back to it.
func FuzzUnescape(f *testing.F) {
	for _, name := range []string{"", "acme", "a:b", "%", "%41", "{x}", "ü", "\x00\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if text := escape(name); len(text) <= longestName && text[:min(1, len(text))] != "#" && unescape(text) != name {
			t.Errorf("%q became %q and then %q", name, text, unescape(text))
		}
	})
}
