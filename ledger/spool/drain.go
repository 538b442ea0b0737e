package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

const (
	// drainBatch and drainBytes bound what is posted at once.
	drainBatch = 512
	drainBytes = 8 << 20
	// postWithin bounds the posting of one batch, pingWithin a look at the
	// ledger when there is nothing to post.
	postWithin = 15 * time.Second
	pingWithin = 2 * time.Second
	// firstPause and longestPause are between looks at a ledger that is away.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second
)

// The reasons for which a closing is filed. They are stored, and values of a
// metric's label.
const (
	reasonConflict = "conflict" // another closing of the reservation was in the ledger first
	reasonRefused  = "refused"  // the ledger can't take it
)

// Run drains the spool whenever the ledger is there, until ctx ends.
func (s *Spool) Run(ctx context.Context) {
	pause, failing := firstPause, false
	for {
		if !s.away.Load() && s.held.count() == 0 {
			select {
			case <-s.work:
			case <-ctx.Done():
				return
			}
			continue
		}
		err := s.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			pause, failing = firstPause, false
			continue
		case isAway(err):
			s.lost(err)
		case !failing:
			failing = true
			s.config.Logger.Error("the spool can't be drained at the moment; it is tried again", "error", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// look posts a batch, or asks whether the ledger is there if nothing waits.
func (s *Spool) look(ctx context.Context) error {
	if s.held.count() > 0 {
		_, err := s.drain(ctx, "")
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	if err := s.Ledger.Ping(ctx); err != nil {
		return err
	}
	s.back()
	return nil
}

// Drain posts everything that waits, and returns when the file has none left or
// with the first error. Without one the ledger answers, and Appends go to it
// again.
func (s *Spool) Drain(ctx context.Context) error {
	err := s.drainAll(ctx, "")
	if err == nil && s.away.Load() {
		if err = s.look(ctx); err == nil {
			s.back()
		}
	}
	return err
}

// drainAll drains one account, or all ("").
func (s *Spool) drainAll(ctx context.Context, account string) error {
	for {
		settled, err := s.drain(ctx, account)
		if err != nil || settled == 0 {
			return err
		}
	}
}

// drain posts the first batch that waits, of one account or of all (""), and
// returns how many closings left the file.
func (s *Spool) drain(ctx context.Context, account string) (int, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.calls.Done()
	select {
	case s.draining <- struct{}{}:
		defer func() { <-s.draining }()
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: wait for the spool to be drained: %w", ledger.ErrUnavailable, ctx.Err())
	}
	rows, err := s.file.oldest(ctx, account, drainBatch, drainBytes)
	if err != nil {
		return 0, s.file.failed("read closings", err)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	// One that can't be read must not keep the others from the ledger.
	var damaged []settlement
	readable := make([]row, 0, len(rows))
	for i := range rows {
		if why := rows[i].unreadable; why != nil {
			damaged = append(damaged, settlement{row: &rows[i], reason: reasonRefused, detail: "the spool's row is damaged: " + why.Error()})
			continue
		}
		readable = append(readable, rows[i])
	}
	if len(damaged) > 0 {
		if err := s.settle(ctx, damaged); err != nil {
			return 0, err
		}
	}
	if len(readable) == 0 {
		return len(rows), nil
	}
	return len(rows), s.post(ctx, readable)
}

// post appends closings and settles them. One that the ledger refuses is found
// by halving.
func (s *Spool) post(ctx context.Context, rows []row) error {
	closings := make([]ledger.Closing, len(rows))
	for i := range rows {
		closings[i] = rows[i].closing
	}
	within, cancel := context.WithTimeout(ctx, postWithin)
	verdicts, err := s.Ledger.Append(within, closings)
	cancel()
	if !errors.Is(err, ledger.ErrUnavailable) {
		s.back() // before the file is asked: new closings need not wait for it
	}
	switch {
	case err == nil && len(verdicts) != len(rows):
		return fmt.Errorf("%w: %d verdicts for %d closings", ledger.ErrUnavailable, len(verdicts), len(rows))
	case err == nil:
		settled := make([]settlement, len(rows))
		for i := range rows {
			settled[i] = settlement{row: &rows[i], verdict: verdicts[i]}
			settled[i].reason, settled[i].detail = judge(&rows[i].closing, &verdicts[i])
		}
		return s.settle(ctx, settled)
	case errors.Is(err, ledger.ErrUnavailable):
		return err
	case len(rows) == 1:
		return s.settle(ctx, []settlement{{row: &rows[0], reason: reasonRefused, detail: err.Error()}})
	}
	half := len(rows) / 2
	if err := s.post(ctx, rows[:half]); err != nil {
		return err
	}
	return s.post(ctx, rows[half:])
}

// judge says why a spooled closing that the ledger has decided about must be
// filed: "" if it need not. An expiry that a Refund has outranked is as it
// should be.
func judge(c *ledger.Closing, v *ledger.Verdict) (reason, detail string) {
	if v.Rank > c.Rank && c.Rank == ledger.RankExpired || v.Rank == c.Rank && v.Body == c.Body {
		return "", ""
	}
	return reasonConflict, fmt.Sprintf("the ledger holds a closing of rank %d with body %x, closed at %s", v.Rank, v.Body, v.ClosedAt.Format(time.RFC3339Nano))
}

// settlement is a closing that leaves the spool.
type settlement struct {
	row            *row
	verdict        ledger.Verdict // of the ledger; none for reasonRefused
	reason, detail string         // why it is filed; "" if it is in the ledger
}

// settle removes closings from the file, files those that must be, and hands on
// the ledger's verdicts.
func (s *Spool) settle(ctx context.Context, settled []settlement) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: wait for the spool's file: %w", ledger.ErrUnavailable, ctx.Err())
	}
	removed, err := s.remove(settled)
	if err == nil {
		// Still with the turn: what is not in the file must not count as held,
		// and the other way round.
		for _, k := range removed {
			s.held.remove(k)
		}
		if s.held.count() == 0 {
			if err := errors.Join(s.file.shrink(ctx), s.file.reserve.take()); err != nil {
				s.config.Logger.Warn("the spool is drained, and its disk has little room", "error", err)
			}
		}
	}
	<-s.turn
	if err != nil {
		return s.file.failed("remove closings that were posted", err)
	}
	var drained []ledger.Drained
	for i := range settled {
		one := &settled[i]
		if one.reason != "" {
			s.metrics.filed.WithLabelValues(one.reason).Inc()
			s.metrics.filedRows.Inc()
			s.config.Logger.Error("a closing that was acknowledged while the ledger was away can't be in it; it is filed in the spool", "reason", one.reason, "detail", one.detail,
				"account", one.row.closing.Account, "reservation", fmt.Sprintf("%x", one.row.closing.Reservation), "spool", s.config.Path)
		}
		if one.reason != reasonRefused {
			s.metrics.drained.Inc()
			drained = append(drained, ledger.Drained{Closing: one.row.closing, Token: one.row.token, Verdict: one.verdict})
		}
	}
	if len(drained) > 0 {
		s.config.Drained(drained)
	}
	return nil
}

// remove changes the file as settle says, in one transaction, and returns the
// keys that are not in it any more: not those that a closing of a higher rank
// has taken over meanwhile.
func (s *Spool) remove(settled []settlement) (removed []key, err error) {
	now := s.config.Now().UnixMicro()
	err = s.file.inRemoval(func(tx *sql.Tx) error {
		removed = removed[:0]
		for i := range settled {
			one := &settled[i]
			result, err := tx.Stmt(s.file.remove).Exec(one.row.position)
			if err != nil {
				return err
			}
			if gone, err := result.RowsAffected(); err != nil {
				return err
			} else if gone > 0 {
				removed = append(removed, keyOf(&one.row.closing))
			}
			if one.reason == "" {
				continue
			}
			values, err := one.row.values()
			if err != nil {
				return err
			}
			if _, err := tx.Stmt(s.file.fileAway).Exec(append(values, now, one.reason, one.detail)...); err != nil {
				return err
			}
		}
		return nil
	})
	return removed, err
}
