package ops

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
)

// maxProbeBytes bounds a request to the health and reflection services, whose
// requests hold a name.
const maxProbeBytes = 64 << 10

// HandleGRPC adds the health and reflection services of gRPC for the services
// named, which need no key: probes and grpcurl have none.
func HandleGRPC(mux *http.ServeMux, readiness *Readiness, services ...string) {
	options := []connect.HandlerOption{connect.WithReadMaxBytes(maxProbeBytes)}
	mux.Handle(grpchealth.NewHandler(checker{readiness, services}, options...))
	named := append(slices.Clone(services), grpchealth.HealthV1ServiceName)
	reflector := grpcreflect.NewStaticReflector(named...)
	mux.Handle(grpcreflect.NewHandlerV1(reflector, options...))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector, options...))
}

// checker answers grpc.health.v1.
type checker struct {
	readiness *Readiness
	services  []string
}

func (c checker) Check(ctx context.Context, request *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if request.Service != "" && !slices.Contains(c.services, request.Service) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no service %.64q here", request.Service))
	}
	if c.readiness.Ready(ctx) != nil {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}
