// Command streaming stops a streamed answer in the middle: what was seen of it is
// charged, and the rest comes back at once.
//
//	budgetd serve --demo &
//	BUDGETD_URL=http://127.0.0.1:8080 BUDGETD_KEY=demo OPENAI_API_KEY=... go run ./streaming
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
	budgeted := transport.New(client, transport.WithSettled(func(s transport.Settled) {
		fmt.Printf("charged %d tokens, gave back %d\n", s.Charged["tokens"], s.GivenBack["tokens"])
	}))
	sdk := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: budgeted}))

	stream := sdk.Chat.Completions.NewStreaming(context.Background(), openai.ChatCompletionNewParams{
		Model:               openai.ChatModelGPT5_4Mini,
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Count to a thousand.")},
		MaxCompletionTokens: openai.Int(4000),
	})
	for pieces := 0; pieces < 3 && stream.Next(); {
		if choices := stream.Current().Choices; len(choices) > 0 && choices[0].Delta.Content != "" {
			fmt.Print(choices[0].Delta.Content)
			pieces++
		}
	}
	if err := stream.Err(); err != nil {
		explain.Exit(err)
	}
	fmt.Println(" ...")
	if err := stream.Close(); err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := budgeted.Wait(ctx); err != nil {
		log.Fatal(err)
	}
}
