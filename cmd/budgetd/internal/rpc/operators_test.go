package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// An operator's calls and streams work in all three protocols: answers, details
// of errors, and whose key may come.
func TestAdminProtocols(t *testing.T) {
	for name, options := range map[string][]connect.ClientOption{
		"connect":      nil,
		"connect json": {connect.WithProtoJSON()},
		"grpc":         {connect.WithGRPC()},
		"grpc-web":     {connect.WithGRPCWeb()},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, setup{})
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			operator := s.adminClient("admin", options...)
			account, err := operator.GetAccount(ctx, connect.NewRequest(&budgetv1.GetAccountRequest{Name: "small"}))
			if err != nil || account.Msg.Account.Plan != "small" {
				t.Errorf("%v, %v", account, err)
			}
			_, err = operator.GetAccount(ctx, connect.NewRequest(&budgetv1.GetAccountRequest{Name: "nobody"}))
			if connect.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("an unknown account: %v", err)
			}
			_, err = operator.Adjust(ctx, connect.NewRequest(&budgetv1.AdjustRequest{Account: "small", Limit: "pages", Amount: 1, Reason: "r"}))
			if invalidField(t, err) != "idempotencyKey" {
				t.Errorf("no key: %v", err)
			}

			id := s.ok(t, "demo", "Reserve", `{"llm":{"model":"gpt-4o-mini","inputTokens":10,"maxOutputTokens":10}}`).text("reservationId")
			s.ok(t, "demo", "Refund", fmt.Sprintf(`{"reservationId":%q,"usage":{"tokens":{"input":10,"output":5}}}`, id))
			correction := &budgetv1.CorrectPricesRequest{
				Provider: "openai", Model: "gpt-4o-mini", Reason: "check",
				From: timestamppb.New(s.Now().Add(-time.Hour)), To: timestamppb.New(s.Now().Add(time.Hour)),
			}
			stream, err := operator.CorrectPrices(ctx, connect.NewRequest(correction))
			if err != nil {
				t.Fatal(err)
			}
			last := &budgetv1.CorrectPricesResponse{}
			for stream.Receive() {
				last = stream.Msg()
			}
			if err := stream.Err(); err != nil || !last.Done || last.Looked != 1 || last.Repriced != 0 || len(last.CorrectionId) != 32 {
				t.Errorf("a correction that changes nothing: %v, %v", last, err)
			}
			streamError := func(key string, request *budgetv1.CorrectPricesRequest) error {
				stream, err := s.adminClient(key, options...).CorrectPrices(ctx, connect.NewRequest(request))
				if err != nil {
					return err
				}
				for stream.Receive() {
					t.Errorf("key %s got an answer: %v", key, stream.Msg())
				}
				return stream.Err()
			}
			if err := streamError("demo", correction); connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("a caller's key: %v", err)
			}
			for field, change := range map[string]func(*budgetv1.CorrectPricesRequest){
				"model":   func(r *budgetv1.CorrectPricesRequest) { r.Model = "" },
				"reason":  func(r *budgetv1.CorrectPricesRequest) { r.Reason = "" },
				"from":    func(r *budgetv1.CorrectPricesRequest) { r.From = nil },
				"to":      func(r *budgetv1.CorrectPricesRequest) { r.To = nil },
				"account": func(r *budgetv1.CorrectPricesRequest) { r.Account = "a b" },
			} {
				faulty := &budgetv1.CorrectPricesRequest{Provider: "openai", Model: "gpt-4o-mini", Reason: "check", From: correction.From, To: correction.To}
				change(faulty)
				if err := streamError("admin", faulty); connect.CodeOf(err) != connect.CodeInvalidArgument || invalidField(t, err) != field {
					t.Errorf("a faulty %s: %v", field, err)
				}
			}
		})
	}
}

// A stream's request is read as strictly as any other.
func TestStreamsAreReadStrictly(t *testing.T) {
	s := start(t, setup{})
	for body, field := range map[string]string{
		`{"modl":"x"}`:                         `modl`,
		`{"from":"yesterday"}`:                 `such as \"2026-12-01T00:00:00Z\"`,
		`{"model":"m","to":"2026-01-01","a":}`: `not JSON`,
	} {
		envelope := append([]byte{0}, binary.BigEndian.AppendUint32(nil, uint32(len(body)))...)
		request, err := http.NewRequest(http.MethodPost, s.url+"/budget.v1.AdminService/CorrectPrices", bytes.NewReader(append(envelope, body...)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/connect+json")
		request.Header.Set("Authorization", "Bearer "+s.keys["admin"])
		response, err := s.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(text), "invalid_argument") || !strings.Contains(string(text), field) {
			t.Errorf("%s: %s, %v", body, text, err)
		}
	}
	for body, says := range map[string]string{
		`{"account":"small","from":"2026-01-01T00:00:00Z","grain":"WEEK"}`: "USAGE_GRAIN_HOUR, USAGE_GRAIN_DAY",
		`{"account":"small","from":"2026-01-01"}`:                          "2026-12-01T00:00:00Z",
	} {
		s.post(t, "admin", "ListUsage", body).want(t, http.StatusBadRequest, "invalid_argument", says)
	}
	s.post(t, "admin", "Admin/Adjust", `{"amount":1.5}`).want(t, http.StatusBadRequest, "invalid_argument", "-9007199254740991 to 9007199254740991")
}

// What an operator changed is in force on this node when the answer comes.
func TestOperatorsFindWhatTheyChanged(t *testing.T) {
	s := start(t, setup{})
	s.ok(t, "admin", "Admin/CreateAccount", `{"name":"new","plan":"small"}`)
	s.ok(t, "admin", "Admin/AddGrant", `{"account":"new","grant":{"name":"g","limit":"pages","amount":"100"}}`)
	s.ok(t, "admin", "Charge", `{"account":"new","amounts":{"pages":150}}`)
	s.ok(t, "admin", "Admin/RemoveGrant", `{"account":"new","name":"g"}`)
	s.post(t, "admin", "Charge", `{"account":"new","amounts":{"pages":1}}`).want(t, http.StatusTooManyRequests, "resource_exhausted", "-50 left of 100")
	s.ok(t, "admin", "Admin/Adjust", `{"account":"new","limit":"pages","amount":"-150","reason":"r","idempotencyKey":"k"}`)
	s.ok(t, "admin", "Admin/RemoveAccount", `{"name":"new"}`)
	s.post(t, "admin", "Charge", `{"account":"new","amounts":{"pages":1}}`).want(t, http.StatusNotFound, "not_found", "unknown")
}
