package reservation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// onBothKinds runs a test on memory and SQLite, and on Redis and PostgreSQL.
func onBothKinds(t *testing.T, policyYAML string, test func(*testing.T, *rig)) {
	t.Run("memory and SQLite", func(t *testing.T) { test(t, newRig(t, policyYAML)) })
	t.Run("Redis and PostgreSQL", func(t *testing.T) { test(t, newServerRig(t, policyYAML).rig) })
}

const pricedPolicy = `
plans:
  pro:
    quotas:
      - {name: spend, meter: cost, amount: $1000, period: month, on_expiry: charge}
      - {name: by-model, meter: cost, amount: $1000, period: day, per: [model], costs: [{match: {route: premium}, weight: 3}]}
      - {name: tokens, meter: tokens, amount: 1000000000, period: month}
accounts:
  acme: {plan: pro, time_zone: Asia/Tokyo}
`

// group puts a group committer in front of the ledger, as production has it.
func (r *rig) group() {
	r.tb.Helper()
	appends, err := ledger.NewGroupCommitter(r.ledger, ledger.GroupConfig{})
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(func() { appends.Close() })
	r.Broker.Ledger = groupedLedger{r.ledger, appends}
}

type groupedLedger struct {
	ledger.Ledger
	appends ledger.Appender
}

func (l groupedLedger) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	return l.appends.Append(ctx, closings)
}

// priceModel makes the model "our-model" cost so many dollars per million
// tokens, in and out, from now on.
func (r *rig) priceModel(input, output string) {
	r.tb.Helper()
	o, err := estimator.ParseOverrides([]byte(fmt.Sprintf(
		`{models: [{provider: openai, id: our-model, names: [our-alias], max_output: 4096, usd_per_million: {input: %s, output: %s}}]}`, input, output)))
	if err != nil {
		r.tb.Fatal(err)
	}
	base, err := estimator.EmbeddedCatalogue()
	if err != nil {
		r.tb.Fatal(err)
	}
	e, err := estimator.New(estimator.Config{Catalogue: base.With(o)})
	if err != nil {
		r.tb.Fatal(err)
	}
	r.Broker.Estimator = e
}

func call(model string, labels map[string]string) reservation.Ask {
	tokens := quota.Tokens(1000)
	return reservation.Ask{
		Account: "acme", Labels: labels,
		LLM: &estimator.Call{Model: model, InputTokens: &tokens, MaxOutputTokens: &tokens},
	}
}

func classes(input, output quota.Tokens) reservation.Usage {
	return reservation.Usage{Use: &estimator.Use{Tokens: estimator.TokenClasses{Input: input, Output: output}}}
}

// usageOf returns the rows of the account by limit (without its hash), scope,
// meter and period.
func (r *rig) usageOf(account string) map[string]quota.Amount {
	r.tb.Helper()
	rows, err := r.ledger.AccountUsage(context.Background(), account, "", ledger.MaxAccountUsage)
	if err != nil {
		r.tb.Fatal(err)
	}
	sums := map[string]quota.Amount{}
	for _, row := range rows {
		name := row.Limit
		if name != "" {
			name = name[:len(name)-len(".01234567")]
		}
		sums[fmt.Sprintf("%s/%s/%s/%s", name, row.Scope, row.Meter, row.Period)] = row.Used
	}
	return sums
}

func (r *rig) wantUsage(want map[string]quota.Amount) {
	r.tb.Helper()
	got := r.usageOf("acme")
	for row, amount := range want {
		if got[row] != amount {
			r.tb.Errorf("%s: used %d, want %d", row, got[row], amount)
		}
	}
}

func (r *rig) correct(c reservation.PriceCorrection) reservation.PriceCorrected {
	r.tb.Helper()
	pieces := 0
	done, err := r.CorrectPrices(context.Background(), c, func(reservation.PriceCorrected) { pieces++ })
	if err != nil || pieces == 0 {
		r.tb.Fatalf("CorrectPrices: %v after %d pieces", err, pieces)
	}
	return done
}

// A price of $0.30 in and $1.20 out turns out to be half of that, after 1,000
// calls of 100 tokens in and 1 to 1,000 out: a sum of 100,000 in and 500,500
// out, at first $0.03 + $0.6006 = $0.6306, then $0.3153.
func TestAPriceIsHalved(t *testing.T) {
	onBothKinds(t, pricedPolicy, func(t *testing.T, r *rig) {
		r.group()
		r.priceModel("0.30", "1.20")
		start := r.clock.Now()
		var wait sync.WaitGroup
		const callers, calls = 50, 20
		for caller := range callers {
			wait.Go(func() {
				for i := range calls {
					labels := map[string]string{"route": "chat"}
					if i%2 == 1 {
						labels["route"] = "premium" // counts three times in by-model
					}
					number := caller*calls + i
					model := "our-model"
					if i%10 == 3 {
						model = "our-alias"
						labels["model"] = "whatever the caller likes"
					}
					d, err := r.Reserve(context.Background(), call(model, labels))
					if err != nil || d.Grant == nil {
						t.Errorf("Reserve: %+v, %v", d, err)
						return
					}
					if _, err := r.Refund(context.Background(), d.Grant.Reservation, classes(100, quota.Tokens(number+1))); err != nil {
						t.Errorf("Refund: %v", err)
						return
					}
				}
			})
		}
		wait.Wait()
		// What is not to change: another model, a bill that the caller knew, and
		// a call from before the span.
		other := r.reserve(call("gpt-4o-mini", nil))
		r.refund(other.Reservation, classes(1000, 1000)) // $0.15 and $0.60 a million: 750,000
		billed := r.reserve(call("our-model", nil))
		bill := classes(1000, 1000)
		bill.Amounts = quota.Amounts{quota.MeterCost: 77}
		r.refund(billed.Reservation, bill)
		charge := reservation.Spend{Account: "acme", Model: "our-model", Use: &estimator.Use{Tokens: estimator.TokenClasses{Input: 2000}}}
		if d, err := r.Charge(context.Background(), charge); err != nil || d.Grant == nil {
			t.Fatalf("Charge: %+v, %v", d, err)
		}
		stated := r.reserve(reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterCost: 5}})
		r.refund(stated.Reservation, reservation.Usage{Amounts: quota.Amounts{quota.MeterCost: 5}})

		const untouched = 750_000 + 77 + 5
		day, month := "d"+start.In(tokyo).Format(time.DateOnly), "m"+start.In(tokyo).Format("2006-01")+"-01"
		before := r.usageOf("acme")
		const calls30, charged = 630_600_000, 600_000
		if got := before["//cost/"+month]; got != calls30+charged+untouched {
			t.Fatalf("before: the total is %d, want %d", got, calls30+charged+untouched)
		}
		weighted := before["by-model/model=our-model/cost/"+day]

		r.priceModel("0.15", "0.60")
		r.clock.Add(time.Minute)
		later := r.reserve(call("our-model", nil))
		r.refund(later.Reservation, classes(1000, 0)) // at the new price from the start: 150,000
		c := reservation.PriceCorrection{
			Model: "our-alias", From: start, To: r.clock.Now(), Reason: "the price list was misread", By: "ops@example.com", DryRun: true,
		}
		const half = (calls30 + charged) / 2
		dry := r.correct(c)
		want := reservation.PriceCorrected{Looked: 1002, Repriced: 1001, Skipped: 1, Difference: -half}
		if dry != want {
			t.Errorf("dry run: %+v, want %+v", dry, want)
		}
		r.wantUsage(map[string]quota.Amount{"//cost/" + month: calls30 + charged + untouched + 150_000})

		c.DryRun = false
		done := r.correct(c)
		if want.ID = done.ID; done != want || done.ID == [16]byte{} {
			t.Errorf("corrected: %+v, want %+v", done, want)
		}
		after := map[string]quota.Amount{
			"//cost/" + month:      half + untouched + 150_000,
			"spend//cost/" + month: half + untouched + 150_000,
			// The calls whose label the caller chose count elsewhere.
			"by-model/model=whatever the caller likes/cost/" + day: before["by-model/model=whatever the caller likes/cost/"+day] / 2,
			"by-model/model=our-model/cost/" + day:                 (weighted-77)/2 + 77 + 150_000,
			"//tokens/" + month:                                    before["//tokens/"+month] + 1000,
		}
		r.wantUsage(after)
		r.settled()
		r.balanced()

		again := r.correct(c)
		if again.Repriced != 0 || again.Difference != 0 || again.Looked != want.Looked {
			t.Errorf("corrected again: %+v", again)
		}
		r.wantUsage(after)

		// Back again, of another account first.
		r.priceModel("0.30", "1.20")
		elsewhere := c
		elsewhere.Account = "nobody"
		if done := r.correct(elsewhere); done.Looked != 0 {
			t.Errorf("another account: %+v", done)
		}
		back := c
		back.Account, back.Provider, back.Model = "acme", "openai", "our-model"
		if done := r.correct(back); done.Repriced != 1001 || done.Difference != half {
			t.Errorf("back again: %+v", done)
		}
		after = map[string]quota.Amount{}
		for row, used := range before {
			if strings.Contains(row, "/cost/") {
				after[row] = used
			}
		}
		for _, row := range []string{"//cost/" + month, "spend//cost/" + month, "by-model/model=our-model/cost/" + day} {
			after[row] += 150_000
		}
		r.wantUsage(after)
		r.settled()
		r.balanced()
	})
}

var tokyo = time.FixedZone("Asia/Tokyo", 9*3600)

// An expired reservation is charged its hold, whose classes nobody knows. The
// Refund that comes late is priced as it was pinned, and corrected then.
func TestALateRefundAfterACorrection(t *testing.T) {
	onBothKinds(t, pricedPolicy, func(t *testing.T, r *rig) {
		r.priceModel("0.30", "1.20")
		start := r.clock.Now()
		g := r.reserve(call("our-model", nil)) // 1,000 in and 1,000 out: 1,500,000
		r.clock.Add(2 * time.Minute)
		r.settled()
		month := "m" + start.In(tokyo).Format("2006-01") + "-01"
		r.wantUsage(map[string]quota.Amount{"//cost/" + month: 1_500_000, "spend//cost/" + month: 1_500_000})

		r.priceModel("0.15", "0.60")
		c := reservation.PriceCorrection{
			Account: "acme", Provider: "openai", Model: "our-model", From: start, To: start.Add(time.Second), Reason: "misread", By: "ops",
		}
		if done := r.correct(c); done.Looked != 1 || done.Repriced != 0 || done.Skipped != 1 {
			t.Errorf("an expiry was corrected: %+v", done)
		}
		receipt := r.refund(g.Reservation, classes(1000, 100)) // 420,000 as pinned
		if receipt.Charged[quota.MeterCost] != 420_000 || !receipt.Late {
			t.Errorf("receipt %+v", receipt)
		}
		r.wantUsage(map[string]quota.Amount{"//cost/" + month: 420_000, "spend//cost/" + month: 420_000})
		if done := r.correct(c); done.Repriced != 1 || done.Difference != -210_000 {
			t.Errorf("the late Refund: %+v", done)
		}
		r.wantUsage(map[string]quota.Amount{"//cost/" + month: 210_000, "spend//cost/" + month: 210_000})
		// The Refund again gets its first answer.
		if again := r.refund(g.Reservation, classes(1000, 100)); !again.Replayed || again.Charged[quota.MeterCost] != 420_000 {
			t.Errorf("repeated: %+v", again)
		}
		r.settled()
		r.balanced()
	})
}

// What was free can get a price: the weights do not follow from the sums.
func TestAFreeModelGetsAPrice(t *testing.T) {
	r := newRig(t, pricedPolicy)
	r.priceModel("0", "0")
	start := r.clock.Now()
	g := r.reserve(call("our-model", map[string]string{"route": "premium"}))
	r.refund(g.Reservation, classes(10, 10))
	r.priceModel("1", "2")
	done := r.correct(reservation.PriceCorrection{Model: "our-model", From: start, To: start.Add(time.Second), Reason: "not free", By: "ops"})
	if done.Difference != 30_000 {
		t.Errorf("corrected: %+v", done)
	}
	day, month := "d"+start.In(tokyo).Format(time.DateOnly), "m"+start.In(tokyo).Format("2006-01")+"-01"
	r.wantUsage(map[string]quota.Amount{
		"//cost/" + month: 30_000, "spend//cost/" + month: 30_000, "by-model/model=our-model/cost/" + day: 90_000,
	})
	r.settled()
	r.balanced()
}

func TestCorrectPricesRefuses(t *testing.T) {
	r := newRig(t, pricedPolicy)
	now := r.clock.Now()
	sound := reservation.PriceCorrection{Model: "gpt-4o-mini", From: now, To: now.Add(1), Reason: "x", By: "ops"}
	for field, fault := range map[string]func(*reservation.PriceCorrection){
		"reason": func(c *reservation.PriceCorrection) { c.Reason = "" },
		"by":     func(c *reservation.PriceCorrection) { c.By = "\xff" },
		"span":   func(c *reservation.PriceCorrection) { c.To = c.From },
	} {
		c := sound
		fault(&c)
		var invalid *reservation.InvalidError
		if _, err := r.CorrectPrices(context.Background(), c, nil); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: error %v", field, err)
		}
	}
	unknown := sound
	unknown.Model = "no-such-model"
	if _, err := r.CorrectPrices(context.Background(), unknown, nil); !errors.Is(err, estimator.ErrUnknownModel) {
		t.Errorf("an unknown model: error %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.CorrectPrices(ctx, sound, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
}
