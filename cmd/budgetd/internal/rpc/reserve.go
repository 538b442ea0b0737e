package rpc

import (
	"context"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/budgetd/budgetd/estimator"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Reserve implements budgetv1connect.BudgetServiceHandler.
func (s *service) Reserve(ctx context.Context, request *connect.Request[budgetv1.ReserveRequest]) (*connect.Response[budgetv1.ReserveResponse], error) {
	m := request.Msg
	account, err := s.account(ctx, m.Account)
	if err != nil {
		return nil, s.asConnect(ctx, err, inReserve)
	}
	ask := reservation.Ask{
		Account: account,
		Labels:  m.Labels,
		Key:     m.IdempotencyKey,
		Amounts: amountsIn(m.Amounts),
		DryRun:  m.DryRun,
		Parent:  m.Parent,
		APIKey:  apiKey(ctx),
	}
	if err := keyIn(m.IdempotencyKey); err != nil {
		return nil, err
	}
	if ask.Priority, err = Priority("priority", m.Priority); err != nil {
		return nil, err
	}
	if ask.Lease, err = leaseIn(m.Lease); err != nil {
		return nil, err
	}
	if ask.MaxWait, err = waitIn(m.MaxWait); err != nil {
		return nil, err
	}
	if m.Llm != nil {
		call, err := callIn(m.Llm)
		if err != nil {
			return nil, err
		}
		ask.LLM, ask.MinOutputTokens = &call, tokensIn(m.Llm.MinOutputTokens)
	}
	if ask.MaxWait != nil {
		holdFor(ctx, *ask.MaxWait)
	}
	decision, err := s.broker.Reserve(ctx, ask)
	if err != nil {
		return nil, s.forAccount(ctx, account, err, inReserve)
	}
	if decision.Refusal != nil {
		return nil, s.refused(account, decision.Refusal)
	}
	grant := decision.Grant
	answer := &budgetv1.ReserveResponse{
		ReservationId: grant.Reservation,
		Holds:         holdsOut(grant.Holds),
		Replayed:      grant.Replayed,
		Degraded:      grant.Degraded,
		PriceVersion:  grant.PriceVersion,

		GrantedMaxOutputTokens: int64(grant.MaxOutput),
		UnlimitedMeters:        unlimited(m.Amounts, grant),
		ShadowRefusals:         shadowsOut(grant.Shadow),
	}
	if !grant.StartAt.IsZero() {
		answer.StartAt = timeOut(grant.StartAt)
	}
	if grant.StartsIn > 0 {
		answer.StartsIn = durationpb.New(grant.StartsIn)
	}
	if !m.DryRun {
		answer.ExpiresAt = timeOut(grant.ExpiresAt)
		answer.State = stateOut(grant.State, grant.Late, grant.Released)
	}
	if !grant.Replayed {
		answer.Estimate = estimateOut(grant.Estimate)
	}
	response := connect.NewResponse(answer)
	limitHeaders(response, grant)
	return response, nil
}

// unlimited returns the meters of the amounts that no hold of the grant counts,
// sorted; none where the holds are not known to be all.
func unlimited(amounts map[string]int64, grant *reservation.Grant) []string {
	if grant.Degraded {
		return nil
	}
	var meters []string
	for meter := range amounts {
		if !slices.ContainsFunc(grant.Holds, func(h reservation.HeldLimit) bool { return string(h.Meter) == meter }) &&
			!slices.ContainsFunc(grant.Shadow, func(r reservation.RefusedLimit) bool { return string(r.Meter) == meter }) {
			meters = append(meters, meter)
		}
	}
	slices.Sort(meters)
	return meters
}

// limitHeaders tells of the tightest limit that granted.
func limitHeaders(response connect.AnyResponse, grant *reservation.Grant) {
	if limit, ok := Tightest(grant, anyHold); ok {
		limit.set(response.Header())
	}
}

// Charge implements budgetv1connect.BudgetServiceHandler.
func (s *service) Charge(ctx context.Context, request *connect.Request[budgetv1.ChargeRequest]) (*connect.Response[budgetv1.ChargeResponse], error) {
	m := request.Msg
	account, err := s.account(ctx, m.Account)
	if err != nil {
		return nil, s.asConnect(ctx, err, inCharge)
	}
	spend := reservation.Spend{
		Account: account,
		Labels:  m.Labels,
		Key:     m.IdempotencyKey,
		Amounts: amountsIn(m.Amounts),
		APIKey:  apiKey(ctx),
	}
	if err := keyIn(m.IdempotencyKey); err != nil {
		return nil, err
	}
	if spend.Priority, err = Priority("priority", m.Priority); err != nil {
		return nil, err
	}
	if m.Llm != nil {
		if err := spendCall(m.Llm, &spend); err != nil {
			return nil, s.asConnect(ctx, err, inCharge)
		}
	}
	decision, err := s.broker.Charge(ctx, spend)
	if err != nil {
		return nil, s.forAccount(ctx, account, err, inCharge)
	}
	if decision.Refusal != nil {
		return nil, s.refused(account, decision.Refusal)
	}
	grant := decision.Grant
	response := connect.NewResponse(&budgetv1.ChargeResponse{
		ReservationId: grant.Reservation,
		Charged:       amountsOut(grant.Charged),
		Holds:         holdsOut(grant.Holds),
		Replayed:      grant.Replayed,
		Degraded:      grant.Degraded,
		PriceVersion:  grant.PriceVersion,

		UnlimitedMeters: unlimited(m.Amounts, grant),
		ShadowRefusals:  shadowsOut(grant.Shadow),
	})
	limitHeaders(response, grant)
	return response, nil
}

// spendCall adds a model call whose use is known.
func spendCall(call *budgetv1.KnownLlmCall, spend *reservation.Spend) error {
	usage, err := usageObjectIn("llm", call.Provider, call.ProviderUsage)
	if err != nil {
		return err
	}
	use, err := useIn("llm", call.Tokens, call.Units, call.Served)
	switch {
	case err != nil:
		return err
	case call.Model == "":
		return invalid(&budgetv1.InvalidField{Field: "llm.model", Problem: "is missing", Bound: "1 to 256 bytes"})
	case (usage == nil) == (use == nil):
		return invalid(&budgetv1.InvalidField{Field: "llm", Problem: "states what was used twice or not at all", Bound: "providerUsage, or tokens and units"})
	}
	spend.Model, spend.Provider, spend.Use = call.Model, call.Provider, use
	if usage != nil {
		use, err := estimator.NormalizeUsage(call.Provider, usage)
		if err != nil {
			return err
		}
		spend.Use = &use
	}
	return nil
}

// Estimate implements budgetv1connect.BudgetServiceHandler.
func (s *service) Estimate(ctx context.Context, request *connect.Request[budgetv1.EstimateRequest]) (*connect.Response[budgetv1.EstimateResponse], error) {
	m := request.Msg
	account, err := s.account(ctx, m.Account)
	if err != nil {
		return nil, s.asConnect(ctx, err, inEstimate)
	}
	if err := s.knows(account); err != nil {
		return nil, s.asConnect(ctx, err, inEstimate)
	}
	if err := quota.ValidateLabels(m.Labels); err != nil {
		return nil, invalid(fieldOf(&reservation.InvalidError{Field: "labels", Problem: err.Error()}, inEstimate))
	}
	if m.Llm == nil {
		return nil, invalid(&budgetv1.InvalidField{Field: "llm", Problem: "is missing", Bound: "the call to estimate"})
	}
	call, err := callIn(m.Llm)
	if err != nil {
		return nil, err
	}
	estimate, err := s.broker.Estimate(ctx, call)
	if err != nil {
		return nil, s.asConnect(ctx, err, inEstimate)
	}
	return connect.NewResponse(&budgetv1.EstimateResponse{Estimate: estimateOut(&estimate)}), nil
}

// knows says whether there is such an account: an unknown one must not cost
// work.
func (s *service) knows(account string) error {
	if _, known := s.broker.Policies.Current().Accounts[account]; !known {
		return unknownAccount(account)
	}
	return nil
}
