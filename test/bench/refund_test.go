package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
	"github.com/budgetd/budgetd/reservation/redisstore"
	"github.com/budgetd/budgetd/test/servers"
)

// policy has 16 accounts, in each of which a call meets a bucket, slots and a
// monthly quota.
const policyText = `
plans:
  pro:
    limits:
      - {name: tokens, meter: tokens, rate: 1000000000/min, burst: 1000000000}
      - {name: in-flight, meter: in_flight, max: 1000000}
    quotas:
      - {name: spend, meter: cost, amount: $1000000, period: month}
accounts:
`

const accounts = 16

func account(number int) string { return fmt.Sprintf("account-%02d", number%accounts) }

type fixedPolicy struct{ policy *quota.Policy }

func (f fixedPolicy) Current() *quota.Policy { return f.policy }

// oneKey signs reservation ids.
type oneKey struct{}

func (oneKey) Current() (uint16, []byte)       { return 1, []byte("0123456789abcdef0123456789abcdef") }
func (k oneKey) ByID(id uint16) ([]byte, bool) { _, key := k.Current(); return key, id == 1 }

// forgetful is a ledger that keeps nothing: it answers at once.
type forgetful struct{ ledger.Ledger }

func (forgetful) Append(_ context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	verdicts := make([]ledger.Verdict, len(closings))
	for i := range closings {
		verdicts[i] = ledger.VerdictOf(&closings[i])
		verdicts[i].Posted = true
	}
	return verdicts, nil
}

func (forgetful) Usage(_ context.Context, keys []ledger.UsageKey) ([]ledger.Usage, error) {
	usage := make([]ledger.Usage, len(keys))
	for i, key := range keys {
		usage[i].UsageKey = key
	}
	return usage, nil
}

func newBroker(b *testing.B, engine reservation.Store, l ledger.Ledger) *reservation.Broker {
	b.Helper()
	text := policyText
	for number := range accounts {
		text += fmt.Sprintf("  %s: {plan: pro}\n", account(number))
	}
	document, err := policyfile.Parse([]byte(text))
	if err != nil {
		b.Fatal(err)
	}
	policy, err := document.Policy(1)
	if err != nil {
		b.Fatal(err)
	}
	counter, err := estimator.New(estimator.Config{})
	if err != nil {
		b.Fatal(err)
	}
	broker := reservation.NewBroker(
		reservation.Parts{Store: engine, Ledger: l, Policies: fixedPolicy{policy}, Estimator: counter, Keys: oneKey{}},
		reservation.Config{Deadline: 10 * time.Second, LedgerDeadline: time.Minute},
	)
	b.Cleanup(func() { broker.Close(context.Background()) })
	return broker
}

// BenchmarkRefund measures Refunds through a Broker that are answered once
// PostgreSQL has them, against the same with a ledger that keeps nothing.
func BenchmarkRefund(b *testing.B) {
	engines := map[string]func(*testing.B) reservation.Store{
		"memory": func(b *testing.B) reservation.Store {
			engine, err := memstore.New(memstore.Config{})
			if err != nil {
				b.Fatal(err)
			}
			return engine
		},
		"redis": func(b *testing.B) reservation.Store {
			options, err := redisstore.Options(servers.SharedRedis(b).URL())
			if err != nil {
				b.Fatal(err)
			}
			options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = time.Minute, time.Minute, time.Minute, time.Minute
			engine, err := redisstore.Connect(options, redisstore.Config{Prefix: servers.Prefix(b)})
			if err != nil {
				b.Fatal(err)
			}
			return engine
		},
	}
	for _, name := range []string{"memory", "redis"} {
		for _, c := range []struct{ callers, each int }{{64, 40}, {2000, 4}} {
			b.Run(fmt.Sprintf("engine=%s/callers=%d", name, c.callers), func(b *testing.B) {
				open := func(l ledger.Ledger) *reservation.Broker {
					engine := engines[name](b)
					b.Cleanup(func() { engine.Close() })
					return newBroker(b, engine, l)
				}
				durable, bare := open(newBooks(b)), open(forgetful{})
				size := c.callers * c.each
				reserve := func(broker *reservation.Broker) []string {
					ids := make([]string, size)
					together(c.callers, size, func(i int) {
						ask := reservation.Ask{
							Account: account(i), Labels: map[string]string{"model": "gpt-4o", "route": fmt.Sprint("route-", i%7)},
							Amounts: quota.Amounts{quota.MeterTokens: 4000, quota.MeterCost: 40_000_000},
						}
						decision, err := broker.Reserve(b.Context(), ask)
						if err != nil || decision.Grant == nil {
							b.Errorf("Reserve: %+v, %v", decision, err)
							return
						}
						ids[i] = decision.Grant.Reservation
					})
					return ids
				}
				usage := reservation.Usage{Amounts: quota.Amounts{quota.MeterTokens: 1600, quota.MeterCost: 16_000_000}}
				refund := func(broker *reservation.Broker, ids []string) {
					together(c.callers, size, func(i int) {
						if _, err := broker.Refund(b.Context(), ids[i], usage); err != nil {
							b.Errorf("Refund: %v", err)
						}
					})
				}
				refund(durable, reserve(durable)) // makes the usage rows
				var kept, forgotten stopwatch
				for first := true; b.Loop(); first = !first {
					ids, others := reserve(durable), reserve(bare)
					if b.Failed() {
						return
					}
					if first {
						kept.run(size, func() { refund(durable, ids) })
					}
					forgotten.run(size, func() { refund(bare, others) })
					if !first {
						kept.run(size, func() { refund(durable, ids) })
					}
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(kept.rate(), "durable/s")
				b.ReportMetric(forgotten.rate(), "forgetful/s")
				b.ReportMetric(kept.rate()/forgotten.rate(), "of-forgetful")
			})
		}
	}
}

// together calls do for 0 to count-1 from so many goroutines.
func together(callers, count int, do func(int)) {
	var wait sync.WaitGroup
	for caller := range callers {
		wait.Go(func() {
			for i := caller; i < count; i += callers {
				do(i)
			}
		})
	}
	wait.Wait()
}
