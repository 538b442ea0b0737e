package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/alerts"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policystore"
)

// admin implements budgetv1connect.AdminServiceHandler. The gate and
// operatorsOnly have let only admin keys in.
type admin struct {
	base
	parts Parts
}

// Pages of the operators' lists.
const (
	defaultPage = 100
	maxPage     = 1000
)

// by is who makes the call, as histories show it.
func (a *admin) by(ctx context.Context) string {
	who, _ := auth.FromContext(ctx)
	return who.Name
}

// follow lets this node see the policy as it is stored now: before an answer
// that depends on it, and after a change, so that whoever made it finds it in
// force. Where the store does not answer the node goes on with what it has.
func (a *admin) follow(ctx context.Context) { _ = a.parts.Watcher.Poll(ctx) }

// changed notes in the log that an operator changed something.
func (a *admin) changed(ctx context.Context, what string, fields ...any) {
	who, _ := auth.FromContext(ctx)
	a.log.Info(what, append([]any{"by", who.Name, "key", who.KeyID}, fields...)...)
}

// pageSize reads how many a page has.
func pageSize(stated int32, standard, most int) (int, error) {
	switch {
	case stated == 0:
		return standard, nil
	case stated < 0 || int(stated) > most:
		return 0, invalid(&budgetv1.InvalidField{Field: "pageSize", Problem: fmt.Sprintf("%d is out of bounds", stated), Bound: fmt.Sprintf("1 to %d, or 0 for %d", most, standard)})
	}
	return int(stated), nil
}

func badPageToken() error {
	return invalid(&budgetv1.InvalidField{Field: "pageToken", Problem: "is none that an answer to this request gave", Bound: "nextPageToken of the answer before"})
}

// required says that a text is missing or too long.
func required(field, text string, most int) error {
	switch {
	case text == "":
		return invalid(&budgetv1.InvalidField{Field: field, Problem: "is missing", Bound: fmt.Sprintf("1 to %d bytes", most)})
	case len(text) > most:
		return invalid(&budgetv1.InvalidField{Field: field, Problem: fmt.Sprintf("has %d bytes", len(text)), Bound: fmt.Sprintf("1 to %d bytes", most)})
	}
	return nil
}

// accountName checks the name of an account that a call states.
func accountName(field, name string) error {
	if name == "" {
		return invalid(&budgetv1.InvalidField{Field: field, Problem: "is missing", Bound: "the name of an account"})
	}
	if err := quota.ValidateAccountName(name); err != nil {
		return invalid(&budgetv1.InvalidField{Field: field, Problem: strings.TrimPrefix(err.Error(), "account: ")})
	}
	return nil
}

// instantIn reads an instant; the zero time when it is absent.
func instantIn(field string, at *timestamppb.Timestamp) (time.Time, error) {
	if at == nil {
		return time.Time{}, nil
	}
	if err := at.CheckValid(); err != nil {
		return time.Time{}, invalid(&budgetv1.InvalidField{Field: field, Problem: "is no instant: seconds or nanoseconds are out of range", Bound: "an instant such as 2026-12-01T00:00:00Z"})
	}
	return at.AsTime(), nil
}

// maxFaults bounds the faults that one answer lists.
const maxFaults = 100

// failed is asConnect for the calls of operators. at is the field of the request
// that the policy's own fields are under, "" for none.
func (a *admin) failed(ctx context.Context, err error, at string) error {
	var (
		coded *connect.Error
		key   *auth.InvalidError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return coded
	case errors.As(err, &key):
		return invalid(&budgetv1.InvalidField{Field: jsonName(key.Field), Problem: key.Problem})
	case errors.Is(err, policystore.ErrUnavailable), errors.Is(err, auth.ErrUnavailable), errors.Is(err, alerts.ErrUnavailable):
		return connect.NewError(connect.CodeUnavailable, errors.New("the store does not answer at the moment; repeat the same call"))
	case errors.Is(err, policystore.ErrVersionMoved):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	case errors.Is(err, policystore.ErrAccountExists), errors.Is(err, policystore.ErrGrantExists):
		return connect.NewError(connect.CodeAlreadyExists, err)
	case errors.Is(err, policystore.ErrNotFound), errors.Is(err, auth.ErrKeyNotFound):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, policystore.ErrBroken):
		a.log.Error("an operator's call met a broken policy", "error", err)
		return connect.NewError(connect.CodeFailedPrecondition, err)
	case errors.Is(err, alerts.ErrQuery):
		return badPageToken()
	case errors.Is(err, ledger.ErrInvalid):
		return ledgerField(err)
	}
	if fields := quota.FieldErrors(err); len(fields) > 0 {
		faults := make([]*budgetv1.InvalidField, 0, len(fields))
		for _, f := range fields[:min(len(fields), maxFaults)] {
			field := f.Field
			if at != "" {
				field = at + "." + field
			}
			faults = append(faults, &budgetv1.InvalidField{Field: field, Problem: f.Problem})
		}
		if more := len(fields) - maxFaults; more > 0 {
			faults = append(faults, &budgetv1.InvalidField{Field: at, Problem: fmt.Sprintf("and %d more faults", more)})
		}
		return invalid(faults...)
	}
	return a.asConnect(ctx, err, inNothing)
}

// ledgerField turns "invalid: field: problem" of the ledger into a field.
func ledgerField(err error) error {
	text := strings.TrimPrefix(err.Error(), ledger.ErrInvalid.Error()+": ")
	field, problem, ok := strings.Cut(text, ": ")
	if !ok {
		return invalid(&budgetv1.InvalidField{Problem: text})
	}
	if field == "after" {
		return badPageToken()
	}
	return invalid(&budgetv1.InvalidField{Field: inNothing.jsonPath(field), Problem: problem})
}
