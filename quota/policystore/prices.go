package policystore

import (
	"context"
	"strings"

	"github.com/budgetd/budgetd/quota"
)

// PricesQuery asks for a page of the prices that the policy states.
type PricesQuery struct {
	Provider, Model string // "" for every one
	Skip            int    // how many come before the page
	Limit           int    // 1 to MaxPage
}

// PricesPage is a page of prices, by provider/model and instant.
type PricesPage struct {
	Prices []quota.ModelPrice
	More   bool // there are others after the page
	// Version is one of the policy that has these prices, if the policy is at it
	// still.
	Version int64
}

// Prices reads prices and nothing else of the policy. The error wraps
// [ErrBroken] or [ErrUnavailable].
func (s *Store) Prices(ctx context.Context, q PricesQuery) (page PricesPage, err error) {
	if err := checkPage(q.Limit); err != nil {
		return PricesPage{}, err
	}
	// The version comes first: prices that are newer than it belong to a version
	// that is newer too.
	if page.Version, err = s.Version(ctx); err != nil {
		return PricesPage{}, err
	}
	only := ""
	if q.Provider != "" && q.Model != "" {
		only = q.Provider + "/" + q.Model
	}
	rows, err := s.db.QueryContext(ctx, `SELECT name, document FROM model_prices WHERE $1 = '' OR name = $1 ORDER BY name`, only)
	if err != nil {
		return PricesPage{}, unavailable(ctx, "list the prices", err)
	}
	defer rows.Close()
	skip := q.Skip
	for rows.Next() && !page.More {
		var name, document string
		if err := rows.Scan(&name, &document); err != nil {
			return PricesPage{}, unavailable(ctx, "list the prices", err)
		}
		provider, model, _ := strings.Cut(name, "/")
		if (q.Provider != "" && provider != q.Provider) || (q.Model != "" && model != q.Model) {
			continue
		}
		prices, err := decodePrices(name, document)
		if err != nil {
			return PricesPage{}, err
		}
		before := min(skip, len(prices))
		skip -= before
		prices = prices[before:]
		room := min(len(prices), q.Limit-len(page.Prices))
		page.Prices = append(page.Prices, prices[:room]...)
		page.More = room < len(prices)
	}
	return page, unavailable(ctx, "list the prices", rows.Err())
}
