package backtest

import (
	"fmt"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota"
)

// MaxSkipBad bounds the faulty calls that may be left out.
const MaxSkipBad = 1_000_000_000

// Check returns an error that names the flag at fault and its bound.
func (o *Options) Check() error {
	d := &o.Defaults
	if d.Account != "" {
		if err := quota.ValidateAccountName(d.Account); err != nil {
			return fmt.Errorf("--account: %w", err)
		}
	}
	if d.MaxOutput < 1 || d.MaxOutput > trace.MaxRequestTokens {
		return fmt.Errorf("--max-output: %d is not between 1 and %d", d.MaxOutput, trace.MaxRequestTokens)
	}
	if d.Duration != nil && (*d.Duration < 0 || *d.Duration > trace.MaxDuration) {
		return fmt.Errorf("--duration: %s is not between 0 and %s", *d.Duration, trace.MaxDuration)
	}
	if len(o.By) > MaxBy {
		return fmt.Errorf("--by: %d labels are named, at most %d are accepted", len(o.By), MaxBy)
	}
	seen := map[string]bool{}
	for _, label := range o.By {
		if err := quota.ValidateLabels(map[string]string{label: ""}); err != nil {
			return fmt.Errorf("--by: %w", err)
		}
		if seen[label] {
			return fmt.Errorf("--by: %q is named twice", label)
		}
		seen[label] = true
	}
	if o.SkipBad < 0 || o.SkipBad > MaxSkipBad {
		return fmt.Errorf("--skip-bad: %d is not between 0 and %d", o.SkipBad, MaxSkipBad)
	}
	return nil
}
