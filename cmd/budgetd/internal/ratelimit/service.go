package ratelimit

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/reservation"
)

// Name is the service's name.
const Name = "envoy.service.ratelimit.v3.RateLimitService"

// Procedure is where its only call is.
const Procedure = "/" + Name + "/ShouldRateLimit"

type service struct {
	gateway *rpc.Gateway
	naming  Naming
}

// NewService returns the service. Connect, gRPC and gRPC-Web are served alike;
// gateways speak gRPC.
func NewService(gateway *rpc.Gateway, naming Naming) (rpc.Service, error) {
	if !slices.Contains(Namings, naming) {
		return rpc.Service{}, fmt.Errorf("the account can't be named by %q; use one of %v", naming, Namings)
	}
	s := &service{gateway: gateway, naming: naming}
	options := slices.Concat(gateway.Options(), []connect.HandlerOption{
		connect.WithSchema(rlsv3.File_envoy_service_ratelimit_v3_rls_proto.Services().ByName("RateLimitService").Methods().ByName("ShouldRateLimit")),
	})
	handler := connect.NewUnaryHandler(Procedure, s.shouldRateLimit, options...)
	return rpc.Service{Name: Name, Path: Procedure, Handler: gateway.Bound(handler)}, nil
}

// shouldRateLimit looks at what is to be looked at, and then charges.
func (s *service) shouldRateLimit(ctx context.Context, request *connect.Request[rlsv3.RateLimitRequest]) (*connect.Response[rlsv3.RateLimitResponse], error) {
	descriptors, err := read(request.Msg, s.naming)
	if err != nil {
		return nil, err
	}
	response := &rlsv3.RateLimitResponse{
		OverallCode: rlsv3.RateLimitResponse_OK,
		Statuses:    make([]*status, len(descriptors)),
	}
	for i := range response.Statuses {
		// What comes after a refusal is not decided.
		response.Statuses[i] = &status{Code: rlsv3.RateLimitResponse_UNKNOWN}
	}
	take := func(steps []step, look bool) error {
		for i := range steps {
			if response.OverallCode != rlsv3.RateLimitResponse_OK {
				return nil
			}
			one := &steps[i]
			answer, err := s.gateway.Charge(ctx, reservation.Spend{
				Account: one.account, Labels: one.labels, Amounts: one.amounts, Extra: one.overrides, DryRun: look,
			})
			if err != nil {
				return err
			}
			response.ResponseHeadersToAdd = headersOut(answer.Header)
			if answer.Refusal == nil {
				granted(response.Statuses, descriptors, one, &answer)
				continue
			}
			refused(response.Statuses, descriptors, one, &answer)
			response.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		return nil
	}
	if err := take(looks(descriptors), true); err != nil {
		return nil, err
	}
	if err := take(steps(descriptors), false); err != nil {
		return nil, err
	}
	return connect.NewResponse(response), nil
}
