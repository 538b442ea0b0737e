package gateways

import (
	"os"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/budgetd/budgetd/test/broker"
)

// The example of deploy/envoy is a configuration that Envoy takes, every field
// known and valid, and what it sends to the broker is answered: domain, entries
// and credential are taken from the file.
func TestEnvoyExample(t *testing.T) {
	text, err := os.ReadFile(repository("deploy", "envoy", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	bootstrap := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(asJSON, bootstrap); err != nil {
		t.Fatal(err)
	}
	if err := bootstrap.ValidateAll(); err != nil {
		t.Fatal(err)
	}
	clusters := map[string]bool{}
	for _, cluster := range bootstrap.StaticResources.Clusters {
		clusters[cluster.Name] = true
	}
	manager, limit := &managerv3.HttpConnectionManager{}, &limitv3.RateLimit{}
	if err := bootstrap.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(manager); err != nil {
		t.Fatal(err)
	}
	if err := manager.HttpFilters[0].GetTypedConfig().UnmarshalTo(limit); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{manager.ValidateAll(), limit.ValidateAll()} {
		if err != nil {
			t.Error(err)
		}
	}
	service := limit.RateLimitService.GrpcService
	if !clusters[service.GetEnvoyGrpc().ClusterName] || !limit.FailureModeDeny {
		t.Errorf("the service is %v, of the clusters %v; failure_mode_deny %v", service, clusters, limit.FailureModeDeny)
	}
	header := service.InitialMetadata[0]
	if header.Key != "authorization" || header.Value != "Bearer bk_..." {
		t.Errorf("initial_metadata: %v", header)
	}

	// As Envoy would send it, for a key and an account of the demo.
	b := broker.Start(t, "--demo")
	route := manager.GetRouteConfig().VirtualHosts[0].Routes[0].GetRoute()
	entries := []*descriptorv3.RateLimitDescriptor_Entry{}
	for _, action := range route.RateLimits[0].Actions {
		switch {
		case action.GetGenericKey() != nil:
			entries = append(entries, &descriptorv3.RateLimitDescriptor_Entry{Key: action.GetGenericKey().DescriptorKey, Value: action.GetGenericKey().DescriptorValue})
		case action.GetRemoteAddress() != nil:
			entries = append(entries, &descriptorv3.RateLimitDescriptor_Entry{Key: "remote_address", Value: "203.0.113.7"})
		default:
			t.Fatalf("the test does not know the action %v", action)
		}
	}
	if limit.Domain != "shop" {
		t.Errorf("domain %q", limit.Domain)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), header.Key, strings.Replace(header.Value, "bk_...", "demo", 1))
	answer, err := ratelimitv3.NewRateLimitServiceClient(dial(t, b)).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: "demo", Descriptors: []*descriptorv3.RateLimitDescriptor{{Entries: entries}},
	})
	if err != nil || answer.OverallCode != ratelimitv3.RateLimitResponse_OK || answer.Statuses[0].CurrentLimit.GetName() != "requests" {
		t.Errorf("%v %v", answer, err)
	}
}
