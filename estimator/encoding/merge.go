package encoding

import "math"

// Byte pair encoding of a piece starts from its bytes, each of which is a token.
// Of all adjacent pairs that together are a token the one of the lowest rank is
// merged, the leftmost on a tie, until no pair is. The count is the number of
// parts that are left. A piece that is a token as a whole is one.

// shortPiece is the longest piece, in bytes, that is merged by looking through
// all pairs for the lowest rank after every merge: quadratic, and for a word the
// fastest way.
const (
	startBits  = 7
	shortPiece = 1 << startBits
)

// countPiece returns the tokens of a piece, or false when stop was closed
// before they were known.
func (c *Counter) countPiece(piece string, stop <-chan struct{}) (int, bool) {
	switch {
	case len(piece) <= 1:
		return len(piece), true
	case c.rank(piece) != noRank:
		return 1, true
	case len(piece) <= shortPiece:
		return c.countShort(piece), true
	default:
		s := borrowScratch()
		defer returnScratch(s)
		return s.countLong(&c.vocabulary, piece, stop)
	}
}

// countShort keeps for each part the rank of the pair that it begins, above its
// number: the smallest of these is the leftmost pair of lowest rank.
func (v *vocabulary) countShort(piece string) int {
	const none = math.MaxUint32
	var pairs [shortPiece]uint32     // by number of the pair's first part
	var starts [shortPiece + 1]uint8 // where parts begin, and the end
	var next, prev [shortPiece]uint8 // numbers of the neighbours
	count := 0
	for i := 0; i < len(piece); count++ {
		starts[count], next[count], prev[count] = uint8(i), uint8(count+1), uint8(count-1)
		i += v.atoms.size(piece, i)
	}
	starts[count] = uint8(len(piece))
	last := uint8(count) // the number beyond the last part
	pair := func(first, beyond uint8) uint32 {
		if r := v.rank(piece[starts[first]:starts[beyond]]); r != noRank {
			return uint32(r)<<startBits | uint32(first)
		}
		return none
	}
	for i := range last {
		pairs[i] = none
		if i+1 < last {
			pairs[i] = pair(i, i+2)
		}
	}
	for parts := count; ; parts-- {
		lowest := uint32(none)
		for _, p := range pairs[:last] {
			lowest = min(lowest, p)
		}
		if lowest == none {
			return parts
		}
		at := uint8(lowest & (shortPiece - 1))
		middle := next[at]
		end := next[middle]
		next[at] = end
		pairs[at], pairs[middle] = none, none
		if end < last {
			prev[end] = at
			pairs[at] = pair(at, next[end])
		}
		if at > 0 {
			pairs[prev[at]] = pair(prev[at], end)
		}
	}
}
