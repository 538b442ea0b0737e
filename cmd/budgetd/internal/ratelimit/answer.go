package ratelimit

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

type status = rlsv3.RateLimitResponse_DescriptorStatus

func statusOf(l rpc.ShownLimit, code rlsv3.RateLimitResponse_Code) *status {
	s := &status{Code: code, LimitRemaining: uint32Of(l.Remaining)}
	s.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{Name: l.Name, RequestsPerUnit: uint32Of(l.Max)}
	s.CurrentLimit.Unit, s.CurrentLimit.UnitMultiplier = unitOf(l.Window)
	if !l.ResetsAt.IsZero() {
		s.DurationUntilReset = durationpb.New(max(l.ResetsAt.Sub(l.Now), 0))
	}
	return s
}

// uint32Of cuts an amount to what the protocol's counts hold.
func uint32Of(amount quota.Amount) uint32 {
	return uint32(min(max(amount, 0), math.MaxUint32))
}

// unitOf writes a span, which is of whole seconds, in the largest unit that
// divides it. No span has no unit.
func unitOf(window time.Duration) (rlsv3.RateLimitResponse_RateLimit_Unit, *wrapperspb.UInt32Value) {
	for _, candidate := range []struct {
		unit   rlsv3.RateLimitResponse_RateLimit_Unit
		length time.Duration
	}{
		{rlsv3.RateLimitResponse_RateLimit_DAY, 24 * time.Hour},
		{rlsv3.RateLimitResponse_RateLimit_HOUR, time.Hour},
		{rlsv3.RateLimitResponse_RateLimit_MINUTE, time.Minute},
		{rlsv3.RateLimitResponse_RateLimit_SECOND, time.Second},
	} {
		if times := window / candidate.length; times > 0 && window%candidate.length == 0 && times <= math.MaxUint32 {
			return candidate.unit, wrapperspb.UInt32(uint32(times))
		}
	}
	return rlsv3.RateLimitResponse_RateLimit_UNKNOWN, nil
}

// granted tells the descriptors of a step what is left.
func granted(statuses []*status, descriptors []descriptor, s *step, answer *rpc.Answer) {
	for j, i := range s.covers {
		limit, ok := rpc.Tightest(answer.Grant, func(hold *reservation.HeldLimit) bool {
			return hold.Meter == descriptors[i].meter && s.meets(hold.Views, j)
		})
		if !ok {
			statuses[i] = &status{Code: rlsv3.RateLimitResponse_OK}
			continue
		}
		statuses[i] = statusOf(limit, rlsv3.RateLimitResponse_OK)
	}
}

// meets says whether the step's descriptor j meets a counter that these views
// meet: where the step has no views, each does.
func (s *step) meets(views reservation.ViewSet, j int) bool {
	return len(s.spend.Views) == 0 || views.Has(j)
}

// refused blames those descriptors of a step that meet the limit and whose meter
// it counts, or all that meet it when it counts none of theirs: a limit on
// requests refuses a call that states tokens only.
func refused(statuses []*status, descriptors []descriptor, s *step, answer *rpc.Answer) {
	refusal := answer.Refusal
	limit := rpc.ShownRefusal(refusal)
	var meets, counts []int
	for j, i := range s.covers {
		if s.meets(refusal.Views, j) {
			meets = append(meets, i)
			if descriptors[i].meter == refusal.Meter {
				counts = append(counts, i)
			}
		}
	}
	if len(counts) == 0 {
		counts = meets
	}
	for _, i := range counts {
		statuses[i] = statusOf(limit, rlsv3.RateLimitResponse_OVER_LIMIT)
	}
}

// headersOut lists headers in order of their names.
func headersOut(header http.Header) []*corev3.HeaderValue {
	var out []*corev3.HeaderValue
	for name, values := range header {
		for _, value := range values {
			out = append(out, &corev3.HeaderValue{Key: name, Value: value})
		}
	}
	slices.SortStableFunc(out, func(a, b *corev3.HeaderValue) int {
		return strings.Compare(a.Key, b.Key)
	})
	return out
}
