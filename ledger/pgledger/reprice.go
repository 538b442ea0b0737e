package pgledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/posting"
	"github.com/budgetd/budgetd/quota"
)

// Reprice implements [ledger.Adjuster].
func (l *Ledger) Reprice(ctx context.Context, c ledger.Correction, repricings []ledger.Repricing) (ledger.Repriced, error) {
	if err := ledger.ValidateReprice(c, repricings); err != nil {
		return ledger.Repriced{}, err
	}
	if len(repricings) == 0 {
		return ledger.Repriced{}, nil
	}
	if err := l.enter(); err != nil {
		return ledger.Repriced{}, err
	}
	defer l.calls.Done()
	r := newRepricing(c, repricings)
	err := inWrite(ctx, l.aside, func(tx pgx.Tx) error { return r.run(ctx, tx, &l.labels) })
	if err != nil {
		return ledger.Repriced{}, wrap(fmt.Sprintf("reprice %d closings", len(repricings)), err)
	}
	l.labels.learn(r.deltas.LabelSets())
	r.done.Usage = r.rows.Changed()
	return r.done, nil
}

// repricing is one Reprice under way.
type repricing struct {
	extra
	correction ledger.Correction
	parts      []repricingPart // in the order in which closings are locked
	done       ledger.Repriced // but for the usage
}

type repricingPart struct {
	*ledger.Repricing
	group
	minted time.Time // as the closing has it
	labels map[string]string
	stands bool // the closing that was looked at is still the one
}

func newRepricing(c ledger.Correction, repricings []ledger.Repricing) *repricing {
	r := &repricing{correction: c, parts: make([]repricingPart, len(repricings))}
	for i := range repricings {
		one := &repricings[i]
		k := key{account: one.Account, reservation: one.Reservation, month: ledger.MonthOf(one.Minted)}
		r.parts[i] = repricingPart{Repricing: one, group: group{key: k}}
	}
	slices.SortFunc(r.parts, func(x, y repricingPart) int { return x.key.compare(y.key) })
	return r
}

func (r *repricing) run(ctx context.Context, tx pgx.Tx, labels *labelSets) error {
	standing, err := r.lock(ctx, tx)
	if err != nil || len(standing) == 0 {
		return err
	}
	rows, err := tx.Query(ctx, selectCharges, keyColumns(standing)...)
	if err != nil {
		return err
	}
	err = readCharges(rows, standing, func(g *group, charge posting.Charge, sequence int, _ ledger.Usage) {
		g.reservation.Charges = append(g.reservation.Charges, charge)
		g.reservation.Sequence = max(g.reservation.Sequence, sequence)
	})
	if err != nil {
		return err
	}
	for i := range r.parts {
		if err := r.post(&r.parts[i]); err != nil {
			return err
		}
	}
	if r.done.Closings == 0 {
		return nil
	}
	if err := r.writeCorrection(ctx, tx); err != nil {
		return err
	}
	return r.write(ctx, tx, labels, uuid(r.correction.ID))
}

// lock locks the closings and returns those that are still the ones that were
// looked at.
func (r *repricing) lock(ctx context.Context, tx pgx.Tx) ([]*group, error) {
	groups := make([]*group, len(r.parts))
	for i := range r.parts {
		groups[i] = &r.parts[i].group
	}
	rows, err := tx.Query(ctx, lockClosings, keyColumns(groups)...)
	if err != nil {
		return nil, err
	}
	var (
		standing []*group
		position int
		rank     int16
		body     pgtype.UUID
		minted   time.Time
		text     string
	)
	_, err = pgx.ForEachRow(rows, []any{&position, &rank, &body, &minted, &text}, func() error {
		part := &r.parts[position-1]
		if part.stands = ledger.Rank(rank) == part.Rank && body.Bytes == part.Body; part.stands {
			part.minted = minted
			standing = append(standing, &part.group)
			part.labels, err = posting.DecodeLabels(text)
		}
		return err
	})
	return standing, err
}

func (r *repricing) post(part *repricingPart) error {
	if !part.stands {
		return nil
	}
	hour, err := r.deltas.In(part.Account, part.minted, part.labels)
	if err != nil {
		return err
	}
	changed, totals, err := part.reservation.Reprice(part.Account, part.Lines, &r.rows, hour, func(e posting.Entry) {
		r.entries.of(part.key.month).add(&part.key, e)
	})
	if err != nil {
		return err
	}
	if changed {
		r.done.Closings++
	}
	r.done.Difference, err = r.done.Difference.Add(quota.NanoUSD(totals))
	return err
}

// writeCorrection notes the correction with the first closing that it changes.
func (r *repricing) writeCorrection(ctx context.Context, tx pgx.Tx) error {
	c := r.correction
	tag, err := tx.Exec(ctx, insertCorrection, uuid(c.ID), ledger.Instant(c.At), c.By, c.Reason)
	if err != nil || tag.RowsAffected() == 1 {
		return err
	}
	var stands ledger.Correction
	if err := tx.QueryRow(ctx, selectCorrection, uuid(c.ID)).Scan(&stands.At, &stands.By, &stands.Reason); err != nil {
		return err
	}
	if !stands.At.Equal(ledger.Instant(c.At)) || stands.By != c.By || stands.Reason != c.Reason {
		return ledger.ErrReused
	}
	return nil
}
