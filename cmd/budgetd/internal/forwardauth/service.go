package forwardauth

import (
	"io"
	"maps"
	"net/http"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/quota"
)

// Path is where gateways ask.
const Path = "/forward-auth"

// keyHeader has the credential where Authorization is the client's own.
const keyHeader = "X-Budget-Key"

// NewService returns the endpoint.
func NewService(gateway *rpc.Gateway) rpc.Service {
	s := service{gateway}
	return rpc.Service{Path: Path, Handler: gateway.Plain("ForwardAuth", credentials, s.serve)}
}

type service struct{ gateway *rpc.Gateway }

// credentials is the header that has the credential as the services expect it.
func credentials(header http.Header) http.Header {
	keys, ok := header[keyHeader]
	if !ok {
		return header
	}
	bearers := make([]string, len(keys))
	for i, key := range keys {
		bearers[i] = "Bearer " + key
	}
	return http.Header{"Authorization": bearers}
}

func (s service) serve(w http.ResponseWriter, r *http.Request) error {
	asked, err := read(r)
	if err != nil {
		return err
	}
	if len(asked.spend.Amounts) == 0 {
		asked.spend.Amounts[quota.MeterRequests] = 1
	}
	answer, err := s.gateway.Charge(r.Context(), asked.spend)
	if err != nil {
		return err
	}
	maps.Copy(w.Header(), answer.Header)
	if answer.Refusal == nil {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	status := asked.refused
	if answer.Forbidden {
		status = http.StatusForbidden
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, answer.Text+"\n") // the client may have gone; the decision stands
	return nil
}
