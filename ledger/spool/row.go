package spool

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/posting"
	"github.com/budgetd/budgetd/quota"
)

// columns of a closing, in spooled and in filed, in the order of row.values.
const columns = `account, reservation, month, rank, late, degraded, minted_us, closed_at_us, spooled_at_us,
	body, price_version, labels, outcome, lines, token`

// row is a closing in the file.
type row struct {
	position  int64
	closing   ledger.Closing
	token     []byte
	spooledAt int64 // microseconds

	// unreadable says why labels or lines can't be read; nil: they can. What the
	// file has in their place is kept as it is.
	unreadable                error
	storedLabels, storedLines string
}

// storedLine is a line of a closing as the file has it.
type storedLine struct {
	Limit  string       `json:"limit,omitempty"`
	Scope  string       `json:"scope,omitempty"`
	Period string       `json:"period"`
	Meter  quota.Meter  `json:"meter"`
	Amount quota.Amount `json:"amount"`
	Held   quota.Amount `json:"held,omitempty"`
}

// values are the arguments for columns.
func (r *row) values() ([]any, error) {
	c := &r.closing
	labels, lines, err := r.texts()
	if err != nil {
		return nil, err
	}
	return []any{
		c.Account, c.Reservation[:], keyOf(c).month, int(c.Rank), c.Late, c.Degraded,
		c.Minted.UnixMicro(), c.ClosedAt.UnixMicro(), r.spooledAt,
		c.Body[:], c.PriceVersion, labels, blob(c.Outcome), lines, blob(r.token),
	}, nil
}

// texts returns labels and lines as the file has them.
func (r *row) texts() (labels, lines string, err error) {
	if r.unreadable != nil {
		return r.storedLabels, r.storedLines, nil
	}
	if labels, err = posting.EncodeLabels(r.closing.Labels); err != nil {
		return "", "", err
	}
	stored := make([]storedLine, len(r.closing.Lines))
	for i, line := range r.closing.Lines {
		stored[i] = storedLine(line)
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return "", "", fmt.Errorf("encode the lines: %w", err)
	}
	return labels, string(text), nil
}

// blob returns what is not NULL in SQLite.
func blob(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// scanRow reads position and columns. An error is the file's; that the texts of
// one row can't be read is said in the row.
func scanRow(scan func(...any) error) (row, error) {
	var (
		r                         row
		reservation, body         []byte
		month, mintedAt, closedAt int64
		labels, lines             string
		stored                    []storedLine
		c                         = &r.closing
	)
	err := scan(&r.position, &c.Account, &reservation, &month, &c.Rank, &c.Late, &c.Degraded, &mintedAt, &closedAt, &r.spooledAt,
		&body, &c.PriceVersion, &labels, &c.Outcome, &lines, &r.token)
	if err != nil {
		return row{}, err
	}
	copy(c.Reservation[:], reservation)
	copy(c.Body[:], body)
	c.Minted, c.ClosedAt = time.UnixMicro(mintedAt).UTC(), time.UnixMicro(closedAt).UTC()
	if len(c.Outcome) == 0 {
		c.Outcome = nil
	}
	if c.Labels, err = posting.DecodeLabels(labels); err == nil {
		if err = json.Unmarshal([]byte(lines), &stored); err != nil {
			err = fmt.Errorf("decode the lines: %w", err)
		}
	}
	if err != nil {
		r.unreadable, r.storedLabels, r.storedLines = err, labels, lines
		return r, nil
	}
	for _, line := range stored {
		c.Lines = append(c.Lines, ledger.Line(line))
	}
	return r, nil
}

// bytes is about how much memory the row takes.
func (r *row) bytes() int {
	const line = 150 // bytes of a line with texts of usual length
	return len(r.closing.Outcome) + len(r.token) + line*len(r.closing.Lines)
}

// sortLines puts lines in the order in which ledgers return them.
func sortLines(account string, lines []ledger.Line) {
	slices.SortFunc(lines, func(a, b ledger.Line) int { return a.Key(account).Compare(b.Key(account)) })
}
