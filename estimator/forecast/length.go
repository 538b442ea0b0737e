package forecast

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// Length is one settled call.
type Length struct {
	Tokens int64 // 0 or more
	Cut    bool  // at its bound: at least Tokens
	At     int64 // microseconds since 1970
}

func compareLengths(a, b Length) int {
	cut := 0
	if a.Cut != b.Cut {
		cut = 1
		if b.Cut {
			cut = -1
		}
	}
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Tokens, b.Tokens), cut)
}

// Union returns the newest [Samples] of the lengths of both, each once, the
// oldest first. It does not matter in which order, or how often, what several
// brokers learned is put together. Two calls of one length in the same microsecond
// count as one.
func Union(a, b []Length) []Length {
	all := slices.Concat(a, b)
	slices.SortFunc(all, compareLengths)
	all = slices.Compact(all)
	return slices.Clip(all[max(len(all)-Samples, 0):])
}

// lengthsVersion is the first byte of packed lengths.
const lengthsVersion = 1

// MaxPacked is the most bytes that Pack makes.
const MaxPacked = 2 + Samples*2*binary.MaxVarintLen64

var errPacked = errors.New("forecast: packed lengths can't be read")

// Pack returns lengths as a few bytes each. They must be those of a [Union].
func Pack(lengths []Length) []byte {
	b := make([]byte, 0, 2+len(lengths)*6)
	b = append(b, lengthsVersion)
	before := int64(0)
	for _, l := range lengths {
		b = binary.AppendVarint(b, l.At-before)
		tokens := uint64(l.Tokens) << 1
		if l.Cut {
			tokens |= 1
		}
		b = binary.AppendUvarint(b, tokens)
		before = l.At
	}
	return b
}

// Unpack reads what Pack made. It fails on anything else.
func Unpack(b []byte) ([]Length, error) {
	if len(b) == 0 || len(b) > MaxPacked || b[0] != lengthsVersion {
		return nil, errPacked
	}
	var lengths []Length
	before := int64(0)
	for b = b[1:]; len(b) > 0; {
		at, n := binary.Varint(b)
		if n <= 0 {
			return nil, errPacked
		}
		tokens, m := binary.Uvarint(b[n:])
		if m <= 0 || len(lengths) == Samples {
			return nil, errPacked
		}
		b = b[n+m:]
		before += at
		lengths = append(lengths, Length{Tokens: int64(tokens >> 1), Cut: tokens&1 == 1, At: before})
	}
	if !slices.IsSortedFunc(lengths, compareLengths) {
		return nil, errPacked
	}
	return lengths, nil
}
