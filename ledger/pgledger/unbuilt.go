package pgledger

import (
	"context"
	"errors"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

var errUnbuilt = errors.New("not built")

func (l *Ledger) Adjust(context.Context, ledger.Adjustment) (ledger.Usage, bool, error) {
	return ledger.Usage{}, false, errUnbuilt
}

func (l *Ledger) Adjustments(context.Context, string, *ledger.Adjustment, int) ([]ledger.Adjustment, error) {
	return nil, errUnbuilt
}

func (l *Ledger) Reprice(context.Context, ledger.Correction, []ledger.Repricing) ([]ledger.Usage, int, error) {
	return nil, 0, errUnbuilt
}

func (l *Ledger) Closings(context.Context, ledger.ClosingsQuery) (ledger.ClosingsPage, error) {
	return ledger.ClosingsPage{}, errUnbuilt
}

func (l *Ledger) Changes(context.Context, string, int) (ledger.ChangesPage, error) {
	return ledger.ChangesPage{}, errUnbuilt
}

func (l *Ledger) Report(context.Context, ledger.ReportQuery) (ledger.Report, error) {
	return ledger.Report{}, errUnbuilt
}

func (l *Ledger) Maintain(context.Context, time.Time, time.Duration) (ledger.Maintenance, error) {
	return ledger.Maintenance{}, errUnbuilt
}
