package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Gateway is what the protocols of gateways, which have rooms of their own,
// share with the BudgetService: who is let in, how many calls may be under way,
// whose account it is, what an error is called and which headers tell of a
// limit.
type Gateway struct {
	calls       *service
	options     []connect.HandlerOption
	errorWriter *connect.ErrorWriter
	most        int // bytes of a request
	traffic     *traffic
	metrics     *metrics
	letIn       connect.RequestGateFunc
}

// Options are the options of a Connect handler that is let in, bounded, counted
// and timed as the BudgetService is.
func (g *Gateway) Options() []connect.HandlerOption { return g.options }

// Bound bounds what the requests to a handler with [Gateway.Options] may weigh.
func (g *Gateway) Bound(next http.Handler) http.Handler {
	return boundBody(g.most, g.errorWriter, next)
}

// Answer is a decision with what tells a caller of it.
type Answer struct {
	reservation.Decision
	// Header has the headers that this package's comment lists.
	Header http.Header
	// Text explains a refusal; "" for a grant.
	Text string
	// Forbidden: refused by a quota that is used up, where the broker is set to
	// answer that with 403 (quota_exhausted_status).
	Forbidden bool
}

// Charge charges what the caller of ctx, as the gate let it in, spends. An
// account that is "" is the caller's only one. The error is a *connect.Error
// that says what to do.
func (g *Gateway) Charge(ctx context.Context, spend reservation.Spend) (Answer, error) {
	s := g.calls
	account, err := s.account(ctx, spend.Account)
	if err != nil {
		return Answer{}, s.asConnect(ctx, err, inCharge)
	}
	if err := keyIn(spend.Key); err != nil {
		return Answer{}, err
	}
	spend.Account, spend.APIKey = account, apiKey(ctx)
	decision, err := s.broker.Charge(ctx, spend)
	if err != nil {
		return Answer{}, s.forAccount(ctx, account, err, inCharge)
	}
	answer := Answer{Decision: decision, Header: http.Header{}}
	if decision.Refusal != nil {
		refused := s.refused(account, decision.Refusal)
		answer.Header, answer.Text = refused.Meta(), refused.Message()
		answer.Forbidden = refused.Code() == connect.CodePermissionDenied
		return answer, nil
	}
	if limit, ok := Tightest(decision.Grant, anyHold); ok {
		limit.set(answer.Header)
	}
	return answer, nil
}

// Credit gives back what the caller of ctx had charged. The answer is a grant with
// the buckets that took something, and the header Budget-Given-Back says how much
// of each meter came back. The error is as of Charge.
func (g *Gateway) Credit(ctx context.Context, spend reservation.Spend) (Answer, error) {
	s := g.calls
	account, err := s.account(ctx, spend.Account)
	if err != nil {
		return Answer{}, s.asConnect(ctx, err, inCharge)
	}
	spend.Account, spend.APIKey = account, apiKey(ctx)
	credited, err := s.broker.Credit(ctx, spend)
	if err != nil {
		return Answer{}, s.forAccount(ctx, account, err, inCharge)
	}
	answer := Answer{Header: http.Header{}}
	answer.Grant = &reservation.Grant{State: reservation.StateSettled, Replayed: credited.Replayed, Holds: credited.Buckets, Now: credited.Now}
	if limit, ok := Tightest(answer.Grant, anyHold); ok {
		limit.set(answer.Header)
	}
	if !credited.Replayed {
		var meters []string
		for _, meter := range slices.Sorted(maps.Keys(credited.Given)) {
			meters = append(meters, fmt.Sprintf("%s=%d", meter, credited.Given[meter]))
		}
		answer.Header.Set("Budget-Given-Back", strings.Join(meters, ", "))
	}
	return answer, nil
}

// Invalid makes an invalid_argument error for a field of a request. bound is
// what would be accepted; it may be empty.
func Invalid(field, problem, bound string) *connect.Error {
	return invalid(&budgetv1.InvalidField{Field: field, Problem: problem, Bound: bound})
}

// LabelValue is the value of a label that a gateway names, or "sha256:" and its
// hash in hex where no label may have it: what a client can put into a header must
// not make a gateway's call fail, since gateways may let failures pass. A credential
// is hashed too, by the label's name or by its form: it still tells clients apart,
// and opens nothing where labels are kept and shown.
func LabelValue(name, value string) string {
	if value == "" || quota.ValidateLabels(map[string]string{"value": value}) == nil && !CarriesCredential(name) && !looksLikeCredential(value) {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return "sha256:" + hex.EncodeToString(sum[:])
}
