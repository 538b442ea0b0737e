package gateways

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/budgetd/budgetd/test/broker"
)

// dial connects Google's gRPC client to a broker.
func dial(t testing.TB, b *broker.Broker) *grpc.ClientConn {
	t.Helper()
	address, err := url.Parse(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(address.Host, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// withKey is what initial_metadata in Envoy's grpc_service sends.
func withKey(key string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+key)
}

// Envoy's own messages over Google's gRPC get OK and OVER_LIMIT as configured:
// the demo's bucket has 10,000 tokens.
func TestOfficialClient(t *testing.T) {
	b := broker.Start(t, "--demo")
	client := ratelimitv3.NewRateLimitServiceClient(dial(t, b))
	ask := func(tokens uint64) *ratelimitv3.RateLimitResponse {
		t.Helper()
		ctx, cancel := context.WithTimeout(withKey("demo"), 10*time.Second)
		defer cancel()
		answer, err := client.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
			Domain: "demo",
			Descriptors: []*descriptorv3.RateLimitDescriptor{{
				Entries:    []*descriptorv3.RateLimitDescriptor_Entry{{Key: "meter", Value: "tokens"}, {Key: "path", Value: "/v1/chat"}},
				HitsAddend: wrapperspb.UInt64(tokens),
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	first := ask(9000)
	limit := first.GetStatuses()[0]
	if first.OverallCode != ratelimitv3.RateLimitResponse_OK || limit.Code != ratelimitv3.RateLimitResponse_OK ||
		limit.CurrentLimit.Name != "tokens" || limit.CurrentLimit.RequestsPerUnit != 10_000 || limit.CurrentLimit.Unit != ratelimitv3.RateLimitResponse_RateLimit_MINUTE ||
		limit.LimitRemaining != 1000 || limit.DurationUntilReset.AsDuration() < time.Second {
		t.Errorf("the first: %v", first)
	}
	second := ask(9500)
	headers := map[string]string{}
	for _, header := range second.ResponseHeadersToAdd {
		headers[strings.ToLower(header.Key)] = header.Value
	}
	if second.OverallCode != ratelimitv3.RateLimitResponse_OVER_LIMIT || second.Statuses[0].Code != ratelimitv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("the second: %v", second)
	}
	if headers["retry-after"] == "" || headers["budget-limited-by"] != "tokens" || !strings.HasPrefix(headers["ratelimit"], `"tokens";r=`) || headers["ratelimit-policy"] != `"tokens";q=10000;w=60` {
		t.Errorf("headers of the refusal: %v", headers)
	}
	_, err := client.ShouldRateLimit(withKey("nobody"), &ratelimitv3.RateLimitRequest{Domain: "demo"})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("another key: %v", err)
	}
}

// grpcurl, which knows the service by reflection, gets what is configured.
func TestGrpcurl(t *testing.T) {
	b := broker.Start(t, "--demo")
	address, binary := strings.TrimPrefix(b.URL, "http://"), grpcurl(t)
	run := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		var out, errors bytes.Buffer
		cmd := exec.CommandContext(ctx, binary, append([]string{"-plaintext"}, args...)...)
		cmd.Stdout, cmd.Stderr = &out, &errors
		if err := cmd.Run(); err != nil {
			t.Fatalf("grpcurl %s: %v\n%s", strings.Join(args, " "), err, errors.String())
		}
		return out.String()
	}
	if list := run(address, "list"); !strings.Contains(list, "envoy.service.ratelimit.v3.RateLimitService") {
		t.Errorf("the service is not listed:\n%s", list)
	}
	if health := run("-d", `{"service":"envoy.service.ratelimit.v3.RateLimitService"}`, address, "grpc.health.v1.Health/Check"); !strings.Contains(health, "SERVING") {
		t.Errorf("health: %s", health)
	}
	for _, test := range []struct{ hits, more, want string }{
		{"6000", "", "OK"}, {"6000", "", "OVER_LIMIT"}, {"3000", "", "OK"},
		{"5000", `,"is_negative_hits":true`, "OK"}, {"6000", "", "OK"},
	} {
		text := run("-H", "Authorization: Bearer demo", "-d",
			`{"domain":"demo","hits_addend":`+test.hits+`,"descriptors":[{"entries":[{"key":"meter","value":"tokens"}]`+test.more+`}]}`,
			address, "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
		var answer struct{ OverallCode string }
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s hits%s: %s", test.hits, test.more, answer.OverallCode)
		if answer.OverallCode != test.want {
			t.Errorf("%s hits: %s, want %s", test.hits, text, test.want)
		}
	}
}
