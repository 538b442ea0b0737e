package pgledger

import (
	"context"
	"errors"

	"github.com/budgetd/budgetd/ledger"
)

var errUnbuilt = errors.New("not built")

func (l *Ledger) Report(context.Context, ledger.ReportQuery) (ledger.Report, error) {
	return ledger.Report{}, errUnbuilt
}
