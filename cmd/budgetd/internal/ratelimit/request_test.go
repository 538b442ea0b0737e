package ratelimit

import (
	"errors"
	"slices"
	"testing"

	"connectrpc.com/connect"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// checkMapping checks what holds of every request: it is refused with the name
// of a field, or each descriptor is in one step, which says what the descriptor
// says, and all that is asked for is within the broker's bounds.
func checkMapping(t interface{ Fatalf(string, ...any) }, request *rlsv3.RateLimitRequest, naming Naming) {
	descriptors, err := read(request, naming)
	if err != nil {
		var coded *connect.Error
		if !errors.As(err, &coded) || coded.Code() != connect.CodeInvalidArgument || len(coded.Details()) != 1 {
			t.Fatalf("%v is not the error of a field", err)
		}
		return
	}
	var covered []int
	for _, one := range steps(descriptors, "key") {
		spend := &one.spend
		if spend.Used != (one.kind == useUp) || spend.DryRun != (one.kind == look) || (spend.Key == "") != (one.kind == look) {
			t.Fatalf("%+v is no step of kind %d", spend, one.kind)
		}
		if len(spend.Views) > 0 && len(spend.Views) != len(one.covers) {
			t.Fatalf("%d views of %d descriptors", len(spend.Views), len(one.covers))
		}
		if err := quota.ValidateLabels(spend.Labels); err != nil {
			t.Fatalf("%v", err)
		}
		for j, c := range one.covers {
			d := descriptors[c]
			view := reservation.View{Labels: spend.Labels, Amounts: spend.Amounts, Extra: spend.Extra}
			if len(spend.Views) > 0 {
				view = spend.Views[j]
			}
			if d.kind != one.kind || spend.Account != d.account || view.Amounts[d.meter] != d.hits || d.hits < 1 || spend.Amounts[d.meter] < d.hits {
				t.Fatalf("step %+v does not answer descriptor %+v", spend, d)
			}
			if err := view.Amounts.Validate(); err != nil {
				t.Fatalf("amounts %v: %v", view.Amounts, err)
			}
			for name, value := range d.labels {
				if view.Labels[name] != value {
					t.Fatalf("step %+v has another %s than descriptor %+v", spend, name, d)
				}
			}
			if d.override != nil && !slices.ContainsFunc(view.Extra, func(o quota.Applied) bool { return o.Scope == d.override.Scope }) {
				t.Fatalf("step %+v lacks the limit of descriptor %+v", spend, d)
			}
		}
		covered = append(covered, one.covers...)
	}
	slices.Sort(covered)
	for i := range descriptors {
		if len(covered) != len(descriptors) || covered[i] != i {
			t.Fatalf("%d descriptors are covered by %v", len(descriptors), covered)
		}
	}
}

func FuzzMapping(f *testing.F) {
	seed := &rlsv3.RateLimitRequest{Domain: "demo", HitsAddend: 2, Descriptors: []*ratelimitv3.RateLimitDescriptor{
		{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "path", Value: "/"}, {Key: "meter", Value: "tokens"}}},
		{
			Entries:    []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "account", Value: "demo"}, {Key: "user", Value: "7"}},
			HitsAddend: wrapperspb.UInt64(0),
			Limit:      &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: 2},
		},
	}}
	wire, err := proto.Marshal(seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, wire []byte) {
		request := &rlsv3.RateLimitRequest{}
		if proto.Unmarshal(wire, request) != nil {
			return
		}
		for _, naming := range Namings {
			checkMapping(t, request, naming)
		}
	})
}

// Requests that are mostly in order, of names and values that meet often.
func TestMapping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		request := &rlsv3.RateLimitRequest{Domain: rapid.SampledFrom([]string{"demo", "other"}).Draw(t, "domain"), HitsAddend: rapid.Uint32Range(0, 2).Draw(t, "hits")}
		for range rapid.IntRange(1, 4).Draw(t, "descriptors") {
			d := &ratelimitv3.RateLimitDescriptor{}
			for range rapid.IntRange(0, 3).Draw(t, "entries") {
				d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{
					Key:   rapid.SampledFrom([]string{"user", "path", "meter", "account", "domain", "already_used", "idempotency_key"}).Draw(t, "key"),
					Value: rapid.SampledFrom([]string{"tokens", "pages", "demo", "true"}).Draw(t, "value"),
				})
			}
			if rapid.Bool().Draw(t, "own") {
				d.HitsAddend = wrapperspb.UInt64(rapid.Uint64Range(0, 2).Draw(t, "own hits"))
			}
			d.IsNegativeHits = rapid.IntRange(0, 3).Draw(t, "negative") == 0
			if rapid.IntRange(0, 3).Draw(t, "limit") == 0 {
				d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: 2}
			}
			request.Descriptors = append(request.Descriptors, d)
		}
		checkMapping(t, request, rapid.SampledFrom(Namings).Draw(t, "naming"))
	})
}
