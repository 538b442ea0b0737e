package ratelimit

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
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

// requestID is the metadata that names a gateway's call: the same one again is
// the same call, tried again.
const requestID = "X-Request-Id"

// shouldRateLimit charges what was used already, gives back, looks at what is to be looked
// at, and then charges.
func (s *service) shouldRateLimit(ctx context.Context, request *connect.Request[rlsv3.RateLimitRequest]) (*connect.Response[rlsv3.RateLimitResponse], error) {
	descriptors, err := read(request.Msg, s.naming)
	if err != nil {
		return nil, err
	}
	key, err := requestKey(request.Msg, descriptors, request.Header().Get(requestID))
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	response := &rlsv3.RateLimitResponse{
		OverallCode: rlsv3.RateLimitResponse_OK,
		Statuses:    make([]*status, len(descriptors)),
	}
	for i := range response.Statuses {
		// What comes after a refusal is not decided.
		response.Statuses[i] = &status{Code: rlsv3.RateLimitResponse_UNKNOWN}
	}
	for _, one := range steps(descriptors, key) {
		ask := s.gateway.Charge
		if one.kind == giveBack {
			ask = s.gateway.Credit
		}
		answer, err := ask(ctx, one.spend)
		if err != nil {
			return nil, err
		}
		response.ResponseHeadersToAdd = headersOut(answer.Header)
		if answer.Refusal != nil {
			refused(response.Statuses, descriptors, &one, &answer)
			response.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
			break
		}
		granted(response.Statuses, descriptors, &one, &answer)
	}
	return connect.NewResponse(response), nil
}
