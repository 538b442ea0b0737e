package encoding

import "math/bits"

// words finds the ranks of short tokens by their bytes: those of up to eight
// bytes that do not end in a zero byte. Such bytes, filled up with zeros, are one
// number, so that a look-up is the comparison of a number, in one line of the
// processor's cache. Three of four tokens are short, and nearly all pieces of a
// text.
type words struct {
	keys  []uint64 // an open hash table with linear probing, at most two thirds full; 0 for none
	ranks []rank   // by the place in keys
	shift int
}

const shortBytes = 8

// isShort says whether words may have some bytes.
func isShort(token string) bool {
	return uint(len(token)-1) < shortBytes && token[len(token)-1] != 0
}

// keep has by a number of bytes, up to eight, the bits of so many.
var keep = [shortBytes + 1]uint64{0, 1<<8 - 1, 1<<16 - 1, 1<<24 - 1, 1<<32 - 1, 1<<40 - 1, 1<<48 - 1, 1<<56 - 1, 1<<64 - 1}

// shortKey returns the key of short bytes.
func shortKey(token string) uint64 {
	switch n := len(token); {
	case n == 8:
		return word64(token, 0)
	case n >= 4:
		return uint64(word32(token, 0)) | uint64(word32(token, n-4))<<(8*(n-4))
	case n >= 2:
		return uint64(token[0]) | uint64(token[1])<<8 | uint64(token[n-1])<<(8*(n-1))
	default:
		return uint64(token[0])
	}
}

// make makes room for some tokens.
func (w *words) make(count int) {
	sizeBits := bits.Len(uint(count + count/2))
	w.keys, w.ranks, w.shift = make([]uint64, 1<<sizeBits), make([]rank, 1<<sizeBits), 64-sizeBits
}

// add keeps a token. Those of low rank, which texts have most of, come first and
// so are found first.
func (w *words) add(key uint64, r rank) {
	at := w.first(key)
	for w.keys[at] != 0 {
		at = (at + 1) & uint64(len(w.keys)-1)
	}
	w.keys[at], w.ranks[at] = key, r
}

// first returns the place at which the search for a key begins.
func (w *words) first(key uint64) uint64 { return fold(key, hashB) >> w.shift }

// find returns the place of a key, or false.
func (w *words) find(key uint64) (at uint64, ok bool) {
	mask := uint64(len(w.keys) - 1)
	for at = w.first(key); ; at++ {
		switch w.keys[at&mask] {
		case key:
			return at & mask, true
		case 0:
			return 0, false
		}
	}
}

// has says whether the bytes of a text from start to end are a short token. It
// misses those of the last eight bytes of the text, which are not read at once.
func (w *words) has(text string, start, end int) bool {
	size := uint(end - start)
	if size > shortBytes || start+shortBytes > len(text) || text[end-1] == 0 {
		return false
	}
	_, ok := w.find(word64(text, start) & keep[size])
	return ok
}

// rank returns the rank of a key, or noRank.
func (w *words) rank(key uint64) rank {
	if at, ok := w.find(key); ok {
		return w.ranks[at]
	}
	return noRank
}
