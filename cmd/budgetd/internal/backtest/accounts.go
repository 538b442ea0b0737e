package backtest

import (
	"errors"
	"fmt"
	"io"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

// Accounts reads calls to their end and returns the accounts that they name, at
// most quota.MaxAccounts. A faulty call names none: Run tells of it.
func Accounts(calls trace.Calls) (map[string]bool, error) {
	accounts := map[string]bool{}
	for {
		call, err := calls.Next()
		var line *trace.LineError
		switch {
		case err == io.EOF:
			return accounts, nil
		case errors.As(err, &line):
			continue
		case err != nil:
			return nil, err
		case call.Account != "" && !accounts[call.Account]:
			if len(accounts) == quota.MaxAccounts {
				return nil, fmt.Errorf("%s:%d: the calls name more than %d accounts", call.File, call.Line, quota.MaxAccounts)
			}
			accounts[call.Account] = true
		}
	}
}

// WithAccounts returns a document in which the accounts that it does not state
// are on a plan.
func WithAccounts(document *policyfile.Document, accounts map[string]bool, plan string) *policyfile.Document {
	whole := *document
	stated := map[string]bool{}
	for _, account := range document.Accounts {
		stated[account.Name] = true
	}
	whole.Accounts = append([]quota.Account(nil), document.Accounts...)
	for account := range accounts {
		if !stated[account] {
			whole.Accounts = append(whole.Accounts, quota.Account{Name: account, Plan: plan})
		}
	}
	return &whole
}
