package encoding

import (
	"sync"
	"unicode/utf8"
	"unsafe"
)

// A long piece is merged in windows that overlap. That is exact:
//
// Let a row of tokens be given in which each two neighbours are what byte pair
// encoding makes of the two together. Then the row is what it makes of the
// whole. For take the first merge, in the order of the whole, that crosses a
// boundary of the row, between tokens a and b. Until then nothing crossed the
// outer ends of a and b, so the merges inside them were those that encoding the
// two alone makes, in the same order; it would cross there too, against what is
// given. The same argument the other way round: in what byte pair encoding makes
// of a text, each two neighbours are what it makes of the two.
//
// So where two windows have a token in common, at the same place, the tokens of
// the first up to it and those of the second from it on are the tokens of both
// together. The work then stays in the processor's caches, whatever the length
// of the piece, and takes a time in proportion to it. Windows without a common
// token were not met in practice; a piece that has them is merged as one.
const (
	windowBytes  = 2 << 10
	overlapBytes = 256
)

// scratch is the working memory of one count, reused between counts.
type scratch struct {
	text []byte // of valid

	// By the offset at which a part begins.
	sizes []uint8 // bytes of the part; 0 when none begins here
	backs []uint8 // bytes of the part that ends before here
	ranks []rank  // of the pair that the part begins; noRank when it is no token
	heap  pairHeap

	ends []int // of the tokens at the end of the last window, from its overlap on

	taken int // pairs taken from the heap so far: the measure of work that a test bounds
}

// maxKeptBytes bounds the bytes of text for which scratch is kept, so that one
// hostile call doesn't make all later ones hold its memory.
const maxKeptBytes = 1 << 20

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func borrowScratch() *scratch { return scratches.Get().(*scratch) }

func returnScratch(s *scratch) {
	if cap(s.sizes) <= maxKeptBytes && cap(s.text) <= maxKeptBytes {
		scratches.Put(s)
	}
}

// valid returns the text with U+FFFD for each byte that is not UTF-8. It stands
// in the scratch until the next call.
func (s *scratch) valid(text string) string {
	s.text = s.text[:0]
	for _, r := range text {
		s.text = utf8.AppendRune(s.text, r)
	}
	return unsafe.String(unsafe.SliceData(s.text), len(s.text))
}

// countLong returns the tokens of a piece that is no token, or false when stop
// was closed before they were known.
func (s *scratch) countLong(v *vocabulary, piece string, stop <-chan struct{}) (int, bool) {
	total, start, from := 0, 0, 0 // tokens before from, which is in the window at start
	for {
		window := piece[start:min(start+windowBytes, len(piece))]
		if !s.merge(v, window, stop) {
			return 0, false
		}
		if start > 0 {
			common, before := s.common(start)
			if common < 0 {
				break
			}
			total += before
			from = common
		}
		if start+len(window) == len(piece) {
			return total + s.tokens(from-start, len(window)), true
		}
		// The next window begins with a token of this one.
		next := from - start
		for next < windowBytes-overlapBytes {
			next += int(s.sizes[next])
			total++
		}
		s.ends = append(s.ends[:0], start+next)
		for at := next; at < len(window); {
			at += int(s.sizes[at])
			s.ends = append(s.ends, start+at)
		}
		start += next
	}
	if !s.merge(v, piece, stop) {
		return 0, false
	}
	return s.tokens(0, len(piece)), true
}

// common returns where the first token begins that the last window and the one
// at start have in common, and how many tokens of the last window, from start
// on, are before it. It returns -1 when there is none.
func (s *scratch) common(start int) (at, before int) {
	ours := start
	for i := 1; i < len(s.ends); i++ {
		for ours < s.ends[i-1] {
			ours += int(s.sizes[ours-start])
		}
		if ours == s.ends[i-1] && ours+int(s.sizes[ours-start]) == s.ends[i] {
			return ours, i - 1
		}
	}
	return -1, 0
}

// tokens returns how many parts the last merge left between two offsets.
func (s *scratch) tokens(from, to int) int {
	n := 0
	for at := from; at < to; at += int(s.sizes[at]) {
		n++
	}
	return n
}

// pollPairs is how many pairs are taken from the heap between two looks at
// whether the caller still waits.
const pollPairs = 4 << 10

// merge leaves the tokens of some text in s.sizes, or returns false when stop
// was closed before it was done. It takes n log n.
func (s *scratch) merge(v *vocabulary, text string, stop <-chan struct{}) bool {
	n := len(text)
	if cap(s.sizes) < n {
		s.sizes, s.backs, s.ranks = make([]uint8, n), make([]uint8, n), make([]rank, n)
	}
	sizes, backs, ranks := s.sizes[:n], s.backs[:n], s.ranks[:n]
	s.sizes, s.heap = sizes, s.heap[:0]
	clear(sizes)
	for i, back := 0, 0; i < n; {
		size := v.atoms.size(text, i)
		sizes[i], backs[i], ranks[i] = uint8(size), uint8(back), noRank
		i, back = i+size, size
	}
	for i := 0; i+int(sizes[i]) < n; i += int(sizes[i]) {
		middle := i + int(sizes[i])
		if r := v.rank(text[i : middle+int(sizes[middle])]); r != noRank {
			ranks[i] = r
			s.heap = append(s.heap, pairOf(r, i))
		}
	}
	s.heap.order()
	for polled := 0; len(s.heap) > 0; polled++ {
		if polled == pollPairs {
			if polled = 0; stopped(stop) {
				return false
			}
		}
		s.taken++
		r, at := s.heap[0].split()
		if ranks[at] != r {
			s.heap.pop() // a part of it was merged since
			continue
		}
		middle := at + int(sizes[at])
		end := middle + int(sizes[middle])
		sizes[at], sizes[middle] = uint8(end-at), 0
		ranks[at], ranks[middle] = noRank, noRank
		if end < n {
			backs[end] = uint8(end - at)
			ranks[at] = v.rank(text[at : end+int(sizes[end])])
		}
		if ranks[at] != noRank {
			s.heap.replace(pairOf(ranks[at], at))
		} else {
			s.heap.pop()
		}
		if at > 0 {
			before := at - int(backs[at])
			if ranks[before] = v.rank(text[before:end]); ranks[before] != noRank {
				s.heap.push(pairOf(ranks[before], before))
			}
		}
	}
	return true
}

// pair is the rank of two neighbours above the offset of the first: the smallest
// is the leftmost of lowest rank.
type pair uint64

func pairOf(r rank, at int) pair  { return pair(r)<<32 | pair(at) }
func (p pair) split() (rank, int) { return rank(p >> 32), int(p & (1<<32 - 1)) }

// pairHeap is a binary heap with the smallest pair first: container/heap without
// its interface calls.
type pairHeap []pair

// order makes a heap of pairs in any order.
func (h pairHeap) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i, h[i])
	}
}

func (h *pairHeap) push(p pair) {
	s := append(*h, p)
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent] <= p {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = p
	*h = s
}

// pop takes out the smallest pair.
func (h *pairHeap) pop() {
	s := *h
	last := s[len(s)-1]
	s = s[:len(s)-1]
	if len(s) > 0 {
		s.down(0, last)
	}
	*h = s
}

// replace takes out the smallest pair and puts in another.
func (h pairHeap) replace(p pair) { h.down(0, p) }

// down puts a pair at place i or below.
func (h pairHeap) down(i int, p pair) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if p <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = p
}
