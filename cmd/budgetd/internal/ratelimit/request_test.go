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
	charged, looked := steps(descriptors), looks(descriptors)
	var covered []int
	for i, s := range slices.Concat(charged, looked) {
		if err := quota.ValidateLabels(s.labels); err != nil {
			t.Fatalf("%v", err)
		}
		if err := s.amounts.Validate(); err != nil || len(s.amounts) == 0 {
			t.Fatalf("amounts %v: %v", s.amounts, err)
		}
		for _, c := range s.covers {
			d := descriptors[c]
			amount := d.hits
			if i >= len(charged) {
				amount = 1
			}
			if (d.hits == 0) != (i >= len(charged)) || s.account != d.account || s.amounts[d.meter] != amount || amount < 1 {
				t.Fatalf("step %v does not answer descriptor %v", s, d)
			}
			for name, value := range d.labels {
				if s.labels[name] != value {
					t.Fatalf("step %v has another %s than descriptor %v", s, name, d)
				}
			}
			if d.override != nil && !slices.ContainsFunc(s.overrides, func(o quota.Applied) bool { return o.Scope == d.override.Scope }) {
				t.Fatalf("step %v lacks the limit of descriptor %v", s, d)
			}
		}
		covered = append(covered, s.covers...)
	}
	slices.Sort(covered)
	for i := range descriptors {
		if len(covered) != len(descriptors) || covered[i] != i {
			t.Fatalf("%d descriptors are covered by %v", len(descriptors), covered)
		}
	}
	if len(charged) > 1 && len(charged) != len(descriptors)-len(coveredBy(looked)) {
		t.Fatalf("neither one step nor one each: %v", charged)
	}
}

func coveredBy(steps []step) (covered []int) {
	for _, s := range steps {
		covered = append(covered, s.covers...)
	}
	return covered
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
					Key:   rapid.SampledFrom([]string{"user", "path", "meter", "account", "domain"}).Draw(t, "key"),
					Value: rapid.SampledFrom([]string{"tokens", "pages", "demo"}).Draw(t, "value"),
				})
			}
			if rapid.Bool().Draw(t, "own") {
				d.HitsAddend = wrapperspb.UInt64(rapid.Uint64Range(0, 2).Draw(t, "own hits"))
			}
			if rapid.IntRange(0, 3).Draw(t, "limit") == 0 {
				d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: 2}
			}
			request.Descriptors = append(request.Descriptors, d)
		}
		checkMapping(t, request, rapid.SampledFrom(Namings).Draw(t, "naming"))
	})
}
