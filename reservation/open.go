package reservation

import (
	"context"
	"errors"
	"fmt"

	"github.com/budgetd/budgetd/quota"
)

// OpenPageOf is a part of an account's open reservations, as an operator sees
// them. Each Story is of StateHeld.
type OpenPageOf struct {
	Reservations []Story
	Cursor       string // of the next page; "" when this was the last
}

// OpenReservations pages through the held reservations of an account, in no
// stated order: at most most of them (1 to MaxOpenPage), after the cursor of the
// page before ("" starts). One that is held during the whole walk is shown, and
// may be shown twice.
//
// Errors: *InvalidError, ErrNotFound, ErrUnavailable.
func (b *Broker) OpenReservations(ctx context.Context, account, cursor string, most int) (OpenPageOf, error) {
	if most < 1 || most > MaxOpenPage {
		return OpenPageOf{}, &InvalidError{Field: "page_size", Problem: fmt.Sprintf("%d", most), Bound: fmt.Sprintf("1 to %d", MaxOpenPage)}
	}
	if len(cursor) > MaxCursorBytes {
		return OpenPageOf{}, &InvalidError{Field: "page_token", Problem: fmt.Sprintf("%d bytes long", len(cursor)), Bound: "what the page before gave"}
	}
	// An account that was removed may still have open reservations.
	if err := quota.ValidateAccountName(account); err != nil {
		return OpenPageOf{}, &InvalidError{Field: "account", Problem: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, sweepDeadline)
	defer cancel()
	page, err := b.Store.Open(ctx, account, cursor, most)
	switch {
	case errors.Is(err, ErrBadRequest): // all else was checked
		return OpenPageOf{}, &InvalidError{Field: "page_token", Problem: "is not of a page before", Bound: "what the page before gave; leave it out to begin"}
	case err != nil:
		return OpenPageOf{}, engineError(err)
	}
	if _, known := b.Policies.Current().Accounts[account]; !known && cursor == "" && len(page.Open) == 0 && page.Cursor == "" {
		return OpenPageOf{}, fmt.Errorf("account %q: %w", account, ErrNotFound)
	}
	of := OpenPageOf{Cursor: page.Cursor, Reservations: make([]Story, 0, len(page.Open))}
	for i := range page.Open {
		open := &page.Open[i]
		token, raw, err := openStored(open.Token, b.Keys)
		if err != nil || token.Account != account {
			b.metrics.unreadable.Inc()
			b.config.Logger.Error("an open reservation can't be read", "account", account, "reservation", open.ID.String(), "error", err)
			continue
		}
		story := token.story(raw)
		story.State, story.ExpiresAt = StateHeld, open.ExpiresAt
		of.Reservations = append(of.Reservations, story)
	}
	return of, nil
}

// story is what the token itself tells.
func (t *reservationToken) story(raw []byte) Story {
	return Story{
		Reservation: tokenText(raw), Account: t.Account, Labels: t.Labels, Parent: t.Kin.Parent, Minted: t.ID.Minted(),
		Degraded: t.Degraded, Holds: t.shown(nil), PriceVersion: t.PriceVersion,
		Shadow: t.missedLimits(),
	}
}
