package gateways

import (
	"encoding/json"
	"os"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// What the manifests for Istio and Envoy Gateway have Envoy do is valid for
// Envoy, down to each field. Where it goes is theirs to know.
func TestManifests(t *testing.T) {
	for file, want := range map[string]parts{
		"istio.yaml":         {filters: 1, actions: 2},
		"envoy-gateway.yaml": {filters: 1, actions: 2, clusters: 1},
	} {
		text, err := os.ReadFile(repository("deploy", "envoy", file))
		if err != nil {
			t.Fatal(err)
		}
		var manifest any
		if err := yaml.Unmarshal(text, &manifest); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found := parts{}
		found.look(t, manifest)
		if found != want {
			t.Errorf("%s: found %+v, want %+v", file, found, want)
		}
	}
}

// parts counts what of Envoy's is in a manifest.
type parts struct{ filters, actions, clusters int }

func (p *parts) look(t *testing.T, node any) {
	t.Helper()
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			p.look(t, child)
		}
	case map[string]any:
		switch {
		case node["typed_config"] != nil:
			parsed(t, node["typed_config"], &anypb.Any{})
			p.filters++
		case node["actions"] != nil:
			limit := &routev3.RateLimit{}
			parsed(t, node, limit)
			if err := limit.ValidateAll(); err != nil {
				t.Error(err)
			}
			p.actions++
			return
		case node["load_assignment"] != nil:
			cluster := &clusterv3.Cluster{}
			parsed(t, node, cluster)
			if err := cluster.ValidateAll(); err != nil {
				t.Error(err)
			}
			p.clusters++
			return
		}
		for _, child := range node {
			p.look(t, child)
		}
	}
}

// parsed reads a part as Envoy does: no field may be unknown.
func parsed(t *testing.T, node any, into proto.Message) {
	t.Helper()
	text, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(text, into); err != nil {
		t.Error(err)
	}
}
