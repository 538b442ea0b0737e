package backtest_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/backtest"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

// suggestPolicy has a limit of each kind, one that no call meets and one that an
// account overrides.
const suggestPolicy = `
plans:
  pro:
    limits:
      - {name: tokens, meter: tokens, rate: 400000/min, burst: 40000}
      - {name: window, meter: requests, rate: 10/s, algorithm: fixed_window}
      - {name: in-flight, meter: in_flight, max: 22}
    quotas:
      - {name: spend, meter: cost, amount: $30, period: day}
      - {name: pages, meter: pages, amount: 30, period: day}
  unlimited: {limits: []}
pools:
  provider: {meter: requests, rate: 240/min, burst: 20, match: {provider: openai}}
accounts:
  acme: {plan: pro, time_zone: Asia/Tokyo}
  beta: {plan: pro, limits: [{name: in-flight, meter: in_flight, max: 1}]}
`

func document(t *testing.T, text string) *policyfile.Document {
	t.Helper()
	d, err := policyfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// suggestCalls are calls of two accounts, in bursts.
func suggestCalls() trace.Calls {
	var text strings.Builder
	text.WriteString("time,account,model,input,output,max_output\n")
	start := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for i := range 600 {
		at := start.Add(time.Duration(i/20)*10*time.Second + time.Duration(i%20*i%7)*time.Millisecond/7 + time.Duration(i%20)*20*time.Millisecond)
		fmt.Fprintf(&text, "%s,%s,gpt-4o,%d,%d,1024\n", at.Format(time.RFC3339Nano), []string{"acme", "acme", "beta"}[i%3], 200+i*37%1500, 10+i*53%400)
	}
	return trace.NewCSV(strings.NewReader(text.String()), "calls.csv")
}

func suggested(t *testing.T, share int64, passes *int) *backtest.Suggestion {
	t.Helper()
	d := document(t, suggestPolicy)
	search := backtest.Search{
		Document: d, Whole: d, Name: "suggest", Share: share,
		Options: backtest.Options{Defaults: backtest.Defaults{MaxOutput: 1024}},
		Open: func(_ context.Context, what string) (trace.Calls, func() error, error) {
			*passes++
			if want := fmt.Sprintf("searching, pass %d", *passes); what != want {
				t.Errorf("the pass is named %q, want %q", what, want)
			}
			return trace.Order(suggestCalls(), time.Minute), func() error { return nil }, nil
		},
	}
	s, err := search.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// refusals are what a policy refuses of the calls.
func refusals(t *testing.T, d *policyfile.Document) backtest.Outcome {
	t.Helper()
	policy, err := d.Policy(1)
	if err != nil {
		t.Fatal(err)
	}
	report, err := backtest.Run(context.Background(), trace.Order(suggestCalls(), time.Minute), backtest.Options{
		Plans: []backtest.Plan{{Name: "one", Policy: policy}}, Defaults: backtest.Defaults{MaxOutput: 1024},
	})
	if err != nil {
		t.Fatal(err)
	}
	return report.Plans[0]
}

// only is the policy with one limit of it, of an amount.
func only(t *testing.T, l *backtest.SuggestedLimit, amount quota.Amount) *policyfile.Document {
	d := document(t, suggestPolicy)
	limit := l.With(amount)
	for i := range d.Plans {
		d.Plans[i].Limits = nil
	}
	for i := range d.Accounts {
		d.Accounts[i].Overrides = nil
	}
	pools := d.Pools
	d.Pools = nil
	switch {
	case l.Pool != "":
		d.Pools = pools
		d.Pools[0].Limit = limit
	case l.Account != "":
		d.Accounts[1].Overrides = []quota.Limit{limit}
	default:
		d.Plans[0].Limits = []quota.Limit{limit}
		if l.Limit == "in-flight" { // beta overrides it
			d.Accounts[1].Plan = "unlimited"
		}
	}
	return d
}

// TestSuggest: every suggested amount refuses less than was asked for, and one
// step less of it does not; so do all together.
func TestSuggest(t *testing.T) {
	for _, share := range []int64{0, 20_000} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			passes := 0
			s := suggested(t, share, &passes)
			under := func(o backtest.Outcome) bool {
				if share == 0 {
					return o.Refused.Requests == 0
				}
				return o.Refused.Requests*1_000_000 < share*600
			}
			if s.Passes != passes || passes > 20 {
				t.Errorf("it says %d passes and took %d", s.Passes, passes)
			}
			if len(s.Limits) != 7 {
				t.Fatalf("%d limits, want 7", len(s.Limits))
			}
			for i := range s.Limits {
				l := &s.Limits[i]
				if l.Limit == "pages" {
					if l.Alone != 0 || l.Together != 30 || l.Note == "" {
						t.Errorf("what no call meets became %+v", l)
					}
					continue
				}
				if l.Alone == 0 {
					t.Errorf("nothing was found for %+v", l)
					continue
				}
				if o := refusals(t, only(t, l, l.Alone)); !under(o) || o.Refused != l.Refused {
					t.Errorf("%s%s of %d alone refuses %+v, it says %+v", l.Limit, l.Account, l.Alone, o.Refused, l.Refused)
				}
				if l.Less == 0 && l.Alone != 1 {
					t.Errorf("%s has nothing less than %d", l.Limit, l.Alone)
				}
				if l.Less > 0 {
					if o := refusals(t, only(t, l, l.Less)); under(o) || o.Refused != l.LessSum {
						t.Errorf("%s%s of %d alone refuses %+v, which is few enough; it says %+v", l.Limit, l.Account, l.Less, o.Refused, l.LessSum)
					}
				}
			}
			d := document(t, s.Policy)
			if o := refusals(t, d); !under(o) || o.Refused != s.Together {
				t.Errorf("the suggested policy refuses %+v, it says %+v", o.Refused, s.Together)
			}
			if burst := d.Plans[0].Limits[0]; burst.Burst*10 < burst.Rate.Amount || (burst.Burst-1)*10 >= burst.Rate.Amount {
				t.Errorf("the burst %d has not kept its proportion to %d", burst.Burst, burst.Rate.Amount)
			}
			if share == 0 {
				return
			}
			again := 0
			if other := suggested(t, share, &again); !reflect.DeepEqual(other.Limits, s.Limits) || other.Policy != s.Policy {
				t.Error("another search finds other limits")
			}
		})
	}
}
