package reservation_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

func TestOpenReservationsAreListed(t *testing.T) {
	r := newRig(t, plainPolicy)
	want := map[string]quota.Amount{}
	for n := range quota.Amount(5) {
		ask := tokens(100 + n)
		ask.Labels = map[string]string{"user": "u"}
		want[r.reserve(ask).Reservation] = 100 + n
	}
	r.refund(r.reserve(tokens(7)).Reservation, used(7))
	cursor, pages := "", 0
	for more := true; more; more = cursor != "" {
		page, err := r.OpenReservations(context.Background(), "acme", cursor, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, story := range page.Reservations {
			held := quota.Amount(0)
			for _, h := range story.Holds {
				if h.Limit == "budget" {
					held = h.Amount
				}
			}
			if story.State != reservation.StateHeld || story.Account != "acme" || story.Labels["user"] != "u" || held != want[story.Reservation] ||
				!story.ExpiresAt.Equal(r.clock.Now().Add(time.Minute)) {
				t.Errorf("%+v", story)
			}
			delete(want, story.Reservation)
		}
		cursor = page.Cursor
		pages++
	}
	if len(want) > 0 || pages < 3 {
		t.Errorf("in %d pages %d reservations were not shown", pages, len(want))
	}
	r.clock.Add(time.Minute)
	if page, err := r.OpenReservations(context.Background(), "acme", "", 10); err != nil || len(page.Reservations) != 0 {
		t.Errorf("after the leases: %+v, %v", page, err)
	}
	var invalid *reservation.InvalidError
	for name, call := range map[string]func() error{
		"none a page":     func() error { _, err := r.OpenReservations(context.Background(), "acme", "", 0); return err },
		"too many a page": func() error { _, err := r.OpenReservations(context.Background(), "acme", "", 1001); return err },
		"no account":      func() error { _, err := r.OpenReservations(context.Background(), "", "", 1); return err },
		"a long cursor": func() error {
			_, err := r.OpenReservations(context.Background(), "acme", strings.Repeat("x", 999), 1)
			return err
		},
		"a strange cursor": func() error { _, err := r.OpenReservations(context.Background(), "acme", "?", 1); return err },
	} {
		if err := call(); !errors.As(err, &invalid) {
			t.Errorf("%s: %v, want an InvalidError", name, err)
		}
	}
	if _, err := r.OpenReservations(context.Background(), "initech", "", 1); !errors.Is(err, reservation.ErrNotFound) {
		t.Errorf("an unknown account: %v", err)
	}
}

func TestRelease(t *testing.T) {
	r := newRig(t, plainPolicy)
	g := r.reserve(tokens(4000))
	receipt, err := r.Release(context.Background(), g.Reservation)
	if err != nil || !receipt.Released || receipt.GivenBack[quota.MeterTokens] != 4000 {
		t.Fatalf("%+v, %v", receipt, err)
	}
	if again, err := r.Release(context.Background(), g.Reservation); err != nil || !again.Replayed {
		t.Errorf("again: %+v, %v", again, err)
	}
	if _, err := r.Refund(context.Background(), g.Reservation, used(10)); !errors.Is(err, reservation.ErrConflict) {
		t.Errorf("its caller's Refund: %v, want a conflict", err)
	}
	r.reserve(tokens(10_000)) // all of it is back

	late := r.reserve(reservation.Ask{Account: "acme", Amounts: quota.Amounts{"pages": 3}})
	r.clock.Add(2 * time.Minute)
	if _, err := r.Release(context.Background(), late.Reservation); !errors.Is(err, reservation.ErrNotHeld) {
		t.Errorf("after the lease: %v, want ErrNotHeld", err)
	}
	if _, err := r.Refund(context.Background(), late.Reservation, reservation.Usage{Amounts: quota.Amounts{"pages": 2}}); err != nil {
		t.Errorf("a late Refund after that: %v", err)
	}
	if _, err := r.Release(context.Background(), "AAAA"); !errors.Is(err, reservation.ErrNotFound) {
		t.Errorf("no reservation: %v", err)
	}
	// An engine that is silent can't tell whether the lease has ended: nothing is
	// released, in the engine or in the ledger.
	silent := r.reserve(tokens(100))
	r.engine.silent.Store(true)
	if _, err := r.Release(context.Background(), silent.Reservation); !errors.Is(err, reservation.ErrUnavailable) {
		t.Errorf("while the engine is silent: %v, want ErrUnavailable", err)
	}
	r.engine.silent.Store(false)
	if receipt, err := r.Refund(context.Background(), silent.Reservation, used(10)); err != nil || receipt.Replayed {
		t.Errorf("its caller's Refund: %+v, %v", receipt, err)
	}
	r.settled()
	r.balanced()
}
