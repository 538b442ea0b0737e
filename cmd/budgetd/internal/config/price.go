package config

import (
	"errors"
	"math/big"
	"strings"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
)

var errNotPrice = errors.New("is not a price; use dollars per million tokens, such as $75 or 0.5, up to $1000 and with at most nine decimals")

func setUnknownModelPrice(c *Config, text string) error {
	c.UnknownModelPrice = 0
	if text == "" {
		return nil
	}
	number := strings.TrimPrefix(text, "$")
	if number == "" || len(number) > 24 || strings.Trim(number, "0123456789.") != "" {
		return errNotPrice
	}
	dollars, ok := new(big.Rat).SetString(number)
	if !ok {
		return errNotPrice
	}
	nano := dollars.Mul(dollars, new(big.Rat).SetInt64(int64(quota.OneUSD)))
	if !nano.IsInt() || !nano.Num().IsInt64() || nano.Num().Int64() > int64(estimator.MaxPerMillion) {
		return errNotPrice
	}
	if nano.Sign() == 0 {
		return errors.New("is zero: an unknown model would be free; leave the setting empty to refuse unknown models")
	}
	c.UnknownModelPrice = estimator.PerMillion(nano.Num().Int64())
	return nil
}

func getUnknownModelPrice(c *Config) string {
	if c.UnknownModelPrice == 0 {
		return ""
	}
	return quota.NanoUSD(c.UnknownModelPrice).String()
}
