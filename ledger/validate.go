package ledger

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/budgetd/budgetd/quota"
)

// Bounds of the instants that a ledger keeps, to the microsecond: both are
// instants that every engine and every month's partition can hold.
var (
	MinInstant = time.Unix(0, 0).UTC()                       // the first
	EndInstant = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) // the first that is too late
)

// MaxAppend is how many closings one Append accepts.
const MaxAppend = 4096

// MaxAccountUsage is how many rows AccountUsage returns at most.
const MaxAccountUsage = 10_000

// ValidateAll returns the first fault of the closings of one Append, as
// "closings[3].rank: ...". It wraps [ErrInvalid].
func ValidateAll(closings []Closing) error {
	if len(closings) > MaxAppend {
		return fmt.Errorf("%w: closings: %d in one call, at most %d are accepted; append them in parts", ErrInvalid, len(closings), MaxAppend)
	}
	for i := range closings {
		if problem := closings[i].problem(); problem != "" {
			return fmt.Errorf("%w: closings[%d].%s", ErrInvalid, i, problem)
		}
	}
	return nil
}

// Validate returns an error that wraps [ErrInvalid] and names the field and
// its bound unless the closing is one that Append accepts:
//
//   - account: 1 to MaxTextBytes bytes; reservation: not all zero
//   - minted, closed_at: from MinInstant to before EndInstant
//   - rank: RankExpired or RankRefunded
//   - outcome: at most MaxOutcomeBytes bytes
//   - price_version, and limit and scope of a line: at most MaxTextBytes bytes,
//     may be empty
//   - labels: at most quota.MaxLabels; names 1 to MaxTextBytes bytes, values at
//     most MaxTextBytes
//   - lines: at most MaxLines, no two for the same usage row; period and meter
//     1 to MaxTextBytes bytes; amount and held 0 to quota.MaxAmount, held 0 but
//     in lines of totals
//
// Every text is valid UTF-8 without a NUL byte, which PostgreSQL can't store.
func (c Closing) Validate() error {
	if problem := c.problem(); problem != "" {
		return fmt.Errorf("%w: %s", ErrInvalid, problem)
	}
	return nil
}

func (c *Closing) problem() string {
	if p := requiredText("account", c.Account); p != "" {
		return p
	}
	if c.Reservation == ([16]byte{}) {
		return "reservation: is all zero; give the reservation's id"
	}
	if p := instantProblem("minted", c.Minted); p != "" {
		return p
	}
	if p := instantProblem("closed_at", c.ClosedAt); p != "" {
		return p
	}
	if c.Rank != RankExpired && c.Rank != RankRefunded {
		return fmt.Sprintf("rank: %d is neither %d (expired) nor %d (refunded)", c.Rank, RankExpired, RankRefunded)
	}
	if len(c.Outcome) > MaxOutcomeBytes {
		return fmt.Sprintf("outcome: has %d bytes, at most %d are accepted", len(c.Outcome), MaxOutcomeBytes)
	}
	if p := textProblem("price_version", c.PriceVersion); p != "" {
		return p
	}
	if p := labelProblem(c.Labels); p != "" {
		return p
	}
	return c.lineProblem()
}

func labelProblem(labels map[string]string) string {
	if len(labels) > quota.MaxLabels {
		return fmt.Sprintf("labels: %d are stated, at most %d are accepted", len(labels), quota.MaxLabels)
	}
	faulty, problem := "", ""
	for name, value := range labels {
		p := requiredText("name", name)
		if p == "" {
			p = textProblem("value", value)
		}
		// Maps have no order: report the first in byte order of the names.
		if p != "" && (problem == "" || name < faulty) {
			faulty, problem = name, p
		}
	}
	if problem != "" {
		return fmt.Sprintf("labels[%s]: %s", quoteShort(faulty), problem)
	}
	return ""
}

func (c *Closing) lineProblem() string {
	if len(c.Lines) > MaxLines {
		return fmt.Sprintf("lines: %d are stated, at most %d are accepted", len(c.Lines), MaxLines)
	}
	for i := range c.Lines {
		line := &c.Lines[i]
		p := textProblem("limit", line.Limit)
		if p == "" {
			p = textProblem("scope", line.Scope)
		}
		if p == "" {
			p = requiredText("period", line.Period)
		}
		if p == "" {
			p = requiredText("meter", string(line.Meter))
		}
		if p == "" {
			if err := line.Amount.Check(); err != nil {
				p = "amount: " + err.Error()
			}
		}
		if p == "" {
			p = line.heldProblem()
		}
		if p != "" {
			return fmt.Sprintf("lines[%d].%s", i, p)
		}
	}
	if first, second := c.repeatedLine(); second > 0 {
		return fmt.Sprintf("lines[%d]: names the usage row of lines[%d]; add the amounts up", second, first)
	}
	return ""
}

// repeatedLine returns the first two lines of one usage row, or zeros.
func (c *Closing) repeatedLine() (first, second int) {
	const few = 16 // up to here comparing all pairs beats a map
	if len(c.Lines) <= few {
		for second := 1; second < len(c.Lines); second++ {
			for first := range second {
				if c.Lines[first].sameRow(&c.Lines[second]) {
					return first, second
				}
			}
		}
		return 0, 0
	}
	seen := make(map[Line]int, len(c.Lines))
	for i, line := range c.Lines {
		line.Amount, line.Held = 0, 0
		if first, repeated := seen[line]; repeated {
			return first, i
		}
		seen[line] = i
	}
	return 0, 0
}

func (l *Line) heldProblem() string {
	if l.Limit != "" && l.Held != 0 {
		return fmt.Sprintf("held: is %d in a line of a limit; state what was held in the totals, whose limit is empty", l.Held)
	}
	if err := l.Held.Check(); err != nil {
		return "held: " + err.Error()
	}
	return ""
}

func (l *Line) sameRow(other *Line) bool {
	return l.Limit == other.Limit && l.Scope == other.Scope && l.Period == other.Period && l.Meter == other.Meter
}

// ValidateAccountUsage returns an error that wraps [ErrInvalid] unless the
// arguments of AccountUsage are in their bounds.
func ValidateAccountUsage(account, period string, limit int) error {
	problem := requiredText("account", account)
	if problem == "" {
		problem = textProblem("period", period)
	}
	if problem == "" && (limit < 1 || limit > MaxAccountUsage) {
		problem = fmt.Sprintf("limit: %d is not between 1 and %d", limit, MaxAccountUsage)
	}
	if problem != "" {
		return fmt.Errorf("%w: %s", ErrInvalid, problem)
	}
	return nil
}

// ValidateClosingKey returns an error that wraps [ErrInvalid] unless the
// arguments can name a closing.
func ValidateClosingKey(account string, minted time.Time) error {
	problem := requiredText("account", account)
	if problem == "" {
		problem = instantProblem("minted", minted)
	}
	if problem != "" {
		return fmt.Errorf("%w: %s", ErrInvalid, problem)
	}
	return nil
}

// Validate returns an error that wraps [ErrInvalid] and names the field unless
// the query is within its bounds: account and labels as those of a closing,
// from before to, both in the instants that a ledger keeps (to may be the first
// that is too late), limit 1 to MaxPage.
func (q *ClosingsQuery) Validate() error {
	problem := textProblem("account", q.Account)
	if problem == "" {
		problem = labelProblem(q.Labels)
	}
	if problem == "" {
		problem = spanProblem(q.From, q.To)
	}
	if problem == "" {
		problem = pageProblem(q.Limit)
	}
	return invalid(problem)
}

func spanProblem(from, to time.Time) string {
	switch {
	case from.Before(MinInstant) || !from.Before(EndInstant):
		return instantProblem("from", from)
	case to.After(EndInstant):
		return instantProblem("to", to)
	case !from.Before(to):
		return fmt.Sprintf("to: %s is not after from, %s", to.UTC().Format(time.RFC3339Nano), from.UTC().Format(time.RFC3339Nano))
	}
	return ""
}

// ValidatePage returns an error that wraps [ErrInvalid] unless limit is between
// 1 and MaxPage.
func ValidatePage(limit int) error { return invalid(pageProblem(limit)) }

func pageProblem(limit int) string {
	if limit < 1 || limit > MaxPage {
		return fmt.Sprintf("limit: %d is not between 1 and %d", limit, MaxPage)
	}
	return ""
}

func instantProblem(field string, at time.Time) string {
	if at.Before(MinInstant) || !at.Before(EndInstant) {
		return fmt.Sprintf("%s: %s is not between %s and %s", field,
			at.UTC().Format(time.RFC3339), MinInstant.Format(time.RFC3339), EndInstant.Format(time.RFC3339))
	}
	return ""
}

func requiredText(field, text string) string {
	if text == "" {
		return field + ": is empty"
	}
	return textProblem(field, text)
}

func textProblem(field, text string) string {
	switch {
	case len(text) > MaxTextBytes:
		return fmt.Sprintf("%s: has %d bytes, at most %d are accepted", field, len(text), MaxTextBytes)
	case strings.IndexByte(text, 0) >= 0:
		return field + ": contains a NUL byte; remove it"
	case !utf8.ValidString(text):
		return field + ": is not valid UTF-8; encode it as UTF-8"
	}
	return ""
}

// quoteShort quotes text for a message, cut so that a hostile input does not
// fill a log.
func quoteShort(text string) string {
	const longest = 80
	if len(text) <= longest {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q", strings.ToValidUTF8(text[:longest-3], "")+"...")
}
