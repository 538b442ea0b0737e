// Command agent works on a task within an envelope: one reservation for all of its
// calls. It asks after each step how far it may go, comes to an end when little is
// left, and gives back what it did not use.
//
//	budgetd serve --demo &
//	BUDGETD_URL=http://127.0.0.1:8080 BUDGETD_KEY=demo OPENAI_API_KEY=... go run ./agent
package main

import (
	"context"
	"errors"
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
	// A settled call has given back to the envelope what it did not use.
	budgeted := transport.New(client, transport.WithSettleWait(5*time.Second))
	sdk := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: budgeted}))
	agent := &agent{client: client, sdk: sdk}

	// The budget of the whole task. The lease is kept alive while the agent works.
	task := budget.Request{Amounts: map[string]int64{"tokens": 4000}, Lease: 10 * time.Minute}
	err = client.Do(context.Background(), task, agent.work)
	var stopped *budget.StoppedError
	switch {
	case errors.As(err, &stopped):
		log.Fatal(stopped) // who closed the envelope, or used all of it, was another
	case err != nil:
		explain.Exit(err)
	}
}

type agent struct {
	client *budget.Client
	sdk    openai.Client
}

// work makes the steps of a task. Each call is charged by itself, so that the envelope
// has used nothing of its own, on every way out.
func (a *agent) work(ctx context.Context, envelope *budget.Reservation) (budget.Usage, error) {
	ctx = transport.ContextWithParent(ctx, envelope.ID)
	for step := 1; ; step++ {
		text, err := a.ask(ctx, fmt.Sprintf("Step %d of the task.", step))
		if err != nil {
			return budget.Unused(), err
		}
		fmt.Printf("step %d: %s\n", step, text)

		// Nothing was used beside the calls: the usage is empty and asks for the verdict.
		answer, err := a.client.Renew(ctx, envelope.ID, 0, &budget.Usage{})
		if err != nil {
			return budget.Unused(), err
		}
		left := answer.Remaining["tokens"]
		switch answer.Verdict {
		case budget.WindDown:
			text, err := a.ask(ctx, "Summarize.")
			if err == nil {
				fmt.Printf("wound down with %d tokens left: %s\n", left, text)
			}
			return budget.Unused(), err
		case budget.Stop:
			fmt.Println("stopped: nothing is left")
			return budget.Unused(), nil
		}
		fmt.Printf("%d tokens left\n", left)
	}
}

func (a *agent) ask(ctx context.Context, prompt string) (string, error) {
	answer, err := a.sdk.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model:               openai.ChatModelGPT5_4Mini,
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
		MaxCompletionTokens: openai.Int(400),
	})
	if err != nil {
		return "", err
	}
	return answer.Choices[0].Message.Content, nil
}
