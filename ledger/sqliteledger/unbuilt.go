package sqliteledger

import (
	"context"
	"errors"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

var errUnbuilt = errors.New("not built")

func (l *Ledger) Report(context.Context, ledger.ReportQuery) (ledger.Report, error) {
	return ledger.Report{}, errUnbuilt
}

func (l *Ledger) Maintain(context.Context, time.Time, time.Duration) (ledger.Maintenance, error) {
	return ledger.Maintenance{}, errUnbuilt
}
