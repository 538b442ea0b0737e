// Command openai asks OpenAI within a budget. The SDK is as it is: only its HTTP
// client has a Transport.
//
//	budgetd serve --demo &
//	BUDGETD_URL=http://127.0.0.1:8080 BUDGETD_KEY=demo OPENAI_API_KEY=... go run ./openai
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/examples/internal/explain"
	"github.com/budgetd/budgetd/clients/go/transport"
)

func main() {
	client, err := budget.New(os.Getenv("BUDGETD_URL"), os.Getenv("BUDGETD_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	budgeted := transport.New(client, transport.WithLabels(map[string]string{"route": "chat"}),
		transport.WithSettled(func(s transport.Settled) {
			fmt.Printf("charged %d tokens, gave back %d\n", s.Charged["tokens"], s.GivenBack["tokens"])
		}))

	// The address and the key of the provider come from the environment.
	sdk := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: budgeted}))
	answer, err := sdk.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{
		Model:               openai.ChatModelGPT5_4Mini,
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say hello.")},
		MaxCompletionTokens: openai.Int(1000),
	})
	if err != nil {
		explain.Exit(err)
	}
	fmt.Println(answer.Choices[0].Message.Content)

	// The last Refund is on its way when a program ends right after its call.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := budgeted.Wait(ctx); err != nil {
		log.Fatal(err)
	}
}
