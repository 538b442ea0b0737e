package posting_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/posting"
	"github.com/budgetd/budgetd/quota"
)

var minted = time.Date(2026, time.November, 15, 12, 34, 56, 0, time.UTC)

func total(meter quota.Meter, amount, held quota.Amount) ledger.Line {
	return ledger.Line{Period: "m2026-11-01", Meter: meter, Amount: amount, Held: held}
}

// deltas returns what the closings of one reservation, posted in order, add.
func deltas(t *testing.T, closings ...ledger.Closing) []posting.Delta {
	t.Helper()
	var (
		reservation posting.Reservation
		rows        posting.Rows
		all         posting.Deltas
		got         []posting.Delta
	)
	for i := range closings {
		if err := reservation.Post(&closings[i], &rows, &all, func(posting.Entry) {}); err != nil {
			t.Fatal(err)
		}
	}
	all.All(func(d *posting.Delta) { got = append(got, *d) })
	return got
}

func TestDeltas(t *testing.T) {
	set := func(labels map[string]string) posting.LabelSetID {
		var d posting.Deltas
		if _, err := d.In("acme", minted, labels); err != nil {
			t.Fatal(err)
		}
		return d.LabelSets()[0].ID
	}
	labels := map[string]string{"route": "chat", "model": "gpt-4o"}
	closing := func(lines ...ledger.Line) ledger.Closing {
		return ledger.Closing{Account: "acme", Minted: minted, Labels: labels, Lines: lines}
	}
	delta := func(meter quota.Meter, used, held quota.Amount, calls int64) posting.Delta {
		return posting.Delta{
			Hour: time.Date(2026, time.November, 15, 12, 0, 0, 0, time.UTC), Account: "acme", Labels: set(labels),
			Meter: meter, Used: used, Held: held, Calls: calls,
		}
	}
	limit := ledger.Line{Limit: "spend.0123abcd", Period: "m2026-11-01", Meter: "cost", Amount: 9}
	for what, c := range map[string]struct {
		closings []ledger.Closing
		want     []posting.Delta
	}{
		"totals count, limits do not": {
			[]ledger.Closing{closing(limit, total("tokens", 100, 1600), total("cost", 9, 0))},
			[]posting.Delta{delta("tokens", 100, 1600, 1), delta("cost", 9, 0, 1)},
		},
		"nothing used is a call": {
			[]ledger.Closing{closing(total("tokens", 0, 7))},
			[]posting.Delta{delta("tokens", 0, 7, 1)},
		},
		"a higher rank adds the difference, no call and no hold": {
			[]ledger.Closing{closing(total("tokens", 100, 1600)), closing(total("tokens", 30, 1600), total("cost", 5, 0))},
			[]posting.Delta{delta("tokens", 30, 1600, 1), delta("cost", 5, 0, 1)},
		},
		"what a higher rank does not name is given back": {
			[]ledger.Closing{closing(total("tokens", 100, 1600)), closing()},
			[]posting.Delta{delta("tokens", 0, 1600, 1)},
		},
		"two totals of a meter are one call": {
			[]ledger.Closing{closing(total("tokens", 1, 2), ledger.Line{Period: "m2026-12-01", Meter: "tokens", Amount: 10, Held: 20})},
			[]posting.Delta{delta("tokens", 11, 22, 1)},
		},
		"no totals, no delta": {[]ledger.Closing{closing(limit)}, nil},
	} {
		if diff := cmp.Diff(c.want, deltas(t, c.closings...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	// The id is part of what is stored: the first half of the output of
	// printf '%s' '{"model":"gpt-4o","route":"chat"}' | sha256sum
	if got, want := set(labels), (posting.LabelSetID{0x7b, 0x67, 0xe9, 0xae, 0x02, 0x11, 0xc1, 0x48, 0x0a, 0xac, 0x84, 0x8d, 0x0f, 0xa9, 0x03, 0x48}); got != want {
		t.Errorf("the set's id is %x, want %x", got, want)
	}
}

func TestDeltasOverflow(t *testing.T) {
	var d posting.Deltas
	hour, err := d.In("acme", minted, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := ledger.UsageKey{Account: "acme", Period: "m2026-11-01", Meter: "tokens"}
	if err := hour.Post(key, math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	if err := hour.Post(key, 1); !errors.Is(err, quota.ErrOverflow) {
		t.Errorf("error %v, want ErrOverflow", err)
	}

	// What is held keeps no spend out: it stays at its end.
	var holds []ledger.Closing
	for i := range 1026 {
		holds = append(holds, ledger.Closing{Account: "acme", Reservation: [16]byte{byte(i >> 8), byte(i)}, Minted: minted,
			Lines: []ledger.Line{total("requests", 1, quota.MaxAmount)}})
	}
	var (
		all  posting.Deltas
		rows posting.Rows
		got  []posting.Delta
	)
	for i := range holds {
		var one posting.Reservation
		if err := one.Post(&holds[i], &rows, &all, func(posting.Entry) {}); err != nil {
			t.Fatal(err)
		}
	}
	all.All(func(d *posting.Delta) { got = append(got, *d) })
	if len(got) != 1 || got[0].Used != 1026 || got[0].Calls != 1026 || got[0].Held != math.MaxInt64 {
		t.Errorf("got %+v, want one delta of 1026 calls whose hold is at its end", got)
	}
}
