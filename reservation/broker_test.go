package reservation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

const plainPolicy = `
plans:
  pro:
    limits:
      - {name: tokens, meter: tokens, rate: 10000/min, per: [account]}
      - {name: requests, meter: requests, rate: 600/min, per: [account]}
      - {name: slow, meter: in_flight, max: 2, per: [account], match: {route: slow}}
    quotas:
      - {name: budget, meter: tokens, amount: 50000, period: month}
accounts:
  acme: {plan: pro}
`

func TestWorkedExample(t *testing.T) {
	r := newRig(t, plainPolicy)
	first := r.reserve(tokens(4000))
	if got := first.Holds[0].Level.Remaining; got != 6000 {
		t.Errorf("after 4,000: %d left, want 6,000", got)
	}
	no := r.refused(tokens(7000))
	if no.Limit != "tokens" || no.Remaining != 6000 || no.RetryAt.Sub(no.Now) != 6*time.Second || no.Reason != reservation.RateLimited {
		t.Errorf("7,000 of 6,000: %+v, want a retry in 6 s", no)
	}
	receipt := r.refund(first.Reservation, used(1600))
	if got := receipt.Holds[0].Level.Remaining; got != 8400 {
		t.Errorf("after the Refund: %d left, want 8,400", got)
	}
	if receipt.GivenBack[quota.MeterTokens] != 2400 || receipt.Charged[quota.MeterTokens] != 1600 {
		t.Errorf("receipt %+v", receipt)
	}
	r.reserve(tokens(7000))
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ wait, want time.Duration }{
		{time.Microsecond, time.Second},
		{time.Second, time.Second},
		{time.Second + time.Microsecond, 2 * time.Second},
		{6 * time.Second, 6 * time.Second},
	} {
		r := reservation.RefusedLimit{Now: now, RetryAt: now.Add(c.wait)}
		if got := r.RetryAfter(); got != c.want {
			t.Errorf("RetryAfter of %v = %v, want %v", c.wait, got, c.want)
		}
	}
	if got := (&reservation.RefusedLimit{Now: now}).RetryAfter(); got != 0 {
		t.Errorf("not retryable: %v, want 0", got)
	}
}

func TestModelCallIsPricedOnce(t *testing.T) {
	r := newRig(t, `
plans:
  pro:
    quotas: [{name: spend, meter: cost, amount: $10, period: month}]
accounts: {acme: {plan: pro}}
`)
	max := quota.Tokens(100)
	input := quota.Tokens(1000)
	g := r.reserve(reservation.Ask{Account: "acme", LLM: &estimator.Call{Model: "claude-sonnet-4-5", InputTokens: &input, MaxOutputTokens: &max}})
	if g.PriceVersion == "" || g.Estimate == nil {
		t.Fatalf("grant without a price: %+v", g)
	}
	// The example: 1,000 input tokens of which 800 read from cache at
	// $3.00 and $0.30 a million, 100 output tokens at $15.
	use := estimator.Use{Tokens: estimator.TokenClasses{Input: 200, CacheRead: 800, Output: 100}}
	receipt := r.refund(g.Reservation, reservation.Usage{Use: &use})
	if got := receipt.Charged[quota.MeterCost]; got != 2_340_000 {
		t.Errorf("cost %d nano-USD, want 2,340,000", got)
	}
	r.settled()
	if got := r.totals()[quota.MeterCost]; got != 2_340_000 {
		t.Errorf("the ledger holds %d nano-USD, want 2,340,000", got)
	}
	r.balanced()
}

// A cut answer is charged by the text that was seen of it, where that is more
// than the provider told.
func TestSeenTextIsCounted(t *testing.T) {
	r := newRig(t, `
plans:
  pro:
    limits: [{name: tokens, meter: tokens, rate: 1/day, burst: 100000}]
accounts: {acme: {plan: pro}}
`)
	max := quota.Tokens(1000)
	text := strings.Repeat("the quick brown fox ", 10)
	words, err := estimator.Count(estimator.O200kBase, text)
	if err != nil {
		t.Fatal(err)
	}
	input := &estimator.Use{Tokens: estimator.TokenClasses{Input: 7}}
	for _, tt := range []struct {
		name  string
		usage reservation.Usage
		want  quota.Tokens
	}{
		{"nothing told", reservation.Usage{Use: input, SeenText: text}, 7 + words},
		{"a first figure told", reservation.Usage{Provider: "openai", ProviderUsage: map[string]any{"usage": map[string]any{"prompt_tokens": 7.0, "completion_tokens": 3.0}}, SeenText: text}, 7 + words},
		{"more told", reservation.Usage{Provider: "openai", ProviderUsage: map[string]any{"prompt_tokens": 7.0, "completion_tokens": 500.0}, SeenText: text}, 507},
	} {
		g := r.reserve(reservation.Ask{Account: "acme", LLM: &estimator.Call{Model: "gpt-4o-mini", Prompt: "Hello", MaxOutputTokens: &max}})
		for range 2 { // a repeat is the same Refund
			receipt := r.refund(g.Reservation, tt.usage)
			if got := receipt.Charged[quota.MeterTokens]; got != tt.want.Amount() {
				t.Errorf("%s: %d tokens, want %d", tt.name, got, tt.want)
			}
		}
	}
	g := r.reserve(reservation.Ask{Account: "acme", LLM: &estimator.Call{Model: "gpt-4o-mini", Prompt: "Hello", MaxOutputTokens: &max}})
	for _, bad := range []reservation.Usage{{SeenText: text}, {Use: input, SeenText: strings.Repeat("x", estimator.MaxSeenText+1)}} {
		var invalid *reservation.InvalidError
		if _, err := r.Refund(context.Background(), g.Reservation, bad); !errors.As(err, &invalid) || invalid.Field != "usage.seen_text" || strings.Contains(err.Error(), "quick") {
			t.Errorf("%v", err)
		}
	}
	r.refund(g.Reservation, reservation.Usage{Unused: true})
	r.settled()
	r.balanced()
}

func TestUnknownModelIsRefused(t *testing.T) {
	r := newRig(t, plainPolicy)
	_, err := r.Reserve(context.Background(), reservation.Ask{Account: "acme", LLM: &estimator.Call{Model: "no-such-model-9", Prompt: "x"}})
	if !errors.Is(err, estimator.ErrUnknownModel) {
		t.Errorf("got %v, want ErrUnknownModel", err)
	}
}

func TestIdempotencyKey(t *testing.T) {
	r := newRig(t, plainPolicy)
	ask := tokens(1000)
	ask.Key = "k1"
	first := r.reserve(ask)
	again := r.reserve(ask)
	if !again.Replayed || again.Reservation != first.Reservation || again.State != reservation.StateHeld {
		t.Errorf("replay: %+v, want %s held", again, first.Reservation)
	}
	other := tokens(1001)
	other.Key = "k1"
	if _, err := r.Reserve(context.Background(), other); !errors.Is(err, reservation.ErrKeyReused) {
		t.Errorf("another body: %v, want ErrKeyReused", err)
	}
	r.refund(first.Reservation, used(10))
	if closed := r.reserve(ask); closed.State != reservation.StateSettled || closed.Reservation != first.Reservation {
		t.Errorf("replay after the Refund: %+v, want settled", closed)
	}
	r.settled()
	if closed := r.reserve(ask); closed.State != reservation.StateSettled || closed.Reservation != first.Reservation {
		t.Errorf("replay after the confirmation: %+v, want settled", closed)
	}
	if got := r.totals()[quota.MeterTokens]; got != 10 {
		t.Errorf("ledger holds %d tokens, want 10", got)
	}
}

func TestRefundOnce(t *testing.T) {
	r := newRig(t, plainPolicy)
	g := r.reserve(tokens(4000))
	var settled, replayed atomic.Int32
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			receipt, err := r.Refund(context.Background(), g.Reservation, used(1600))
			switch {
			case err != nil:
				t.Error(err)
			case receipt.Charged[quota.MeterTokens] != 1600:
				t.Errorf("charged %v", receipt.Charged)
			case receipt.Replayed:
				replayed.Add(1)
			default:
				settled.Add(1)
			}
		})
	}
	wg.Wait()
	if _, err := r.Refund(context.Background(), g.Reservation, used(1700)); !errors.Is(err, reservation.ErrConflict) {
		t.Errorf("another usage: %v, want ErrConflict", err)
	}
	r.settled()
	if _, err := r.Refund(context.Background(), g.Reservation, used(1700)); !errors.Is(err, reservation.ErrConflict) {
		t.Errorf("another usage after the confirmation: %v, want ErrConflict", err)
	}
	if got := r.totals()[quota.MeterTokens]; got != 1600 {
		t.Errorf("ledger holds %d tokens, want 1,600", got)
	}
	r.balanced()
}

func TestWaysToRefund(t *testing.T) {
	for _, c := range []struct {
		name      string
		usage     reservation.Usage
		charged   quota.Amounts
		givenBack quota.Amounts
		overrun   quota.Amounts
	}{
		{"less", used(1), quota.Amounts{"tokens": 1, "requests": 1}, quota.Amounts{"tokens": 999}, quota.Amounts{}},
		{"all", used(1000), quota.Amounts{"tokens": 1000, "requests": 1}, quota.Amounts{}, quota.Amounts{}},
		{"overrun", used(1500), quota.Amounts{"tokens": 1500, "requests": 1}, quota.Amounts{}, quota.Amounts{"tokens": 500}},
		{"zero", used(0), quota.Amounts{"tokens": 0, "requests": 1}, quota.Amounts{"tokens": 1000}, quota.Amounts{}},
		{"unused", reservation.Usage{Unused: true}, quota.Amounts{"tokens": 0, "requests": 0}, quota.Amounts{"tokens": 1000, "requests": 1}, quota.Amounts{}},
		{"not reported", reservation.Usage{Amounts: quota.Amounts{"pages": 3}}, quota.Amounts{"tokens": 1000, "requests": 1, "pages": 3}, quota.Amounts{}, quota.Amounts{"pages": 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, plainPolicy)
			got := r.refund(r.reserve(tokens(1000)).Reservation, c.usage)
			if diff := cmp.Diff(c.charged, got.Charged); diff != "" {
				t.Error("charged:", diff)
			}
			if diff := cmp.Diff(c.givenBack, got.GivenBack); diff != "" {
				t.Error("given back:", diff)
			}
			if diff := cmp.Diff(c.overrun, got.Overrun); diff != "" {
				t.Error("overrun:", diff)
			}
			r.settled()
			r.balanced()
		})
	}
}

func TestOverrunIsDebt(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.refund(r.reserve(tokens(1000)).Reservation, used(12_000))
	no := r.refused(tokens(1))
	if no.Remaining != -2000 {
		t.Errorf("%d left, want a debt of 2,000", no.Remaining)
	}
	r.clock.Add(12*time.Second + time.Second)
	r.reserve(tokens(100))
}

func TestCrashedCallerGivesBack(t *testing.T) {
	r := newRig(t, plainPolicy)
	lease := 30 * time.Second
	ask := tokens(4000)
	ask.Lease, ask.Labels = &lease, map[string]string{"route": "slow"}
	g := r.reserve(ask)
	r.reserve(ask)
	if no := r.refused(ask); no.Limit != "slow" || no.Reason != reservation.ConcurrencyLimited || no.RetryAt.Sub(no.Now) != lease {
		t.Errorf("third of two slots: %+v", no)
	}
	r.clock.Add(lease)
	r.settled()
	story, err := r.Reservation(context.Background(), g.Reservation)
	if err != nil || story.State != reservation.StateExpired || !story.Posted {
		t.Errorf("story %+v, %v; want expired and posted", story, err)
	}
	if _, err := r.Renew(context.Background(), g.Reservation, reservation.Renewal{}); !errors.Is(err, reservation.ErrNotHeld) {
		t.Errorf("Renew of an expired reservation: %v, want ErrNotHeld", err)
	}
	late := r.refund(g.Reservation, used(123))
	if !late.Late || late.Charged[quota.MeterTokens] != 123 {
		t.Errorf("late Refund: %+v", late)
	}
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 123 {
		t.Errorf("ledger holds %d tokens, want 123", got)
	}
	r.balanced()
}

func TestRenewExtends(t *testing.T) {
	r := newRig(t, plainPolicy)
	lease := 30 * time.Second
	ask := tokens(10)
	ask.Lease = &lease
	g := r.reserve(ask)
	r.clock.Add(20 * time.Second)
	end, err := r.Renew(context.Background(), g.Reservation, reservation.Renewal{})
	if err != nil || !end.ExpiresAt.Equal(r.clock.Now().Add(lease)) {
		t.Fatalf("Renew: %v, %v", end, err)
	}
	r.clock.Add(20 * time.Second)
	if receipt := r.refund(g.Reservation, used(5)); receipt.Late {
		t.Error("a Refund within the renewed lease is late")
	}
}

func TestPeriodRolls(t *testing.T) {
	r := newRig(t, plainPolicy)
	// Refill the bucket between the calls: the quota alone decides.
	for range 5 {
		r.refund(r.reserve(tokens(10_000)).Reservation, used(10_000))
		r.clock.Add(time.Minute)
	}
	r.settled()
	no := r.refused(tokens(1))
	if no.Reason != reservation.QuotaExhausted || !no.RetryAt.Equal(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v, want exhausted until December", no)
	}
	r.clock.Set(time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC))
	r.refused(tokens(1))
	r.clock.Set(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	g := r.reserve(tokens(1))
	r.refund(g.Reservation, used(1))
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 1 {
		t.Errorf("December has %d tokens, want 1", got)
	}
}

func TestLateRefundGoesToThePeriodOfTheReserve(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.clock.Set(time.Date(2026, 11, 30, 23, 59, 50, 0, time.UTC))
	g := r.reserve(tokens(1000))
	r.clock.Set(time.Date(2026, 12, 1, 0, 10, 0, 0, time.UTC))
	r.settled()
	if receipt := r.refund(g.Reservation, used(700)); !receipt.Late {
		t.Error("not late")
	}
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 0 {
		t.Errorf("December has %d tokens, want 0", got)
	}
	november, err := r.ledger.AccountUsage(context.Background(), "acme", "m2026-11-01", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range november {
		if row.Meter == quota.MeterTokens && row.Used != 700 {
			t.Errorf("November, limit %q: %d tokens, want 700", row.Limit, row.Used)
		}
	}
	r.balanced()
}

func TestEngineSilent(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.engine.silent.Store(true)
	_, err := r.Reserve(context.Background(), tokens(1))
	var down *reservation.DownError
	if !errors.As(err, &down) || down.Limit != "tokens" || !errors.Is(err, reservation.ErrUnavailable) {
		t.Errorf("closed limits: %v, want a DownError that names tokens", err)
	}
	r.setPolicy(strings.NewReplacer("per: [account]", "per: [account], when_down: open", "period: month", "period: month, when_down: open").Replace(plainPolicy))
	g := r.reserve(tokens(500))
	if !g.Degraded {
		t.Error("granted without the engine and does not say so")
	}
	r.refund(g.Reservation, used(400)) // goes to the ledger alone
	r.engine.silent.Store(false)
	r.refund(g.Reservation, used(400)) // and once more, now with the engine
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 400 {
		t.Errorf("ledger holds %d tokens, want 400", got)
	}
	r.reserve(tokens(1)) // seeds the quota
	r.settled()
	r.balanced()
}

// TestOverviewWithoutLedger: what the engine knows is shown, and what only the
// ledger knows is missing.
func TestOverviewWithoutLedger(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.refund(r.reserve(tokens(400)).Reservation, used(300))
	r.settled()
	r.ledger.silent.Store(true)
	view, err := r.Overview(context.Background(), "acme", nil)
	if err != nil || !view.LedgerAway || view.Degraded || view.Totals != nil {
		t.Fatalf("without the ledger: %+v, %v", view, err)
	}
	seen := false
	for _, limit := range view.Limits {
		if limit.Kind == quota.KindQuota {
			seen = true
			if !limit.Level.Seeded || limit.Level.Used != 300 {
				t.Errorf("quota %s: %+v, want 300 used", limit.Limit, limit.Level)
			}
		}
	}
	if !seen {
		t.Error("no quota is shown")
	}
	r.engine.silent.Store(true)
	if _, err := r.Overview(context.Background(), "acme", nil); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("without both: %v, want unavailable", err)
	}
}

func TestLostAnswers(t *testing.T) {
	t.Run("reserve with a key", func(t *testing.T) {
		r := newRig(t, plainPolicy)
		r.reserve(tokens(1)) // seeds
		ask := tokens(4000)
		ask.Key = "k"
		r.engine.loseAnswer.Store(true)
		if _, err := r.Reserve(context.Background(), ask); !errors.Is(err, reservation.ErrUnavailable) {
			t.Fatalf("%v, want unavailable", err)
		}
		if g := r.reserve(ask); !g.Replayed || g.Holds[0].Amount != 4000 {
			t.Errorf("repeat: %+v, want the first grant", g)
		}
		if left := r.overview(nil)["tokens"].Level.Remaining; left != 5999 {
			t.Errorf("%d left, want 5,999: taken once", left)
		}
	})
	t.Run("refund in the engine", func(t *testing.T) {
		r := newRig(t, plainPolicy)
		g := r.reserve(tokens(4000))
		r.engine.loseAnswer.Store(true)
		r.refund(g.Reservation, used(1000)) // the ledger alone answers
		r.settled()
		if got := r.totals()[quota.MeterTokens]; got != 1000 {
			t.Errorf("ledger holds %d tokens, want 1,000", got)
		}
		r.balanced()
	})
	t.Run("refund in the ledger", func(t *testing.T) {
		r := newRig(t, plainPolicy)
		g := r.reserve(tokens(4000))
		r.ledger.loseAnswer.Store(true)
		if _, err := r.Refund(context.Background(), g.Reservation, used(1000)); !errors.Is(err, ledger.ErrUnavailable) {
			t.Fatalf("%v, want unavailable: not known to be kept", err)
		}
		r.refund(g.Reservation, used(1000))
		r.settled()
		if got := r.totals()[quota.MeterTokens]; got != 1000 {
			t.Errorf("ledger holds %d tokens, want 1,000", got)
		}
		r.balanced()
	})
}

func TestLedgerAway(t *testing.T) {
	r := newRig(t, plainPolicy)
	g := r.reserve(tokens(4000))
	r.ledger.silent.Store(true)
	if _, err := r.Refund(context.Background(), g.Reservation, used(1000)); !errors.Is(err, ledger.ErrUnavailable) {
		t.Fatalf("%v, want unavailable: nothing durable holds it", err)
	}
	r.reserve(tokens(8000)) // capacity is back all the same, and Reserve needs no ledger
	r.ledger.silent.Store(false)
	r.settled() // the outbox finishes what the caller never repeated
	if got := r.totals()[quota.MeterTokens]; got != 1000 {
		t.Errorf("ledger holds %d tokens, want 1,000", got)
	}
}

func TestUnconfirmedClosingIsFinishedByTheSweeper(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.engine.noConfirm.Store(true)
	g := r.reserve(tokens(4000))
	r.refund(g.Reservation, used(1000))
	if level := r.overview(nil)["budget"].Level; level.Unposted != 1000 {
		t.Errorf("unposted %d, want 1,000 while the engine was not told", level.Unposted)
	}
	r.engine.noConfirm.Store(false)
	r.settled()
	if level := r.overview(nil)["budget"].Level; level.Unposted != 0 || level.Used != 1000 {
		t.Errorf("%+v, want 1,000 used and nothing unposted", level)
	}
	r.balanced()
}

func TestEngineLostEverything(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.refund(r.reserve(tokens(3000)).Reservation, used(3000))
	r.settled()
	open := r.reserve(tokens(2000))
	r.engine.swap(r.newEngine())

	// Exact again before the next grant: 3,000 are spent, so 47,000 are left.
	r.clock.Add(10 * time.Minute)
	r.setPolicy(strings.Replace(plainPolicy, "rate: 10000/min", "rate: 100000/min", 1))
	if no := r.refused(tokens(47_001)); no.Reason != reservation.QuotaExhausted || no.Remaining != 47_000 {
		t.Errorf("%+v, want exhausted with 47,000 left", no)
	}
	// The reservation that the engine forgot is posted once, to its period.
	r.refund(open.Reservation, used(500))
	r.refund(open.Reservation, used(500))
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 3500 {
		t.Errorf("ledger holds %d tokens, want 3,500", got)
	}
	r.balanced()
}

func TestChargeIsSettledAtOnce(t *testing.T) {
	r := newRig(t, plainPolicy)
	spend := reservation.Spend{Account: "acme", Key: "c1", Labels: map[string]string{"route": "slow"}, Amounts: quota.Amounts{"tokens": 700}}
	for range 3 {
		d, err := r.Charge(context.Background(), spend)
		if err != nil || d.Grant == nil || d.Grant.State != reservation.StateSettled {
			t.Fatalf("Charge: %+v, %v", d, err)
		}
	}
	if got := r.totals()[quota.MeterTokens]; got != 700 {
		t.Errorf("ledger holds %d tokens, want 700: the same key is charged once", got)
	}
	charged, err := r.Charge(context.Background(), spend)
	if err != nil {
		t.Fatal(err)
	}
	long := time.Hour
	for _, lease := range []*time.Duration{nil, &long} {
		if _, err := r.Renew(context.Background(), charged.Grant.Reservation, reservation.Renewal{Lease: lease}); !errors.Is(err, reservation.ErrNotHeld) {
			t.Errorf("Renew of a charge: %v, want ErrNotHeld", err)
		}
	}
	spend.Key, spend.Amounts = "", quota.Amounts{"tokens": 9301}
	d, err := r.Charge(context.Background(), spend)
	if err != nil || d.Refusal == nil || d.Refusal.Remaining != 9300 {
		t.Errorf("Charge beyond the bucket: %+v, %v", d, err)
	}
	r.settled()
	r.balanced()
}

func TestDryRunTakesNothing(t *testing.T) {
	r := newRig(t, plainPolicy)
	ask := tokens(4000)
	ask.DryRun = true
	for range 5 {
		if g := r.reserve(ask); g.Reservation != "" || g.Holds[0].Level.Remaining != 6000 {
			t.Errorf("dry run: %+v", g)
		}
	}
	r.reserve(tokens(10_000))
	r.refused(ask)
}

func TestBadAsks(t *testing.T) {
	r := newRig(t, plainPolicy)
	before := r.overview(nil)
	tooShort, tooLong := time.Duration(0), 10*365*24*time.Hour
	for name, c := range map[string]struct {
		ask   reservation.Ask
		field string
	}{
		"negative":        {tokens(-1), "amounts"},
		"zero":            {tokens(0), "amounts"},
		"2^53":            {tokens(1 << 53), "amounts"},
		"bad meter":       {reservation.Ask{Account: "acme", Amounts: quota.Amounts{"To Kens": 1}}, "amounts"},
		"lease of 0":      {reservation.Ask{Account: "acme", Amounts: quota.Amounts{"tokens": 1}, Lease: &tooShort}, "lease"},
		"lease of 10 y":   {reservation.Ask{Account: "acme", Amounts: quota.Amounts{"tokens": 1}, Lease: &tooLong}, "lease"},
		"long key":        {reservation.Ask{Account: "acme", Amounts: quota.Amounts{"tokens": 1}, Key: strings.Repeat("k", 300)}, "idempotency_key"},
		"large label":     {reservation.Ask{Account: "acme", Amounts: quota.Amounts{"tokens": 1}, Labels: map[string]string{"a": strings.Repeat("x", 10<<20)}}, "labels"},
		"bad label name":  {reservation.Ask{Account: "acme", Amounts: quota.Amounts{"tokens": 1}, Labels: map[string]string{"A B": "x"}}, "labels"},
		"slots by number": {reservation.Ask{Account: "acme", Amounts: quota.Amounts{"in_flight": 2}}, "amounts"},
	} {
		_, err := r.Reserve(context.Background(), c.ask)
		var invalid *reservation.InvalidError
		if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, c.field) {
			t.Errorf("%s: %v, want an InvalidError at %s", name, err, c.field)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
	if _, err := r.Reserve(context.Background(), reservation.Ask{Account: "nobody", Amounts: quota.Amounts{"tokens": 1}}); !errors.Is(err, reservation.ErrNotFound) {
		t.Errorf("unknown account: %v", err)
	}
	if diff := cmp.Diff(before, r.overview(nil)); diff != "" {
		t.Error("bad asks changed something:", diff)
	}
}

func TestBadRefundsChangeNothing(t *testing.T) {
	r := newRig(t, plainPolicy)
	g := r.reserve(tokens(4000))
	before := r.overview(nil)
	for name, usage := range map[string]reservation.Usage{
		"nothing":         {},
		"both":            {Unused: true, Amounts: quota.Amounts{"tokens": 1}},
		"negative":        used(-1),
		"2^53":            used(1 << 53),
		"slots":           {Amounts: quota.Amounts{"in_flight": 1}},
		"classes":         {Use: &estimator.Use{Tokens: estimator.TokenClasses{Input: -1}}},
		"unknown usage":   {Provider: "nobody", ProviderUsage: map[string]any{"x": 1}},
		"two at once":     {Use: &estimator.Use{Tokens: estimator.TokenClasses{}}, Provider: "openai", ProviderUsage: map[string]any{"prompt_tokens": 1.0}},
		"fractional":      {Provider: "openai", ProviderUsage: map[string]any{"prompt_tokens": 1.5, "completion_tokens": 1.0}},
		"class overflow":  {Use: &estimator.Use{Tokens: estimator.TokenClasses{Input: 1 << 52, Output: 1 << 52, CacheRead: 1 << 52}}},
		"invented meters": {Amounts: quota.Amounts{"": 1}},
	} {
		_, err := r.Refund(context.Background(), g.Reservation, usage)
		var invalid *reservation.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: %v, want an InvalidError", name, err)
		}
	}
	if diff := cmp.Diff(before, r.overview(nil)); diff != "" {
		t.Error("bad Refunds changed something:", diff)
	}
	r.refund(g.Reservation, used(1))
}

func TestPolicyChangeKeepsOpenReservations(t *testing.T) {
	r := newRig(t, plainPolicy)
	g := r.reserve(tokens(4000))
	r.setPolicy(`
plans: {pro: {limits: [{name: other, meter: tokens, rate: 1/min}]}}
accounts: {acme: {plan: pro}}
`)
	r.refund(g.Reservation, used(1000))
	r.setPolicy(plainPolicy)
	if left := r.overview(nil)["tokens"].Level.Remaining; left != 9000 {
		t.Errorf("%d left, want 9,000", left)
	}
	r.settled()
	r.balanced()
}

func TestConcurrentTrafficBalances(t *testing.T) {
	r := newRig(t, plainPolicy)
	var spent atomic.Int64
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := range 20 {
				d, err := r.Reserve(context.Background(), tokens(quota.Amount(1+worker)))
				if err != nil {
					t.Error(err)
					return
				}
				if d.Grant == nil {
					continue
				}
				n := int64(i % 7)
				if _, err := r.Refund(context.Background(), d.Grant.Reservation, used(quota.Amount(n))); err != nil {
					t.Error(err)
					return
				}
				spent.Add(n)
			}
		})
	}
	wg.Wait()
	r.settled()
	if got := int64(r.totals()[quota.MeterTokens]); got != spent.Load() {
		t.Errorf("ledger holds %d tokens, callers used %d", got, spent.Load())
	}
	r.balanced()
}

// TestUsageBeyondWhatAnEngineCounts: overruns can bring the ledger's sum above
// 2^53-1; the quota is exhausted then, and not broken.
func TestUsageBeyondWhatAnEngineCounts(t *testing.T) {
	r := newRig(t, plainPolicy)
	first, second := r.reserve(tokens(1)), r.reserve(tokens(1))
	r.refund(first.Reservation, used(quota.MaxAmount))
	r.refund(second.Reservation, used(quota.MaxAmount))
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 2*quota.MaxAmount {
		t.Fatalf("the ledger holds %d, want %d", got, 2*quota.MaxAmount)
	}
	for range 2 {
		if no := r.refused(tokens(1)); no.Reason != reservation.QuotaExhausted && no.Reason != reservation.RateLimited {
			t.Errorf("%+v, want exhausted", no)
		}
		r.engine.swap(r.newEngine()) // and again when it is seeded
	}
}

// TestRefusedClosingHoldsUpNoOther: the ledger refuses one closing for good, and
// all others are finished.
func TestRefusedClosingHoldsUpNoOther(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.engine.noConfirm.Store(true)
	var ids []string
	for range 5 {
		ids = append(ids, r.reserve(tokens(10)).Reservation)
		r.clock.Add(time.Microsecond) // each is minted at an instant of its own
	}
	for _, id := range ids {
		r.ledger.silent.Store(true) // the outbox has to do it
		if _, err := r.Refund(context.Background(), id, used(3)); !errors.Is(err, ledger.ErrUnavailable) {
			t.Fatal(err)
		}
		r.ledger.silent.Store(false)
	}
	r.engine.noConfirm.Store(false)
	story, err := r.Reservation(context.Background(), ids[2])
	if err != nil {
		t.Fatal(err)
	}
	r.ledger.refuse.Store(&story.Minted)
	r.clock.Add(reservation.OutboxRetry)
	if _, err := r.sweeper.Sweep(context.Background()); err == nil {
		t.Error("a refused closing is not told")
	}
	if got := r.totals()[quota.MeterTokens]; got != 12 {
		t.Errorf("ledger holds %d tokens, want the 12 of the other four", got)
	}
	r.ledger.refuse.Store(nil)
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 15 {
		t.Errorf("ledger holds %d tokens, want 15", got)
	}
	r.balanced()
}

// TestScopeThatTheLedgerCannotKeep is refused before anything is held.
func TestScopeThatTheLedgerCannotKeep(t *testing.T) {
	r := newRig(t, `
plans: {pro: {quotas: [{name: each, meter: tokens, amount: 1000, period: month, per: [team, user]}]}}
accounts: {acme: {plan: pro}}
`)
	ask := tokens(1)
	ask.Labels = map[string]string{"team": strings.Repeat("%", 256), "user": strings.Repeat("%", 256)}
	_, err := r.Reserve(context.Background(), ask)
	var invalid *reservation.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "labels" {
		t.Errorf("%v, want an InvalidError at labels", err)
	}
	ask.Labels["team"] = strings.Repeat("%", 250)
	ask.Labels["user"] = "u"
	r.refund(r.reserve(ask).Reservation, used(1))
}

// TestOverviewOfManyLimits: more limits than one call may meet.
func TestOverviewOfManyLimits(t *testing.T) {
	var policy strings.Builder
	policy.WriteString("plans:\n  pro:\n    limits:\n")
	for i := range 60 {
		fmt.Fprintf(&policy, "      - {name: l%d, meter: tokens, rate: 1/s, match: {route: r%d}}\n", i, i)
	}
	policy.WriteString("pools:\n")
	for i := range 20 {
		fmt.Fprintf(&policy, "  p%d: {meter: tokens, rate: 1/s, match: {route: r%d}}\n", i, i)
	}
	policy.WriteString("accounts: {acme: {plan: pro}}\n")
	r := newRig(t, policy.String())
	if got := len(r.overview(nil)); got != 80 {
		t.Errorf("%d limits, want 80", got)
	}
}
