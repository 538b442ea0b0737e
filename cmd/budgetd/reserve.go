package main

import (
	"fmt"
	"os"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// call is what reserve and estimate say of a model call.
type call struct {
	model     string
	provider  string
	prompt    string
	body      string
	input     int64
	maxOutput int64
}

func (m *call) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.model, "model", "", "the model of an LLM call, such as gpt-4o-mini")
	cmd.Flags().StringVar(&m.provider, "provider", "", "its provider, when the name alone is not clear")
	cmd.Flags().StringVar(&m.prompt, "prompt-file", "", "`file` with the prompt, - for standard input; it is counted and dropped")
	cmd.Flags().StringVar(&m.body, "request-file", "", "`file` with the JSON body of the provider's own request, - for standard input; it is counted and dropped, and needs --provider")
	cmd.Flags().Int64Var(&m.input, "input-tokens", 0, "the prompt's tokens, when you counted them")
	cmd.Flags().Int64Var(&m.maxOutput, "max-output-tokens", 0, "the most that the model may generate; its own maximum if not given")
}

func (m *call) message(cmd *cobra.Command) (*budgetv1.LlmCall, error) {
	given := cmd.Flags().Changed
	if m.model == "" && !given("request-file") {
		for _, flag := range []string{"provider", "prompt-file", "input-tokens", "max-output-tokens"} {
			if given(flag) {
				return nil, usagef(cmd, "--%s needs --model", flag)
			}
		}
		return nil, nil
	}
	message := &budgetv1.LlmCall{Model: m.model, Provider: m.provider}
	ways := 0
	for _, flag := range []string{"prompt-file", "request-file", "input-tokens"} {
		if given(flag) {
			ways++
		}
	}
	switch {
	case ways == 2 && given("request-file") && given("input-tokens"): // the caller's count of that body
	case ways != 1:
		return nil, usagef(cmd, "--model needs one of --prompt-file, --request-file and --input-tokens")
	}
	if given("request-file") && m.provider == "" {
		return nil, usagef(cmd, "--request-file needs --provider, whose request it is")
	}
	if given("prompt-file") {
		prompt, err := readInput(cmd, "prompt-file", m.prompt)
		if err != nil {
			return nil, err
		}
		message.Prompt = &prompt
	}
	if given("request-file") {
		body, err := readInput(cmd, "request-file", m.body)
		if err != nil {
			return nil, err
		}
		message.ProviderRequest = &structpb.Struct{}
		if err := protojson.Unmarshal([]byte(body), message.ProviderRequest); err != nil {
			return nil, fmt.Errorf("--request-file: is not one JSON object")
		}
	}
	if given("input-tokens") {
		message.InputTokens = &m.input
	}
	if given("max-output-tokens") {
		message.MaxOutputTokens = &m.maxOutput
	}
	return message, nil
}

func newReserveCommand(s streams) *cobra.Command {
	var (
		to      connection
		llm     call
		account string
		labels  []string
		amounts []string
		key     string
		lease   time.Duration
		maxWait time.Duration
		dryRun  bool
		parent  string
		rank    string
	)
	cmd := &cobra.Command{
		Use:   "reserve",
		Short: "Reserve amounts before a call",
		Long: `Asks the broker for what a call may use: amounts per meter, or a model call that
the broker estimates. Prints the reservation, whose id refund takes; on a
refusal which limit, what is left and when to come back.`,
		Example: `  budgetd reserve --account demo --amount tokens=4000 --label route=chat
  budgetd reserve --account demo --amount cost='$0.25' --lease 5m
  budgetd reserve --account demo --model gpt-4o-mini --prompt-file prompt.txt --max-output-tokens 3000`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			request := &budgetv1.ReserveRequest{Account: account, IdempotencyKey: key, DryRun: dryRun, Parent: parent, Priority: rank}
			var err error
			if request.Labels, err = parseLabels(cmd, labels); err != nil {
				return err
			}
			if request.Amounts, err = parseAmounts(cmd, "amount", amounts); err != nil {
				return err
			}
			if request.Llm, err = llm.message(cmd); err != nil {
				return err
			}
			if cmd.Flags().Changed("lease") {
				request.Lease = durationpb.New(lease)
			}
			if cmd.Flags().Changed("max-wait") {
				request.MaxWait = durationpb.New(maxWait)
			}
			client, err := to.open(cmd)
			if err != nil {
				return err
			}
			answer, err := client.Service().Reserve(cmd.Context(), connect.NewRequest(request))
			if err != nil {
				return to.explain(&renamed{budget.AsRefusal(err), "idempotencyKey", "--idempotency-key"})
			}
			for _, meter := range answer.Msg.UnlimitedMeters {
				fmt.Fprintf(s.err, "budgetd: note: no limit that this call meets counts %q\n", meter)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			showReservation(s, answer.Msg)
			return nil
		},
	}
	to.addFlags(cmd)
	llm.addFlags(cmd)
	cmd.Flags().StringVar(&account, "account", "", "who is billed; may be left out when the key has one account")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "a label of the call, `name=value`; repeat for more")
	cmd.Flags().StringArrayVar(&amounts, "amount", nil, "what the call may use, `meter=amount`; repeat for more")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "makes a repeat of this very call harmless")
	cmd.Flags().DurationVar(&lease, "lease", budget.DefaultLease, "how long it lives without a renew, 1ms to 24h")
	cmd.Flags().StringVar(&parent, "parent", "", "the `id` of the reservation that is its envelope: it takes from that one, and gives back to it")
	cmd.Flags().DurationVar(&maxWait, "max-wait", 0, "how long the call may wait for its start, to 1h; the answer says when that is")
	cmd.Flags().StringVar(&rank, "priority", "", "batch, default, interactive or critical: how much of limits with keep_for it may use")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what the answer would be and take nothing")
	return cmd
}

func showReservation(s streams, m *budgetv1.ReserveResponse) {
	if m.ReservationId != "" {
		fmt.Fprintf(s.out, "reservation  %s\n", m.ReservationId)
		fmt.Fprintf(s.out, "expires      %s (in %s)\n", showInstant(m.ExpiresAt), time.Until(m.ExpiresAt.AsTime()).Round(time.Second))
	} else {
		fmt.Fprintln(s.out, "would be granted (dry run, nothing is taken)")
	}
	if m.StartAt != nil {
		fmt.Fprintf(s.out, "starts       %s (in %s): not before\n", showInstant(m.StartAt), m.StartsIn.AsDuration().Round(time.Millisecond))
	}
	if m.Degraded {
		fmt.Fprintln(s.err, "degraded: the broker's store did not answer; the limits' own rules let the call through")
	}
	showHolds(s, m.Holds)
	showShadowRefusals(s, m.ShadowRefusals)
}

func showHolds(s streams, holds []*budgetv1.Hold) {
	if len(holds) == 0 {
		return
	}
	t := newTable(s.out, "LIMIT", "SCOPE", "METER", "HELD", "LEFT")
	for _, h := range holds {
		left := "-"
		if h.Remaining != nil {
			left = showAmount(h.Meter, *h.Remaining)
		}
		t.AppendRow([]any{h.Limit, h.Scope, h.Meter, showAmount(h.Meter, h.Amount), left})
	}
	t.Render()
}

// showShadowRefusals names the shadow limits that would have refused.
func showShadowRefusals(s streams, refusals []*budgetv1.Refusal) {
	for _, r := range refusals {
		fmt.Fprintf(s.out, "shadow       limit %s would have refused: asked %s of %s\n", r.Limit, showAmount(r.Meter, r.Asked), showAmount(r.Meter, r.LimitAmount))
	}
}

// readInput reads the file that a flag names, or standard input for -.
func readInput(cmd *cobra.Command, flag, path string) (string, error) {
	if path == "-" {
		return readAll(cmd.InOrStdin(), "standard input")
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	defer file.Close()
	return readAll(file, path)
}
