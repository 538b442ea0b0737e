package alerts

import (
	"context"
	"database/sql"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Claim takes at most limit alerts whose next attempt is due at now, the
// longest due first, and counts an attempt of each. Until the claim ends, at now
// + lease, no other call takes them; if the caller dies they are due again
// then. The error wraps [ErrUnavailable] or is the context's: then what was
// taken is due again when the claim ends.
func (s *Store) Claim(ctx context.Context, now time.Time, lease time.Duration, limit int) ([]Alert, error) {
	var claimed []Alert
	err := s.each(ctx, func(rows *sql.Rows) error {
		a, err := scanAlert(rows)
		claimed = append(claimed, a)
		return err
	}, `UPDATE quota_alerts SET next_attempt_us = $1, attempts = attempts + 1
		WHERE id IN (
			SELECT id FROM quota_alerts WHERE next_attempt_us <= $2
			ORDER BY next_attempt_us, id LIMIT $3`+s.skipLocked+`)
		RETURNING `+alertColumns, now.Add(lease).UnixMicro(), now.UnixMicro(), limit)
	if err != nil {
		return nil, unavailable(ctx, "claim alerts to deliver", err)
	}
	return claimed, nil
}

// Delivered notes that the receiver has the alert, whatever was noted before.
// The error wraps [ErrUnavailable] or is the context's.
func (s *Store) Delivered(ctx context.Context, id string, at time.Time) error {
	_, err := s.db.ExecContext(ctx, `UPDATE quota_alerts
		SET delivered_at_us = $1, next_attempt_us = NULL, failed_at_us = NULL
		WHERE id = $2 AND delivered_at_us IS NULL`, at.UnixMicro(), id)
	return unavailable(ctx, "note that an alert was delivered", err)
}

// Retry notes why the claimed attempt failed, and when the next one is due. It
// changes nothing when the claim has ended and another attempt was begun. The
// error wraps [ErrUnavailable] or is the context's.
func (s *Store) Retry(ctx context.Context, claimed Alert, next time.Time, why string) error {
	_, err := s.db.ExecContext(ctx, `UPDATE quota_alerts SET next_attempt_us = $1, last_error = $2
		WHERE id = $3 AND attempts = $4 AND next_attempt_us IS NOT NULL`,
		next.UnixMicro(), cut(why), claimed.ID, claimed.Attempts)
	return unavailable(ctx, "put off an alert", err)
}

// Fail gives an alert up after the claimed attempt, as [Store.Retry] would put
// it off.
func (s *Store) Fail(ctx context.Context, claimed Alert, at time.Time, why string) error {
	_, err := s.db.ExecContext(ctx, `UPDATE quota_alerts SET failed_at_us = $1, next_attempt_us = NULL, last_error = $2
		WHERE id = $3 AND attempts = $4 AND next_attempt_us IS NOT NULL`,
		at.UnixMicro(), cut(why), claimed.ID, claimed.Attempts)
	return unavailable(ctx, "give up an alert", err)
}

// Pending returns how many alerts wait to be delivered. The error wraps
// [ErrUnavailable] or is the context's.
func (s *Store) Pending(ctx context.Context) (int64, error) {
	var n int64
	err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM quota_alerts WHERE next_attempt_us IS NOT NULL`).Scan(&n)
	return n, unavailable(ctx, "count the alerts to deliver", err)
}

// cut makes an error's text one that every database keeps: bounded, valid UTF-8
// and without control characters.
func cut(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) <= MaxErrorBytes {
		return text
	}
	end := MaxErrorBytes
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
