package rpc

import (
	"context"
	"encoding/hex"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/budgetd/budgetd/ledger"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policystore"
	"github.com/budgetd/budgetd/reservation"
)

// maxModelBytes bounds the name of a model, as quota.ModelPrice does.
const maxModelBytes = 128

// ListPrices implements budgetv1connect.AdminServiceHandler. A page token is
// how many prices of the request came before.
func (a *admin) ListPrices(ctx context.Context, request *connect.Request[budgetv1.ListPricesRequest]) (*connect.Response[budgetv1.ListPricesResponse], error) {
	m := request.Msg
	size, err := pageSize(m.PageSize, defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	skip := 0
	if m.PageToken != "" {
		if skip, err = strconv.Atoi(m.PageToken); err != nil || skip < 1 || strconv.Itoa(skip) != m.PageToken {
			return nil, badPageToken()
		}
	}
	page, err := a.parts.Policies.Prices(ctx, policystore.PricesQuery{Provider: m.Provider, Model: m.Model, Skip: skip, Limit: size})
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	answer := &budgetv1.ListPricesResponse{PolicyVersion: page.Version}
	if page.More {
		answer.NextPageToken = strconv.Itoa(skip + size)
	}
	for _, price := range page.Prices {
		answer.Prices = append(answer.Prices, priceOut(&price))
	}
	return connect.NewResponse(answer), nil
}

func priceOut(price *quota.ModelPrice) *budgetv1.ModelPrice {
	out := &budgetv1.ModelPrice{
		Provider: price.Provider, Model: price.Model, From: timeOut(price.From), Rates: ratesOut(price.Rates), Tiers: priceTiersOut(price.Tiers),
	}
	for _, s := range price.Services {
		out.Services = append(out.Services, &budgetv1.PriceService{Name: s.Name, Rates: ratesOut(s.Rates), Tiers: priceTiersOut(s.Tiers)})
	}
	return out
}

func ratesOut(rates map[string]quota.NanoUSD) map[string]int64 {
	out := make(map[string]int64, len(rates))
	for name, rate := range rates {
		out[name] = int64(rate)
	}
	return out
}

func priceTiersOut(tiers []quota.PriceTier) (out []*budgetv1.PriceTier) {
	for _, tier := range tiers {
		out = append(out, &budgetv1.PriceTier{Above: int64(tier.Above), Rates: ratesOut(tier.Rates)})
	}
	return out
}

// CorrectPrices implements budgetv1connect.AdminServiceHandler.
func (a *admin) CorrectPrices(ctx context.Context, request *connect.Request[budgetv1.CorrectPricesRequest], stream *connect.ServerStream[budgetv1.CorrectPricesResponse]) error {
	m := request.Msg
	c := reservation.PriceCorrection{
		Account: m.Account, Provider: m.Provider, Model: m.Model, DryRun: m.DryRun, Reason: m.Reason, By: a.by(ctx),
	}
	if m.Account != "" {
		if err := accountName("account", m.Account); err != nil {
			return err
		}
	}
	if err := required("model", m.Model, maxModelBytes); err != nil {
		return err
	}
	if m.DryRun && m.Reason == "" {
		c.Reason = "dry run" // kept nowhere
	}
	if err := required("reason", c.Reason, ledger.MaxReasonBytes); err != nil {
		return err
	}
	for _, instant := range []struct {
		field string
		at    *timestamppb.Timestamp
		into  *time.Time
	}{{"from", m.From, &c.From}, {"to", m.To, &c.To}} {
		var err error
		if *instant.into, err = instantIn(instant.field, instant.at); err != nil {
			return err
		}
		if instant.at == nil {
			return invalid(&budgetv1.InvalidField{Field: instant.field, Problem: "is missing", Bound: "an instant such as 2026-12-01T00:00:00Z"})
		}
	}
	a.follow(ctx)
	// When the caller goes away, or the broker stops, the correction ends after
	// the piece that is under way. Doing it again goes on where it ended.
	done, err := a.broker.CorrectPrices(ctx, c, func(sofar reservation.PriceCorrected) {
		_ = stream.Send(correctedOut(sofar, m.DryRun, false))
	})
	if !m.DryRun && (done.Repriced > 0 || err == nil) {
		a.changed(ctx, "prices were corrected", "account", m.Account, "provider", m.Provider, "model", m.Model,
			"from", c.From, "to", c.To, "repriced", done.Repriced, "difference_nano_usd", int64(done.Difference), "complete", err == nil)
	}
	if err != nil {
		return a.failed(ctx, err, "")
	}
	return stream.Send(correctedOut(done, m.DryRun, true))
}

func correctedOut(c reservation.PriceCorrected, dryRun, done bool) *budgetv1.CorrectPricesResponse {
	out := &budgetv1.CorrectPricesResponse{
		Looked: int64(c.Looked), Repriced: int64(c.Repriced), Skipped: int64(c.Skipped),
		DifferenceNanoUsd: int64(c.Difference), Done: done,
	}
	if !dryRun {
		out.CorrectionId = hex.EncodeToString(c.ID[:])
	}
	return out
}
