package reporting

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Position is the last row of a page.
type Position struct {
	Start time.Time
	Group []string // with Present in front
	Meter quota.Meter
}

// The layout of a position's text, in base64: version, hash of the query, start
// in Unix seconds (8 bytes, big-endian), then the meter and the group, each
// text after its length in 2 bytes.
const (
	positionVersion = 1
	hashBytes       = 8
	positionHeader  = 1 + hashBytes + 8
	longestPosition = positionHeader + (1+ledger.MaxGroupBy)*(2+len(Present)+ledger.MaxTextBytes)
)

// next returns the text of a row's position.
func (p *Plan) next(row *ledger.ReportRow) string {
	b := make([]byte, 0, 128)
	b = append(b, positionVersion)
	b = append(b, p.hash()...)
	b = binary.BigEndian.AppendUint64(b, uint64(row.Start.Unix()))
	add := func(text string) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
		b = append(b, text...)
	}
	add(string(row.Meter))
	for i, value := range row.Group {
		if row.Absent[i] {
			add("")
		} else {
			add(Present + value)
		}
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parse reads what next wrote; nil for an empty text. The error wraps
// ledger.ErrInvalid.
func (p *Plan) parse(after string) (*Position, error) {
	if after == "" {
		return nil, nil
	}
	bad := fmt.Errorf("%w: after: is none that a page gave as next; leave it out to start", ledger.ErrInvalid)
	if len(after) > base64.RawURLEncoding.EncodedLen(longestPosition) {
		return nil, bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(after)
	if err != nil || len(b) < positionHeader || b[0] != positionVersion {
		return nil, bad
	}
	if !bytes.Equal(b[1:1+hashBytes], p.hash()) {
		return nil, fmt.Errorf("%w: after: is of another query; only limit may differ from page to page", ledger.ErrInvalid)
	}
	position := &Position{Start: time.Unix(int64(binary.BigEndian.Uint64(b[1+hashBytes:])), 0).UTC()}
	unit := p.ReportQuery
	unit.From = position.Start
	if start, _ := unit.Span(); !start.Equal(position.Start) || start.Before(p.span.From) || !start.Before(p.span.To) {
		return nil, bad
	}
	b = b[positionHeader:]
	texts := make([]string, 1+len(p.GroupBy))
	for i := range texts {
		if len(b) < 2 {
			return nil, bad
		}
		size := int(binary.BigEndian.Uint16(b))
		b = b[2:]
		if len(b) < size {
			return nil, bad
		}
		texts[i], b = string(b[:size]), b[size:]
		if !utf8.ValidString(texts[i]) || strings.ContainsRune(texts[i], 0) {
			return nil, bad
		}
		if i > 0 && texts[i] != "" && !strings.HasPrefix(texts[i], Present) {
			return nil, bad
		}
	}
	if len(b) > 0 {
		return nil, bad
	}
	position.Meter, position.Group = quota.Meter(texts[0]), texts[1:]
	return position, nil
}

// hash tells queries apart: a page goes on from another of the same query.
func (p *Plan) hash() []byte {
	from, to := p.Span()
	b := binary.BigEndian.AppendUint64(nil, uint64(from.Unix()))
	b = binary.BigEndian.AppendUint64(b, uint64(to.Unix()))
	add := func(text string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}
	count := func(texts int) { b = binary.BigEndian.AppendUint32(b, uint32(texts)) }
	add(p.Account)
	add(string(p.Grain))
	count(len(p.GroupBy))
	for _, name := range p.GroupBy {
		add(name)
	}
	count(len(p.Labels))
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		add(name)
		add(p.Labels[name])
	}
	for _, meter := range p.Meters {
		add(string(meter))
	}
	sum := sha256.Sum256(b)
	return sum[:hashBytes]
}
