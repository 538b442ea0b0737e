package quota

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// MaxLimitIDBytes bounds what [Limit.ID] returns.
const MaxLimitIDBytes = maxNameBytes + 1 + 8

// ID returns the id under which engines and ledgers keep the limit's state:
// its name, a dot, and 8 hex digits of a hash over what its counters mean
// (kind, meter, per labels and, for a quota, the period's unit). A limit that
// changes its meaning therefore never reads the counters of the old one, while
// a changed rate, burst, max, match, cost or rule keeps them.
//
// It is at most [MaxLimitIDBytes] of [a-z0-9_.-] and unique in a plan, as the
// name is. Algorithm and field order are part of the stored layout.
func (l Limit) ID() string {
	var meaning []byte
	field := func(text string) {
		meaning = strconv.AppendInt(meaning, int64(len(text)), 10)
		meaning = append(meaning, ':')
		meaning = append(meaning, text...)
	}
	field(strconv.Itoa(int(l.Kind)))
	field(string(l.Meter))
	for _, label := range normalPer(l.Per) {
		field(label)
	}
	if l.Kind == KindQuota {
		// No label name contains '/', so this cannot be read as one more label.
		field("/" + string(l.Period))
	}
	sum := sha256.Sum256(meaning)
	return l.Name + "." + hex.EncodeToString(sum[:4])
}

// LimitName returns the name in an id that [Limit.ID] gave, also of a limit that
// no policy has any more; "" of "".
func LimitName(id string) string {
	name, _, _ := strings.Cut(id, ".") // a name has no dot
	return name
}
