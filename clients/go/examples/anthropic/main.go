// Command anthropic asks Claude within a budget, for the account and with the
// labels of whoever asks.
//
//	budgetd serve --demo &
//	BUDGETD_URL=http://127.0.0.1:8080 BUDGETD_KEY=demo ANTHROPIC_API_KEY=... go run ./anthropic
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/examples/internal/explain"
	"github.com/budgetd/budgetd/clients/go/transport"
)

// userKey is where this program keeps its user in a context.
type userKey struct{}

func main() {
	client, err := budget.New(os.Getenv("BUDGETD_URL"), os.Getenv("BUDGETD_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	budgeted := transport.New(client,
		transport.WithCaller(func(r *http.Request) (transport.Caller, error) {
			user, _ := r.Context().Value(userKey{}).(string)
			return transport.Caller{Labels: map[string]string{"user": user}}, nil
		}),
		// Rather a shorter answer than none, where the budget has no more left.
		transport.WithGrantedOutput(200),
		transport.WithSettled(func(s transport.Settled) {
			fmt.Printf("charged %d tokens, gave back %d\n", s.Charged["tokens"], s.GivenBack["tokens"])
		}))
	sdk := anthropic.NewClient(option.WithHTTPClient(&http.Client{Transport: budgeted}))

	ctx := context.WithValue(context.Background(), userKey{}, "ada")
	answer, err := sdk.Messages.New(ctx, anthropic.MessageNewParams{
		Model:     "claude-sonnet-4-5",
		MaxTokens: 20_000, // more than the demo's bucket holds
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Say hello."))},
	})
	if err != nil {
		explain.Exit(err)
	}
	fmt.Println(answer.Content[0].Text)

	wait, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := budgeted.Wait(wait); err != nil {
		log.Fatal(err)
	}
}
