package rpc_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func gzipped(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func setBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// Generated clients of all three protocols, in both encodings, compressed or
// not, get the same answers, details and headers.
func TestProtocols(t *testing.T) {
	for name, options := range map[string][]connect.ClientOption{
		"connect":          nil,
		"connect json":     {connect.WithProtoJSON()},
		"connect gzip":     {connect.WithSendGzip()},
		"connect get":      {connect.WithHTTPGet()},
		"grpc":             {connect.WithGRPC()},
		"grpc json":        {connect.WithGRPC(), connect.WithProtoJSON()},
		"grpc gzip":        {connect.WithGRPC(), connect.WithSendGzip()},
		"grpc-web":         {connect.WithGRPCWeb()},
		"grpc-web in gzip": {connect.WithGRPCWeb(), connect.WithSendGzip()},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, setup{config: rpc.Config{MaxRequestBytes: 256 << 10}})
			client := s.client("demo", options...)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			grant, err := client.Reserve(ctx, connect.NewRequest(&budgetv1.ReserveRequest{
				Amounts: map[string]int64{"tokens": 4000}, Lease: durationpb.New(time.Minute),
			}))
			if err != nil {
				t.Fatal(err)
			}
			if left := grant.Msg.Holds[0].GetRemaining(); left != 6000 {
				t.Errorf("%d left, want 6000", left)
			}
			if got := grant.Header().Get("RateLimit"); got != `"tokens";r=6000;t=24` {
				t.Errorf("RateLimit: %s", got)
			}

			_, err = client.Reserve(ctx, connect.NewRequest(&budgetv1.ReserveRequest{Amounts: map[string]int64{"tokens": 7000}}))
			refusal := refusalOf(t, err)
			if refusal.Reason != budgetv1.RefusalReason_REFUSAL_REASON_RATE_LIMITED || refusal.Remaining != 6000 || !refusal.Retryable ||
				!refusal.RetryAt.AsTime().Equal(s.Now().Add(6*time.Second)) {
				t.Errorf("refusal %v", refusal)
			}
			var coded *connect.Error
			if !errors.As(err, &coded) || coded.Meta().Get("Retry-After") != "6" || coded.Meta().Get("Budget-Limited-By") != "tokens" {
				t.Errorf("metadata %v", coded.Meta())
			}

			_, err = client.Refund(ctx, connect.NewRequest(&budgetv1.RefundRequest{ReservationId: grant.Msg.ReservationId}))
			if connect.CodeOf(err) != connect.CodeInvalidArgument || invalidField(t, err) != "usage" {
				t.Errorf("a Refund without usage: %v", err)
			}
			refund, err := client.Refund(ctx, connect.NewRequest(&budgetv1.RefundRequest{
				ReservationId: grant.Msg.ReservationId, Usage: &budgetv1.Usage{Amounts: map[string]int64{"tokens": 1600}},
			}))
			if err != nil {
				t.Fatal(err)
			}
			if refund.Msg.Charged["tokens"] != 1600 || refund.Msg.GivenBack["tokens"] != 2400 {
				t.Errorf("refund %v", refund.Msg)
			}
			view, err := client.GetQuota(ctx, connect.NewRequest(&budgetv1.GetQuotaRequest{Account: "demo"}))
			if err != nil {
				t.Fatal(err)
			}
			if limit := view.Msg.Limits[0]; limit.Remaining != 8400 || limit.Used != 1600 {
				t.Errorf("quota %v", limit)
			}

			big := &budgetv1.ReserveRequest{Labels: map[string]string{"user": strings.Repeat("x", 300<<10)}}
			_, err = client.Reserve(ctx, connect.NewRequest(big))
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "at most 262144 bytes") {
				t.Errorf("a request of 300 KiB: %v", err)
			}
		})
	}
}

func refusalOf(t testing.TB, err error) *budgetv1.Refusal {
	t.Helper()
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatalf("not refused: %v", err)
	}
	return detailOf[*budgetv1.Refusal](t, err)
}

func invalidField(t testing.TB, err error) string {
	t.Helper()
	return detailOf[*budgetv1.InvalidField](t, err).Field
}

func detailOf[D any](t testing.TB, err error) (found D) {
	t.Helper()
	var coded *connect.Error
	if !errors.As(err, &coded) {
		t.Fatalf("not an error of the API: %v", err)
	}
	for _, detail := range coded.Details() {
		value, err := detail.Value()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := value.(D); ok {
			return d
		}
	}
	t.Fatalf("no detail of type %T: %v", found, err)
	return found
}
