// Package budget is the Go client of budgetd: it puts a budget around each
// metered call.
//
//	client, err := budget.New("http://127.0.0.1:8080", "demo")
//	...
//	err = client.Do(ctx, budget.Request{
//		Account: "demo",
//		Labels:  map[string]string{"route": "chat"},
//		Amounts: map[string]int64{"tokens": 4000},
//	}, func(ctx context.Context, r *budget.Reservation) (budget.Usage, error) {
//		answer, err := callTheModel(ctx)
//		if err != nil {
//			return budget.Usage{}, err
//		}
//		return budget.Amounts(map[string]int64{"tokens": answer.TotalTokens}), nil
//	})
//
// [Client.Do] reserves before the function runs, renews the lease while it
// runs, and refunds on every way out of it: return, error, panic and a
// cancelled context. When a limit refuses, Do waits as long as the refusal says,
// with some jitter, up to a bound; see [WithMaxWait]. With [Request].MaxWait the broker
// books a start ahead instead, in the order in which callers ask.
//
// A call can be made in another one's reservation, its envelope: [Request].Parent. One
// that says what it used so far, by [Reservation.SetUsed], is told when to wind down and
// when to stop.
//
// When no broker answers, each call follows its [WhenDown]. A Refund that can't be
// delivered is kept and tried again in the background; [Client.Close] delivers
// what is kept before the process ends.
//
// A Client is safe for concurrent use.
package budget
