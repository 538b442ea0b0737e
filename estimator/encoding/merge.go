package encoding

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

// Byte pair encoding of a piece starts from its bytes, each of which is a token.
// Of all adjacent pairs that together are a token the one of the lowest rank is
// merged, the leftmost on a tie, until no pair is. The count is the number of
// parts that are left. A piece that is a token as a whole is one.

// shortPiece and shortParts are the longest piece, in bytes and in the parts it
// starts from, that is merged by looking through all pairs for the lowest rank
// after every merge: quadratic, and for a word the fastest way. The numbers of the
// parts and of the end are the bits of one number.
const (
	shortPiece = 128
	shortParts = 63
)

// shortText is a short piece, after which eight bytes can be read.
type shortText [shortPiece + shortBytes]byte

// countPiece returns the tokens of a piece, or false when stop was closed
// before they were known.
func (c *Counter) countPiece(piece string, stop <-chan struct{}) (int, bool) {
	switch {
	case len(piece) <= 1:
		return len(piece), true
	case c.rank(piece) != noRank:
		return 1, true
	case len(piece) <= shortPiece:
		if n, ok := c.countShort(piece); ok {
			return n, true
		}
	}
	s := borrowScratch()
	defer returnScratch(s)
	return s.countLong(&c.vocabulary, piece, stop)
}

// countShort keeps for each part the rank of the pair that it begins, above its
// number: the smallest of these is the leftmost pair of lowest rank. It returns
// false for a piece of too many parts.
func (v *vocabulary) countShort(piece string) (int, bool) {
	const (
		numberBits = 6
		none       = math.MaxUint32
	)
	var text shortText
	var pairs [shortParts]uint32     // by number of the pair's first part
	var starts [shortParts + 1]uint8 // where parts begin, and the end
	copy(text[:shortPiece], piece)
	last := 0 // the number beyond the last part
	for i := 0; i < len(piece); last++ {
		if last == shortParts {
			return 0, false
		}
		starts[last] = uint8(i)
		if piece[i] < utf8.RuneSelf {
			i++
		} else {
			i += v.atoms.size(piece, i)
		}
	}
	starts[last] = uint8(len(piece))
	parts := uint64(1)<<(last+1) - 1 // those that are left, and the end
	after := func(number int) int { return number + 1 + bits.TrailingZeros64(parts>>1>>number) }
	pair := func(first, beyond int) uint32 {
		if r := v.rankIn(&text, starts[first], starts[beyond]); r != noRank {
			return uint32(r)<<numberBits | uint32(first)
		}
		return none
	}
	for i := range last - 1 {
		pairs[i] = pair(i, i+2)
	}
	pairs[last-1] = none
	for {
		lowest := uint32(none)
		for _, p := range pairs[:last] {
			lowest = min(lowest, p)
		}
		if lowest == none {
			return bits.OnesCount64(parts) - 1, true
		}
		at := int(lowest & (1<<numberBits - 1))
		middle := after(at)
		end := after(middle)
		parts &^= 1 << middle
		pairs[at], pairs[middle] = none, none
		if end < last {
			pairs[at] = pair(at, after(end))
		}
		if before := parts & (1<<at - 1); before != 0 {
			first := bits.Len64(before) - 1
			pairs[first] = pair(first, end)
		}
	}
}

// rankIn returns the rank of the bytes of a short text from start to end, at
// least two, or noRank.
func (v *vocabulary) rankIn(text *shortText, start, end uint8) rank {
	size := end - start
	switch {
	case size == 2:
		return v.pairs[int(text[start])<<8|int(text[start+1])]
	case size > shortBytes || text[end-1] == 0:
		return v.rank(unsafe.String(&text[start], size))
	default:
		return v.words.rank(binary.LittleEndian.Uint64(text[start:]) & keep[size])
	}
}
