package spool_test

import (
	"context"
	"errors"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/spool"
	"github.com/budgetd/budgetd/quota"
)

// While the ledger is away closings are acknowledged from the file, and no call
// waits for it; when it is back each is posted once.
func TestAwayAndBack(t *testing.T) {
	r := newRig(t, nil)
	if v := r.append(closing(0, ledger.RankRefunded, 5)); v.Spooled || len(v.Usage) != 1 {
		t.Errorf("the ledger is there: %+v", v)
	}
	r.books.away.Store(true)
	ctx := ledger.WithToken(context.Background(), []byte("token"))
	for number := 1; number <= 3; number++ {
		verdicts, err := r.Append(ctx, []ledger.Closing{closing(number, ledger.RankRefunded, 5)})
		if err != nil {
			t.Fatal(err)
		}
		want := ledger.VerdictOf(new(closing(number, ledger.RankRefunded, 5)))
		want.Posted, want.Spooled = true, true
		if diff := cmp.Diff(want, verdicts[0]); diff != "" {
			t.Errorf("closing %d (-want +got):\n%s", number, diff)
		}
	}
	if calls := r.books.calls.Load(); calls != 2 {
		t.Errorf("%d calls reached the ledger, want 2: the one that was answered and the one that found it away", calls)
	}
	if !r.Away() || r.value("away") != 1 || r.value("closings") != 3 || r.value("bytes") == 0 {
		t.Errorf("away %v, %v; %v closings in %v bytes", r.Away(), r.value("away"), r.value("closings"), r.value("bytes"))
	}
	if err := r.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	if err := r.Drain(t.Context()); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("drain while away: %v", err)
	}
	r.wantUsed(5)

	r.books.away.Store(false)
	drained := r.drain()
	for i, d := range drained {
		if d.Closing.Reservation != closing(i+1, 2, 5).Reservation || string(d.Token) != "token" || !d.Verdict.Posted || d.Verdict.Spooled || len(d.Verdict.Usage) != 1 {
			t.Errorf("drained %d: %+v", i, d)
		}
	}
	if len(drained) != 3 || r.Away() || r.value("closings") != 0 || r.value("drained_total") != 3 || r.value("spooled_total") != 3 {
		t.Errorf("%d drained, away %v", len(drained), r.Away())
	}
	r.wantUsed(20)
	if v := r.append(closing(4, ledger.RankRefunded, 5)); v.Spooled {
		t.Errorf("the ledger is back: %+v", v)
	}
}

// A ledger that hangs holds a caller up for the patience, once.
func TestFrozen(t *testing.T) {
	r := newRig(t, func(c *spool.Config) { c.Patience = 50 * time.Millisecond })
	r.books.frozen.Store(true)
	for number := range 20 {
		if v := r.append(closing(number, ledger.RankRefunded, 1)); !v.Spooled {
			t.Errorf("%+v", v)
		}
	}
	if calls := r.books.calls.Load(); calls != 1 {
		t.Errorf("%d calls waited for the ledger, want 1", calls)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Usage(ctx, []ledger.UsageKey{spend}); !errors.Is(err, ledger.ErrUnavailable) || r.books.calls.Load() != 1 {
		t.Errorf("usage: %v after %d calls", err, r.books.calls.Load())
	}
	r.background()
	r.books.frozen.Store(false)
	await(t, func() bool { return r.value("closings") == 0 && !r.Away() })
	r.wantUsed(20)
}

// An answer that was lost is not a lost closing, and does not count twice.
func TestLostAnswer(t *testing.T) {
	r := newRig(t, nil)
	r.books.mute.Store(true)
	if v := r.append(closing(1, ledger.RankRefunded, 5)); !v.Spooled {
		t.Errorf("%+v", v)
	}
	if err := r.Drain(t.Context()); err == nil || r.value("closings") != 1 {
		t.Errorf("drained without an answer: %v", err)
	}
	r.books.mute.Store(false)
	if drained := r.drain(); len(drained) != 1 || drained[0].Verdict.Posted {
		t.Errorf("%+v", drained)
	}
	r.wantUsed(5)
	if filed := r.filed(); len(filed) != 0 {
		t.Errorf("filed: %v", filed)
	}
}

// Back-pressure and refusals are the caller's: nothing of them is spooled.
func TestNotSpooled(t *testing.T) {
	r := newRig(t, nil)
	r.books.busy.Store(true)
	if _, err := r.Append(t.Context(), []ledger.Closing{closing(1, 2, 1)}); !errors.Is(err, ledger.ErrBusy) {
		t.Errorf("busy: %v", err)
	}
	r.books.busy.Store(false)
	r.append(closing(2, 2, 1))
	r.fill(spend.Account)
	if _, err := r.Append(t.Context(), []ledger.Closing{closing(3, 2, quota.MaxAmount)}); !errors.Is(err, quota.ErrOverflow) {
		t.Errorf("overflow: %v", err)
	}
	r.books.away.Store(true)
	ctx := ledger.WithToken(t.Context(), make([]byte, ledger.MaxTokenBytes+1))
	for what, c := range map[string]ledger.Closing{"a closing out of bounds": {}, "a token that is too long": closing(4, 2, 1)} {
		if _, err := r.Append(ctx, []ledger.Closing{c}); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Append(ctx, []ledger.Closing{closing(5, 2, 1)}); !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that hung up: %v", err)
	}
	if r.value("spooled_total") != 0 {
		t.Errorf("%v closings are spooled", r.value("spooled_total"))
	}
	if _, err := r.Append(t.Context(), nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// The spool decides between closings of one reservation as the ledger does,
// also when the ledger is back and the first of them is still in the file.
func TestOneReservation(t *testing.T) {
	r := newRig(t, nil)
	r.books.away.Store(true)
	expiry, refund, other := closing(1, ledger.RankExpired, 7), closing(1, ledger.RankRefunded, 5), closing(1, ledger.RankRefunded, 6)
	refund.Outcome = []byte("what was charged")
	if v := r.append(expiry); !v.Posted || v.Rank != ledger.RankExpired {
		t.Errorf("expiry: %+v", v)
	}
	if v := r.append(refund); !v.Posted || v.Rank != ledger.RankRefunded {
		t.Errorf("refund after expiry: %+v", v)
	}
	for back := range 2 {
		r.books.away.Store(back == 0)
		for what, c := range map[string]ledger.Closing{"expiry": expiry, "the same": refund, "another body": other} {
			v := r.append(c)
			if !v.Spooled || v.Posted || v.Body != refund.Body || string(v.Outcome) != "what was charged" {
				t.Errorf("%s: %+v", what, v)
			}
		}
		// Nobody has drained or looked yet: others of the account wait too, but
		// as soon as the ledger is known to be back only this reservation does.
		if back == 1 {
			if v := r.append(closing(2, ledger.RankRefunded, 1)); !v.Spooled {
				t.Errorf("%+v", v)
			}
		}
	}
	r.restart() // the new process does not know that the ledger was away
	if v := r.append(other); !v.Spooled || v.Posted || v.Body != refund.Body {
		t.Errorf("another body after a restart: %+v", v)
	}
	if v := r.append(closing(3, ledger.RankRefunded, 1)); v.Spooled {
		t.Errorf("a reservation that has nothing in the file: %+v", v)
	}
	if drained := r.drain(); len(drained) != 2 {
		t.Errorf("%d drained", len(drained))
	}
	r.wantUsed(7)
	if v := r.append(other); v.Spooled || v.Body != refund.Body {
		t.Errorf("after draining: %+v", v)
	}
}

// What the ledger can't take any more is filed and blocks nothing behind it.
func TestFiled(t *testing.T) {
	r := newRig(t, nil)
	first := closing(1, ledger.RankRefunded, 5)
	outranking := closing(2, ledger.RankRefunded, 3)
	r.append(first)
	r.append(outranking)
	r.books.away.Store(true)
	if v := r.append(closing(1, ledger.RankRefunded, 6)); !v.Spooled || !v.Posted { // W3
		t.Errorf("%+v", v)
	}
	r.append(closing(2, ledger.RankExpired, 9))
	// Rows that the next closings overflow.
	for number := 10; number < 16; number++ {
		c := closing(number, ledger.RankRefunded, quota.MaxAmount)
		c.Account = "full"
		if number == 12 {
			c.Account = "acme"
			c.Lines[0].Amount = 2
		}
		r.append(c)
	}
	r.fill("full")
	r.books.away.Store(false)
	drained := r.drain()
	if r.value("closings") != 0 {
		t.Fatalf("%v closings are left", r.value("closings"))
	}
	// The conflict, the expiry that a Refund outranks, and closing 12.
	if len(drained) != 3 || drained[0].Verdict.Body != first.Body || drained[1].Verdict.Body != outranking.Body || !drained[2].Verdict.Posted {
		t.Errorf("drained: %+v", drained)
	}
	if want := []string{"conflict", "refused", "refused", "refused", "refused", "refused"}; !slices.Equal(r.filed(), want) {
		t.Errorf("filed: %v, want %v", r.filed(), want)
	}
	if r.value("filed_total") != 6 || r.value("filed_closings") != 6 || strings.Count(r.log.String(), "level=ERROR") != 6 {
		t.Errorf("filed_total %v, log:\n%s", r.value("filed_total"), r.log)
	}
	r.wantUsed(10)
	r.restart()
	if r.value("filed_closings") != 6 || r.value("closings") != 0 {
		t.Errorf("after a restart: %v filed, %v waiting", r.value("filed_closings"), r.value("closings"))
	}
}

// Usage posts what is spooled for its accounts first, and a Closing in the
// spool is found.
func TestReads(t *testing.T) {
	r := newRig(t, nil)
	r.books.away.Store(true)
	mine, other := closing(1, ledger.RankRefunded, 5), closing(2, ledger.RankRefunded, 5)
	other.Account = "globex"
	r.append(mine)
	r.append(other)
	find := func(c ledger.Closing) (ledger.Closing, error) {
		return r.Closing(t.Context(), c.Account, c.Reservation, c.Minted)
	}
	kept := mine
	kept.Spooled = true
	if got, err := find(mine); err != nil || !cmp.Equal(got, kept) {
		t.Errorf("a spooled closing: %v, %s", err, cmp.Diff(kept, got))
	}
	if _, err := find(closing(3, 2, 1)); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("a closing that is nowhere, while away: %v", err)
	}
	calls := r.books.calls.Load()
	if _, err := r.Usage(t.Context(), []ledger.UsageKey{spend}); !errors.Is(err, ledger.ErrUnavailable) || r.books.calls.Load() != calls {
		t.Errorf("usage while away: %v", err)
	}

	r.books.away.Store(false)
	r.restart()
	if got, err := find(mine); err != nil || !cmp.Equal(got, kept) {
		t.Errorf("a spooled closing that the ledger does not know: %v, %s", err, cmp.Diff(kept, got))
	}
	usage, err := r.Usage(t.Context(), []ledger.UsageKey{spend})
	if err != nil || usage[0].Used != 5 {
		t.Errorf("usage: %+v, %v", usage, err)
	}
	if r.value("closings") != 1 {
		t.Errorf("%v closings wait, want the other account's", r.value("closings"))
	}
	if _, err := find(closing(3, 2, 1)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a closing that is nowhere: %v", err)
	}
	// The ledger's closing outranks the spool's.
	expiry, refund := closing(4, ledger.RankExpired, 9), closing(4, ledger.RankRefunded, 2)
	r.books.away.Store(true)
	r.append(expiry)
	r.books.away.Store(false)
	if _, err := r.books.Ledger.Append(t.Context(), []ledger.Closing{refund}); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if got, err := find(expiry); err != nil || got.Rank != ledger.RankRefunded {
		t.Errorf("%+v, %v", got, err)
	}
}

// Every field of a closing survives the file.
func TestEveryField(t *testing.T) {
	r := newRig(t, nil)
	c := closing(1, ledger.RankRefunded, 5)
	c.Outcome, c.Late, c.Degraded, c.PriceVersion = []byte{0, 1, 255}, true, true, "2026-11-01"
	c.Labels = map[string]string{"model": "gpt-4o", "odd <&>\u2028\"": "\x7f\\"}
	c.Lines[0].Scope = "model=gpt-4o"
	c.Lines = append(c.Lines, ledger.Line{Period: "m2026-11-01", Meter: quota.MeterTokens, Amount: 3, Held: 16})
	c.Spooled = true
	for value := range fields(t, c) {
		if value.IsZero() {
			t.Errorf("the test leaves a field of %s zero", value.Type())
		}
	}
	slices.SortFunc(c.Lines, func(a, b ledger.Line) int { return a.Key(c.Account).Compare(b.Key(c.Account)) })
	r.books.away.Store(true)
	if _, err := r.Append(ledger.WithToken(t.Context(), []byte{9}), []ledger.Closing{c}); err != nil {
		t.Fatal(err)
	}
	got, err := r.Closing(t.Context(), c.Account, c.Reservation, c.Minted)
	if diff := cmp.Diff(c, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// fields yields the fields of a closing, and for lines whether any has them.
func fields(t *testing.T, c ledger.Closing) func(func(reflect.Value) bool) {
	t.Helper()
	return func(yield func(reflect.Value) bool) {
		for _, field := range reflect.ValueOf(c).Fields() {
			if !yield(field) {
				return
			}
		}
		var all ledger.Line
		into := reflect.ValueOf(&all).Elem()
		for _, line := range c.Lines {
			for i := range into.NumField() {
				if from := reflect.ValueOf(line).Field(i); !from.IsZero() {
					into.Field(i).Set(from)
				}
			}
		}
		for _, field := range into.Fields() {
			if !yield(field) {
				return
			}
		}
	}
}

func TestConfig(t *testing.T) {
	r := newRig(t, nil)
	info, err := os.Stat(r.config.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	for want, change := range map[string]func(*spool.Config){
		"next: is missing":               func(c *spool.Config) { c.Next = nil },
		"path: is empty":                 func(c *spool.Config) { c.Path = "" },
		"max_bytes: 5 is less than":      func(c *spool.Config) { c.MaxBytes = 5 },
		"patience: 1ms is not between":   func(c *spool.Config) { c.Patience = time.Millisecond },
		"open the spool /dev/null/spool": func(c *spool.Config) { c.Path = "/dev/null/spool" },
		"duplicate metrics":              func(c *spool.Config) { c.Metrics = r.registry },
	} {
		config := r.config
		config.Metrics, config.Path = nil, t.TempDir()+"/spool.db"
		change(&config)
		if s, err := spool.Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
			if err == nil {
				s.Close()
			}
		}
	}
	if err := r.Spool.Close(); err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() error{
		"append":  func() error { _, err := r.Append(t.Context(), []ledger.Closing{closing(1, 2, 1)}); return err },
		"closing": func() error { _, err := r.Closing(t.Context(), "acme", [16]byte{1}, noon); return err },
		"ping":    func() error { return r.Ping(t.Context()) },
		"drain":   func() error { return r.Drain(t.Context()) },
	} {
		if err := call(); !errors.Is(err, ledger.ErrClosed) {
			t.Errorf("%s after close: %v", what, err)
		}
	}
}

// fill posts so much to an account's row that MaxAmount more does not fit.
func (r *rig) fill(account string) {
	r.tb.Helper()
	var closings []ledger.Closing
	for number := range math.MaxInt64 / int64(quota.MaxAmount) {
		c := closing(1<<20+int(number), ledger.RankRefunded, quota.MaxAmount)
		c.Account = account
		closings = append(closings, c)
	}
	if _, err := r.books.Ledger.Append(context.Background(), closings); err != nil {
		r.tb.Fatal(err)
	}
}

// await polls until something is so.
func await(t testing.TB, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatal("it does not come true")
		}
		time.Sleep(2 * time.Millisecond)
	}
}
