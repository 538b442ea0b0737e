package rpc_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
)

// A call that waits for a slot is answered however short the server's patience is with
// others, over HTTP/1.1 and HTTP/2.
func TestHeldBeyondTheServersTimeouts(t *testing.T) {
	s := start(t, setup{patience: 300 * time.Millisecond})
	var held string
	for range 3 {
		held = s.ok(t, "demo", "Reserve", `{"labels":{"route":"slow"}}`).json["reservationId"].(string)
	}
	began := time.Now()
	refused := s.post(t, "demo", "Reserve", `{"labels":{"route":"slow"},"maxWait":"1s"}`)
	refused.want(t, http.StatusTooManyRequests, "resource_exhausted", "all 3 slots are taken")
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("it was refused after %s, want a second", waited)
	}
	if refused.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}

	http2 := &http.Client{Transport: &http.Transport{Protocols: &http.Protocols{}}}
	http2.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	calls := budgetv1connect.NewBudgetServiceClient(http2, s.url, connect.WithGRPC())
	time.AfterFunc(time.Second, func() { s.post(t, "demo", "Refund", `{"reservationId":"`+held+`","unused":true}`) })
	ask := connect.NewRequest(&budgetv1.ReserveRequest{Labels: map[string]string{"route": "slow"}, MaxWait: durationpb.New(time.Minute)})
	ask.Header().Set("Authorization", "Bearer "+s.keys["demo"])
	answer, err := calls.Reserve(context.Background(), ask)
	if err != nil || answer.Msg.ReservationId == "" {
		t.Fatalf("over HTTP/2: %v, want the slot that came free", err)
	}
	if waited := time.Since(began); waited < 2*time.Second {
		t.Errorf("both waits took %s, want two seconds", waited)
	}
}
