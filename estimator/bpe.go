package estimator

import (
	"math"
	"sync"
)

// noRank marks a pair that is no token. Ranks of the embedded files are far
// below it.
const noRank = math.MaxUint32

// shortPiece is the longest piece, in bytes, that is merged by scanning for
// the lowest rank again after every merge: quadratic, but without a heap the
// fastest way for a word. Longer pieces are merged with a heap.
const shortPiece = 64

// scratch is the working memory of one count, reused between pieces.
type scratch struct {
	prev, next []int32 // linked list of the parts of a long piece, by start offset
	heap       pairHeap

	// lookups counts rank look-ups and pops heap pops: the measures of work
	// that tests bound.
	lookups, pops int
}

// maxKeptScratch bounds the bytes of piece that a pooled scratch may have
// grown for, so that one hostile call doesn't pin its memory for ever.
const maxKeptScratch = 1 << 16

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func borrowScratch() *scratch {
	s := scratches.Get().(*scratch)
	s.lookups, s.pops = 0, 0
	return s
}

func returnScratch(s *scratch) {
	if cap(s.next) <= maxKeptScratch {
		scratches.Put(s)
	}
}

// rank returns the merge rank of some bytes, or noRank.
func (e *encoder) rank(token string, s *scratch) uint32 {
	if len(token) > e.maxToken {
		return noRank
	}
	s.lookups++
	if r, ok := e.ranks[token]; ok {
		return r
	}
	return noRank
}

// countPiece returns how many tokens byte pair encoding makes of one piece:
// starting from single bytes (each is a token), the adjacent pair of lowest
// rank, leftmost on a tie, is merged until no pair is a token.
func (e *encoder) countPiece(piece string, s *scratch) int {
	switch {
	case len(piece) <= 1:
		return len(piece)
	case e.rank(piece, s) != noRank:
		return 1
	case len(piece) <= shortPiece:
		return e.countShort(piece, s)
	default:
		return e.countLong(piece, s)
	}
}

func (e *encoder) countShort(piece string, s *scratch) int {
	var starts [shortPiece + 1]uint8 // starts[i] is where part i begins; starts[parts] the end
	var ranks [shortPiece]uint32     // ranks[i] is that of parts i and i+1 together
	parts := len(piece)
	for i := 0; i <= parts; i++ {
		starts[i] = uint8(i)
	}
	pair := func(i int) uint32 {
		if i+2 > parts {
			return noRank
		}
		return e.rank(piece[starts[i]:starts[i+2]], s)
	}
	for i := range parts {
		ranks[i] = pair(i)
	}
	for {
		lowest, at := uint32(noRank), -1
		for i := 0; i < parts-1; i++ {
			if ranks[i] < lowest {
				lowest, at = ranks[i], i
			}
		}
		if at < 0 {
			return parts
		}
		copy(starts[at+1:parts], starts[at+2:parts+1])
		copy(ranks[at+1:parts-1], ranks[at+2:parts])
		parts--
		ranks[at] = pair(at)
		if at > 0 {
			ranks[at-1] = pair(at - 1)
		}
	}
}

// countLong merges with a heap of candidate pairs: n log n for a piece of n
// bytes. A candidate whose parts have changed since it was pushed is stale; it
// is known by its end, since the parts at an offset only ever grow.
func (e *encoder) countLong(piece string, s *scratch) int {
	n := len(piece)
	s.prev, s.next = grown(s.prev, n), grown(s.next, n)
	s.heap = s.heap[:0]
	for i := range n {
		s.prev[i], s.next[i] = int32(i-1), int32(i+1)
	}
	// push adds the pair that begins at offset at, if it is a token.
	push := func(at int32) {
		middle := s.next[at]
		if int(middle) >= n {
			return
		}
		end := s.next[middle]
		if r := e.rank(piece[at:end], s); r != noRank {
			s.heap.push(candidate{rank: r, at: at, end: end})
		}
	}
	for i := range n {
		push(int32(i))
	}
	parts := n
	for len(s.heap) > 0 {
		c := s.heap.pop()
		s.pops++
		middle := s.next[c.at]
		if middle < 0 || int(middle) >= n || s.next[middle] != c.end {
			continue // merged away, or grown since
		}
		s.next[c.at] = c.end
		s.next[middle] = -1 // no part begins here any more
		if int(c.end) < n {
			s.prev[c.end] = c.at
		}
		parts--
		push(c.at)
		if before := s.prev[c.at]; before >= 0 {
			push(before)
		}
	}
	return parts
}

func grown(s []int32, n int) []int32 {
	if cap(s) < n {
		return make([]int32, n)
	}
	return s[:n]
}

// candidate is a pair of adjacent parts that together are a token.
type candidate struct {
	rank    uint32
	at, end int32 // offsets of its first byte and past its last
}

func (c candidate) before(o candidate) bool {
	return c.rank < o.rank || (c.rank == o.rank && c.at < o.at)
}

// pairHeap is a binary min-heap: container/heap without its interface calls.
type pairHeap []candidate

func (h *pairHeap) push(c candidate) {
	s := append(*h, c)
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !s[i].before(s[parent]) {
			break
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
	*h = s
}

func (h *pairHeap) pop() candidate {
	s := *h
	top, last := s[0], len(s)-1
	s[0] = s[last]
	s = s[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if right := child + 1; right < last && s[right].before(s[child]) {
			child = right
		}
		if !s[child].before(s[i]) {
			break
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
	*h = s
	return top
}
