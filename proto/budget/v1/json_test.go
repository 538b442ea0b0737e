package budgetv1_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// What people type into curl must go on parsing to the same request.
func TestRequestJSONByHand(t *testing.T) {
	object := func(fields map[string]any) *structpb.Struct {
		t.Helper()
		s, err := structpb.NewStruct(fields)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, test := range []struct {
		name string
		json string
		want proto.Message
	}{
		{
			"reserve amounts",
			`{"account":"demo","labels":{"route":"chat"},"amounts":{"tokens":4000},"lease":"60s"}`,
			&budgetv1.ReserveRequest{
				Account: "demo",
				Labels:  map[string]string{"route": "chat"},
				Amounts: map[string]int64{"tokens": 4000},
				Lease:   durationpb.New(time.Minute),
			},
		},
		{
			"reserve with everything",
			`{"account":"demo","idempotencyKey":"k1","amounts":{"cost":"9007199254740991"},"lease":"0.5s","dryRun":true}`,
			&budgetv1.ReserveRequest{
				Account:        "demo",
				IdempotencyKey: "k1",
				Amounts:        map[string]int64{"cost": 1<<53 - 1},
				Lease:          durationpb.New(500 * time.Millisecond),
				DryRun:         true,
			},
		},
		{
			"reserve a prompt",
			`{"account":"demo","llm":{"model":"gpt-4o-mini","prompt":"Hello","maxOutputTokens":3000}}`,
			&budgetv1.ReserveRequest{
				Account: "demo",
				Llm: &budgetv1.LlmCall{
					Model:           "gpt-4o-mini",
					Prompt:          proto.String("Hello"),
					MaxOutputTokens: proto.Int64(3000),
				},
			},
		},
		{
			"reserve a chat",
			`{"llm":{"model":"gpt-4o","messages":[{"role":"user","content":"Hi","name":"ann"}],"maxOutputTokens":0,"n":2}}`,
			&budgetv1.ReserveRequest{
				Llm: &budgetv1.LlmCall{
					Model:           "gpt-4o",
					Messages:        []*budgetv1.LlmMessage{{Role: "user", Content: "Hi", Name: "ann"}},
					MaxOutputTokens: proto.Int64(0),
					N:               proto.Int32(2),
				},
			},
		},
		{
			"reserve a provider's request",
			`{"account":"demo","llm":{"providerRequest":{"model":"gpt-4o","max_tokens":5},"provider":"openai"}}`,
			&budgetv1.ReserveRequest{
				Account: "demo",
				Llm: &budgetv1.LlmCall{
					ProviderRequest: object(map[string]any{"model": "gpt-4o", "max_tokens": 5}),
					Provider:        "openai",
				},
			},
		},
		{
			"refund amounts",
			`{"reservationId":"r","usage":{"amounts":{"tokens":1600}}}`,
			&budgetv1.RefundRequest{
				ReservationId: "r",
				Usage:         &budgetv1.Usage{Amounts: map[string]int64{"tokens": 1600}},
			},
		},
		{
			"refund token classes, zeros stated",
			`{"reservationId":"r","usage":{"tokens":{"input":200,"cacheRead":800,"cacheWrite":0,"output":100,"reasoning":0}}}`,
			&budgetv1.RefundRequest{
				ReservationId: "r",
				Usage: &budgetv1.Usage{Tokens: &budgetv1.TokenClasses{
					Input:      proto.Int64(200),
					CacheRead:  proto.Int64(800),
					CacheWrite: proto.Int64(0),
					Output:     proto.Int64(100),
					Reasoning:  proto.Int64(0),
				}},
			},
		},
		{
			"refund a provider's usage",
			`{"reservationId":"r","usage":{"providerUsage":{"prompt_tokens":12},"provider":"openai"}}`,
			&budgetv1.RefundRequest{
				ReservationId: "r",
				Usage: &budgetv1.Usage{
					ProviderUsage: object(map[string]any{"prompt_tokens": 12}),
					Provider:      "openai",
				},
			},
		},
		{
			"refund unused",
			`{"reservationId":"r","unused":true}`,
			&budgetv1.RefundRequest{ReservationId: "r", Unused: true},
		},
		{
			"renew",
			`{"reservationId":"r","lease":"90s"}`,
			&budgetv1.RenewRequest{ReservationId: "r", Lease: durationpb.New(90 * time.Second)},
		},
		{
			"charge a known LLM call",
			`{"account":"demo","llm":{"model":"gpt-4o","provider":"openai","tokens":{"input":7}}}`,
			&budgetv1.ChargeRequest{
				Account: "demo",
				Llm: &budgetv1.KnownLlmCall{
					Model:    "gpt-4o",
					Provider: "openai",
					Tokens:   &budgetv1.TokenClasses{Input: proto.Int64(7)},
				},
			},
		},
		{
			"estimate counted tokens",
			`{"llm":{"model":"gpt-4o","inputTokens":7}}`,
			&budgetv1.EstimateRequest{Llm: &budgetv1.LlmCall{Model: "gpt-4o", InputTokens: proto.Int64(7)}},
		},
		{
			"quota",
			`{"account":"demo","labels":{"route":"slow"}}`,
			&budgetv1.GetQuotaRequest{Account: "demo", Labels: map[string]string{"route": "slow"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.want.ProtoReflect().New().Interface()
			if err := protojson.Unmarshal([]byte(test.json), got); err != nil {
				t.Fatalf("%s: %v", test.json, err)
			}
			if !proto.Equal(got, test.want) {
				t.Errorf("%s\nparsed to %v\n    want %v", test.json, got, test.want)
			}
		})
	}
}

// Scripts that read answers find these names, and 64-bit numbers as strings.
func TestResponseJSON(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 3, 1, 12, 0, 6, 0, time.UTC))
	for _, test := range []struct {
		name    string
		message proto.Message
		want    string
	}{
		{
			"grant",
			&budgetv1.ReserveResponse{
				ReservationId: "r",
				ExpiresAt:     at,
				State:         budgetv1.ReservationState_RESERVATION_STATE_HELD,
				Holds: []*budgetv1.Hold{{
					Limit: "tokens", Meter: "tokens", Amount: 4000, Remaining: proto.Int64(6000), ResetsAt: at,
				}},
			},
			`{"reservationId":"r","expiresAt":"2026-03-01T12:00:06Z","state":"RESERVATION_STATE_HELD",
			  "holds":[{"limit":"tokens","meter":"tokens","amount":"4000","remaining":"6000","resetsAt":"2026-03-01T12:00:06Z"}]}`,
		},
		{
			"nothing left is said, not left out",
			&budgetv1.Hold{Limit: "tokens", Meter: "tokens", Amount: 1, Remaining: proto.Int64(0)},
			`{"limit":"tokens","meter":"tokens","amount":"1","remaining":"0"}`,
		},
		{
			"outcome",
			&budgetv1.RefundResponse{
				Charged:   map[string]int64{"tokens": 1600},
				GivenBack: map[string]int64{"tokens": 2400},
				State:     budgetv1.ReservationState_RESERVATION_STATE_SETTLED,
			},
			`{"charged":{"tokens":"1600"},"givenBack":{"tokens":"2400"},"state":"RESERVATION_STATE_SETTLED"}`,
		},
		{
			"refusal",
			&budgetv1.Refusal{
				Reason: budgetv1.RefusalReason_REFUSAL_REASON_RATE_LIMITED,
				Limit:  "tokens", Meter: "tokens",
				Asked: 7000, Remaining: 6000, LimitAmount: 10000,
				RetryAt: at, Retryable: true,
			},
			`{"reason":"REFUSAL_REASON_RATE_LIMITED","limit":"tokens","meter":"tokens","asked":"7000",
			  "remaining":"6000","limitAmount":"10000","retryAt":"2026-03-01T12:00:06Z","retryable":true}`,
		},
		{
			"invalid field",
			&budgetv1.InvalidField{Field: "lease", Problem: "is zero", Bound: "1 ms to 24 h"},
			`{"field":"lease","problem":"is zero","bound":"1 ms to 24 h"}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			encoded, err := protojson.Marshal(test.message)
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(encoded, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("encoded as %s\n     want %s", encoded, test.want)
			}
		})
	}
}
