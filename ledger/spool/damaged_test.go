package spool_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/budgetd/budgetd/ledger"
)

// TestDamagedRowHoldsUpNoOther: a row that can't be read is filed as it is, and
// all others are posted.
func TestDamagedRowHoldsUpNoOther(t *testing.T) {
	for _, damage := range []string{`lines = '[{'`, `labels = '7'`} {
		r := newRig(t, nil)
		r.books.away.Store(true)
		const spooled = 10
		for n := range spooled {
			r.append(closing(n, ledger.RankRefunded, 5))
		}
		db, err := sql.Open("sqlite", r.config.Path)
		if err != nil {
			t.Fatal(err)
		}
		for _, position := range []int{1, 6} {
			if _, err := db.Exec(`UPDATE spooled SET `+damage+` WHERE position = ?`, position); err != nil {
				t.Fatal(err)
			}
		}
		r.books.away.Store(false)
		if err := r.Drain(context.Background()); err != nil || r.Waiting() != 0 {
			t.Errorf("%s: %d wait, %v", damage, r.Waiting(), err)
		}
		usage, err := r.books.Ledger.Usage(context.Background(), []ledger.UsageKey{spend})
		if err != nil || usage[0].Used != 5*(spooled-2) {
			t.Errorf("%s: the ledger has %+v, %v; want the other %d", damage, usage, err, spooled-2)
		}
		if filed := r.filed(); !slices.Equal(filed, []string{"refused", "refused"}) {
			t.Errorf("%s: filed %v", damage, filed)
		}
		var kept int
		if err := db.QueryRow(`SELECT count(*) FROM filed WHERE ` + damage).Scan(&kept); err != nil || kept != 2 {
			t.Errorf("%s: %d rows are filed as they were, %v", damage, kept, err)
		}
		db.Close()
	}
}
