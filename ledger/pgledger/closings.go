package pgledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/cursor"
	"github.com/budgetd/budgetd/ledger/internal/posting"
)

// scanAtOnce is how many closings one call of Closings looks at, at most: some
// tens of milliseconds.
const scanAtOnce = ledger.MaxPage

// Closings implements [ledger.Reader].
func (l *Ledger) Closings(ctx context.Context, q ledger.ClosingsQuery) (ledger.ClosingsPage, error) {
	if err := q.Validate(); err != nil {
		return ledger.ClosingsPage{}, err
	}
	after, err := cursor.ParseClosing(q.After)
	if err != nil {
		return ledger.ClosingsPage{}, err
	}
	labels, err := posting.EncodeLabels(q.Labels)
	if err != nil {
		return ledger.ClosingsPage{}, err
	}
	if err := l.enter(); err != nil {
		return ledger.ClosingsPage{}, err
	}
	defer l.calls.Done()
	var page ledger.ClosingsPage
	err = inSnapshot(ctx, l.aside, func(tx pgx.Tx) error {
		months, err := monthsOf(ctx, tx, q, after.Month)
		if err != nil {
			return err
		}
		budget := scanAtOnce
		for i, month := range months {
			if !month.Equal(after.Month) {
				after = cursor.Closing{Month: month}
			}
			s := scan{query: q, labels: labels, at: after, budget: budget, wanted: q.Limit - len(page.Closings)}
			if err := s.run(ctx, tx); err != nil {
				return err
			}
			found, err := readClosings(ctx, tx, s.found)
			if err != nil {
				return err
			}
			page.Closings = append(page.Closings, found...)
			budget -= s.scanned
			switch {
			case !s.done:
				page.Next = s.at.String()
				return nil
			case i+1 < len(months) && (budget <= 0 || len(page.Closings) == q.Limit):
				page.Next = cursor.Closing{Month: months[i+1]}.String()
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return ledger.ClosingsPage{}, wrap("read closings", err)
	}
	return page, nil
}

// monthsOf returns the months of the span that have partitions, in order, from
// the given one on.
func monthsOf(ctx context.Context, tx pgx.Tx, q ledger.ClosingsQuery, from time.Time) ([]time.Time, error) {
	rows, err := tx.Query(ctx, selectMonths)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return nil, err
	}
	return cursor.Months(all, q.From, q.To, from), nil
}

// scan is one walk through closings of a month.
type scan struct {
	query  ledger.ClosingsQuery
	labels string
	at     cursor.Closing // the last that was looked at
	budget int            // closings to look at
	wanted int            // closings to find

	found   []*group
	scanned int
	done    bool // the month has no more
}

func (s *scan) run(ctx context.Context, tx pgx.Tx) error {
	statement, account := scanClosings, s.at.Account
	if s.query.Account != "" {
		statement, account = scanAccountClosings, s.query.Account
	}
	most := s.budget
	if len(s.query.Labels) == 0 && !s.query.From.After(s.at.Month) && !s.query.To.Before(nextMonth(s.at.Month)) {
		most = min(most, s.wanted) // all of them are found
	}
	from, to := ledger.Instant(s.query.From), ledger.Instant(s.query.To)
	rows, err := tx.Query(ctx, statement, s.at.Month, account, uuid(s.at.Reservation), from, to, s.labels, most+1)
	if err != nil {
		return err
	}
	s.done = true
	var (
		reservation pgtype.UUID
		matches     bool
	)
	_, err = pgx.ForEachRow(rows, []any{&account, &reservation, &matches}, func() error {
		if s.scanned == s.budget || len(s.found) == s.wanted {
			s.done = false
			return nil
		}
		s.scanned++
		s.at.Account, s.at.Reservation = account, reservation.Bytes
		if matches {
			s.found = append(s.found, &group{key: key{account: account, reservation: reservation.Bytes, month: s.at.Month}})
		}
		return nil
	})
	return err
}
