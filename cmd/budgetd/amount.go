package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
	"github.com/budgetd/budgetd/quota"
)

// parseAmounts reads --amount meter=n, with n as policies write it: 4000, 1M,
// and for cost an amount of dollars such as $0.25.
func parseAmounts(cmd *cobra.Command, flag string, pairs []string) (map[string]int64, error) {
	amounts := make(map[string]int64, len(pairs))
	for _, pair := range pairs {
		meter, text, ok := strings.Cut(pair, "=")
		if !ok || meter == "" {
			return nil, usagef(cmd, "--%s %q: want METER=AMOUNT, such as tokens=4000 or cost='$0.25'", flag, pair)
		}
		if _, twice := amounts[meter]; twice {
			return nil, usagef(cmd, "--%s %q: the meter %s is given twice", flag, pair, meter)
		}
		amount, err := parseAmount(meter, text)
		if err != nil {
			return nil, usagef(cmd, "--%s %q: %v", flag, pair, err)
		}
		amounts[meter] = amount
	}
	return amounts, nil
}

func parseAmount(meter, text string) (int64, error) {
	if meter == string(quota.MeterCost) && !strings.HasPrefix(text, "$") {
		return 0, notMoney(text)
	}
	amount, err := quota.ParseAmount(quota.Meter(meter), text)
	return int64(amount), err
}

// notMoney refuses an amount of cost without a dollar sign. A shell makes 50 of
// $150 in double quotes or none: what is left must not pass for nano-dollars.
func notMoney(text string) error {
	return fmt.Errorf("%q is not money, and cost is in US dollars; write it with $, in single quotes for the shell, as in '$50'", text)
}

// signedAmount is an amount as policies write it, with or without a sign:
// "-$20", "1M", "500". What it counts is known once its meter is.
type signedAmount struct {
	text  string
	n     int64 // nano-dollars for money
	money bool
}

func parseSignedAmount(text string) (signedAmount, error) {
	digits, negative := strings.CutPrefix(text, "-")
	meter := quota.MeterRequests
	a := signedAmount{text: text, money: strings.HasPrefix(digits, "$")}
	if text == "" {
		return a, errors.New("is missing: write '$50', 1M or 500")
	}
	if a.money {
		meter = quota.MeterCost
	}
	n, err := quota.ParseAmount(meter, digits)
	if negative {
		n = -n
	}
	a.n = int64(n)
	return a, err
}

// of says whether it can be an amount of the meter.
func (a signedAmount) of(meter string) error {
	switch isCost := meter == string(quota.MeterCost); {
	case isCost && !a.money:
		return notMoney(a.text)
	case !isCost && a.money:
		return fmt.Errorf("%q is money, and what is counted is %s; write a number without $", a.text, meter)
	}
	return nil
}

// meters are what an account counts, as far as the broker can say.
type meters struct {
	quotas  map[string]string // meter by quota
	counted map[string]bool   // by a limit, or in the totals of this month
	whole   bool              // the ledger and the counters answered
}

func metersOf(ctx context.Context, service budgetv1connect.BudgetServiceClient, account string) (meters, error) {
	answer, err := service.GetQuota(ctx, connect.NewRequest(&budgetv1.GetQuotaRequest{Account: account}))
	if err != nil {
		return meters{}, err
	}
	m := meters{quotas: map[string]string{}, counted: map[string]bool{}, whole: !answer.Msg.Degraded && !answer.Msg.LedgerAway}
	for _, limit := range answer.Msg.Limits {
		m.counted[limit.Meter] = true
		if limit.Kind == budgetv1.LimitKind_LIMIT_KIND_QUOTA && limit.Pool == "" {
			m.quotas[limit.Limit] = limit.Meter
		}
	}
	for meter := range answer.Msg.Totals {
		m.counted[meter] = true
	}
	for _, meter := range []quota.Meter{quota.MeterRequests, quota.MeterTokens, quota.MeterInputTokens, quota.MeterOutputTokens, quota.MeterCost} {
		m.counted[string(meter)] = true
	}
	return m, nil
}

// checkQuota says whether the amount fits what the quota counts. A quota that is
// not there is left for the broker to refuse.
func (m meters) checkQuota(limit string, a signedAmount) error {
	meter, known := m.quotas[limit]
	switch {
	case known:
		return a.of(meter)
	case !m.whole && !a.money:
		return fmt.Errorf("what quota %s counts can't be told while the broker's stores do not all answer; try again", cmp.Or(limit, "it"))
	}
	return nil
}
