package rpc

import (
	"context"
	"fmt"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// account returns the account that a call is for: the one that it states if the
// caller may use it, or the caller's only one.
func (b *base) account(ctx context.Context, stated string) (string, error) {
	who, ok := auth.FromContext(ctx)
	if !ok {
		return "", fmt.Errorf("a call came here without a principal: %w", errInternal)
	}
	if stated == "" {
		if len(who.Accounts) == 1 && who.Accounts[0] != auth.EveryAccount {
			return who.Accounts[0], nil
		}
		return "", invalid(&budgetv1.InvalidField{Field: "account", Problem: "is missing, and the key is not for one account only", Bound: "the name of an account"})
	}
	if err := quota.ValidateAccountName(stated); err != nil {
		return "", invalid(&budgetv1.InvalidField{Field: "account", Problem: err.Error()})
	}
	if !who.MayUse(stated) {
		return "", unknownAccount(stated)
	}
	return stated, nil
}

// apiKey returns the name of the caller's API key.
func apiKey(ctx context.Context) string {
	who, _ := auth.FromContext(ctx)
	return who.Name
}

// mayTouch says whether the caller may use the reservation. One of somebody
// else is answered like one that does not exist.
func (b *base) mayTouch(ctx context.Context, id string) error {
	account, _, err := b.broker.Identify(id)
	if err != nil {
		return err
	}
	who, ok := auth.FromContext(ctx)
	if !ok {
		return fmt.Errorf("a call came here without a principal: %w", errInternal)
	}
	if !who.MayUse(account) {
		return reservation.ErrNotFound
	}
	return nil
}
