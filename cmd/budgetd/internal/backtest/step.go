package backtest

import "github.com/budgetd/budgetd/quota"

// A suggested amount is a number of two digits with zeros behind it: a third one
// says more than a trace can. The steps are all these numbers in order: 1 to 99,
// 100, 110 ... 990, 1000, 1100 ...
const (
	exactSteps = 99 // the first steps are the numbers themselves
	perDecade  = 90 // from a step on to ten times as much
)

// stepAmount is the amount of a step, from 0 on; false beyond quota.MaxAmount.
func stepAmount(step int) (quota.Amount, bool) {
	if step < exactSteps {
		return quota.Amount(step + 1), true
	}
	decade, rest := (step-exactSteps)/perDecade, (step-exactSteps)%perDecade
	amount := quota.Amount(rest+10) * 10
	for range decade {
		if amount > quota.MaxAmount/10 {
			return 0, false
		}
		amount *= 10
	}
	return amount, amount <= quota.MaxAmount
}

// withAmount is a limit of another amount. A burst that is stated keeps its
// proportion, rounded up.
func withAmount(l quota.Limit, amount quota.Amount) quota.Limit {
	if !l.Kind.HasRate() {
		l.Max = amount
		return l
	}
	if l.Burst != 0 {
		l.Burst = scaled(l.Burst, amount, l.Rate.Amount)
	}
	l.Rate.Amount = amount
	return l
}

// amountOf is what withAmount changes.
func amountOf(l *quota.Limit) quota.Amount {
	if l.Kind.HasRate() {
		return l.Rate.Amount
	}
	return l.Max
}
