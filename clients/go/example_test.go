package budget_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
)

// callTheModel stands for the metered call. It returns what was used, as the provider says.
func callTheModel(context.Context, string) (tokens int64, err error) { return 0, nil }

// A call within the budget of an account: 4,000 tokens are held while it runs, and what
// it did not use comes back.
func ExampleClient_Do() {
	client, err := budget.New("http://127.0.0.1:8080", "demo")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())

	request := budget.Request{Account: "demo", Labels: map[string]string{"route": "chat"}, Amounts: map[string]int64{"tokens": 4000}}
	err = client.Do(context.Background(), request, func(ctx context.Context, _ *budget.Reservation) (budget.Usage, error) {
		used, err := callTheModel(ctx, "Why is the sky blue?")
		if err != nil {
			return budget.Usage{}, err
		}
		return budget.Amounts(map[string]int64{"tokens": used}), nil
	})
	var refused *budget.RefusedError
	if errors.As(err, &refused) {
		log.Fatalf("limit %s: come back in %s", refused.Refusal.GetLimit(), refused.RetryAfter)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// An agent in an envelope: each of its calls takes from the 20,000 tokens of the task,
// and gives back there what it did not use. After each it asks how far it may go.
func ExampleClient_Renew() {
	client, err := budget.New("http://127.0.0.1:8080", "demo")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())

	task := budget.Request{Account: "demo", Amounts: map[string]int64{"tokens": 20_000}, Lease: 10 * time.Minute}
	err = client.Do(context.Background(), task, func(ctx context.Context, envelope *budget.Reservation) (budget.Usage, error) {
		prompt := "Do the next step."
		for {
			step := budget.Request{Account: "demo", Parent: envelope.ID, Amounts: map[string]int64{"tokens": 4000}}
			err := client.Do(ctx, step, func(ctx context.Context, _ *budget.Reservation) (budget.Usage, error) {
				used, err := callTheModel(ctx, prompt)
				if err != nil {
					return budget.Usage{}, err
				}
				return budget.Amounts(map[string]int64{"tokens": used}), nil
			})
			if err != nil || prompt == "Summarize." {
				return budget.Unused(), err // the steps are charged by themselves
			}
			// Nothing was used beside the steps: the usage is empty, and asks for the verdict.
			left, err := client.Renew(ctx, envelope.ID, 0, &budget.Usage{})
			if err != nil || left.Verdict == budget.Stop {
				return budget.Unused(), err
			}
			if left.Verdict == budget.WindDown {
				fmt.Printf("%d tokens left\n", left.Remaining["tokens"])
				prompt = "Summarize."
			}
		}
	})
	if err != nil {
		log.Fatal(err)
	}
}
