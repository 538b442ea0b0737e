package pgledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/budgetd/budgetd/ledger"
)

// rollAtOnce is how many deltas one Maintain moves into the sums: a fraction of
// a second of work.
const rollAtOnce = 20_000

// Maintain implements [ledger.Maintainer]. One call detaches one month at most;
// how long that takes depends on the readers that must end first, and a call
// that is cut off is gone on with by the next, of any node.
func (l *Ledger) Maintain(ctx context.Context, now time.Time, retention time.Duration) (ledger.Maintenance, error) {
	var done ledger.Maintenance
	if err := ledger.ValidateRetention(retention); err != nil {
		return done, err
	}
	if err := l.enter(); err != nil {
		return done, err
	}
	defer l.calls.Done()
	var err error
	if done.Made, err = l.makeMonths(ctx, now); err != nil {
		return done, wrap("make months", err)
	}
	l.labels.forgetAt(now)
	if done.Rolled, err = l.roll(ctx); err != nil {
		return done, wrap("roll up deltas", err)
	}
	pruning, err := l.pruneChanges(ctx)
	if err != nil {
		return done, wrap("prune the log of changes", err)
	}
	if done.Detached, done.More, err = l.retire(ctx, now, retention); err != nil {
		return done, wrap("detach a month", err)
	}
	done.More = done.More || pruning || done.Rolled == rollAtOnce
	return done, nil
}

// Now is the server's clock, which all nodes share: a node whose own clock is
// wrong must not decide which months are kept.
func (l *Ledger) Now(ctx context.Context) (now time.Time, err error) {
	if err := l.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return time.Time{}, wrap("read the server's clock", err)
	}
	return now, nil
}

// roll moves deltas into the sums, unless another node is at it.
func (l *Ledger) roll(ctx context.Context) (rolled int, err error) {
	err = inWrite(ctx, l.pool, func(tx pgx.Tx) error {
		var mine bool
		err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(hashtext('budgetd.roll_deltas'))`).Scan(&mine)
		if err != nil || !mine {
			return err
		}
		return tx.QueryRow(ctx, rollDeltas, rollAtOnce).Scan(&rolled)
	})
	return rolled, err
}
