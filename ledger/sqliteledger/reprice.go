package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/posting"
	"github.com/budgetd/budgetd/quota"
)

const (
	selectStanding = `
SELECT rank, body, minted_us, labels FROM closings
WHERE account = ?1 AND reservation = ?2 AND month = ?3`

	insertCorrectedEntry = `
INSERT INTO entries (account, reservation, month, sequence, usage_id, amount, posted_at_us, correction)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`

	insertCorrection = `
INSERT INTO corrections (id, at_us, made_by, reason, posted_at_us) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (id) DO NOTHING`

	selectCorrection = `SELECT at_us, made_by, reason FROM corrections WHERE id = ?1`
)

// Reprice implements [ledger.Adjuster].
func (l *Ledger) Reprice(ctx context.Context, c ledger.Correction, repricings []ledger.Repricing) (ledger.Repriced, error) {
	if err := ledger.ValidateReprice(c, repricings); err != nil {
		return ledger.Repriced{}, err
	}
	if len(repricings) == 0 {
		return ledger.Repriced{}, nil
	}
	var done ledger.Repriced
	err := l.inWrite(ctx, fmt.Sprintf("reprice %d closings", len(repricings)), func(w *appending) error {
		for i := range repricings {
			if err := w.reprice(&c, &repricings[i], &done); err != nil {
				return err
			}
		}
		if done.Closings == 0 {
			return nil
		}
		if err := w.writeCorrection(&c); err != nil {
			return err
		}
		if err := w.writeSums(); err != nil {
			return err
		}
		done.Usage = w.rows.Changed()
		return nil
	})
	if err != nil {
		return ledger.Repriced{}, err
	}
	return done, nil
}

// reprice posts the difference for one closing if it is still the one that was
// looked at, and counts it in.
func (w *appending) reprice(c *ledger.Correction, r *ledger.Repricing, done *ledger.Repriced) error {
	k := keyOf(r.Account, r.Reservation, r.Minted)
	var (
		rank   ledger.Rank
		body   []byte
		minted int64
		text   string
	)
	err := w.tx.QueryRowContext(w.ctx, selectStanding, k.account, k.reservation[:], k.month).Scan(&rank, &body, &minted, &text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil || rank != r.Rank || [16]byte(body) != r.Body {
		return err
	}
	labels, err := posting.DecodeLabels(text)
	if err != nil {
		return err
	}
	hour, err := w.deltas.In(k.account, time.UnixMicro(minted), labels)
	if err != nil {
		return err
	}
	rows, err := w.use.selectCharges.QueryContext(w.ctx, k.account, k.reservation[:], k.month)
	if err != nil {
		return err
	}
	charged, err := readCharges(k.account, rows)
	if err != nil {
		return err
	}
	var entries []posting.Entry
	changed, totals, err := charged.Reprice(r.Account, r.Lines, &w.rows, hour, func(e posting.Entry) { entries = append(entries, e) })
	if err != nil {
		return err
	}
	for _, e := range entries {
		_, err := w.tx.ExecContext(w.ctx, insertCorrectedEntry,
			k.account, k.reservation[:], k.month, e.Sequence, e.Row[:], int64(e.Amount), w.now, c.ID[:])
		if err != nil {
			return err
		}
	}
	if changed {
		done.Closings++
	}
	done.Difference, err = done.Difference.Add(quota.NanoUSD(totals))
	return err
}

// writeCorrection notes the correction with the first closing that it changes.
func (w *appending) writeCorrection(c *ledger.Correction) error {
	inserted, err := w.changed(insertCorrection, c.ID[:], c.At.UnixMicro(), c.By, c.Reason, w.now)
	if err != nil || inserted {
		return err
	}
	var at int64
	var by, reason string
	if err := w.tx.QueryRowContext(w.ctx, selectCorrection, c.ID[:]).Scan(&at, &by, &reason); err != nil {
		return err
	}
	if at != c.At.UnixMicro() || by != c.By || reason != c.Reason {
		return ledger.ErrReused
	}
	return nil
}
