package encoding

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/pkoukk/tiktoken-go-loader/assets"
)

// Counter counts in one encoding. It is shared by all callers and does not
// change once it is loaded.
type Counter struct {
	file string
	next splitter

	once   sync.Once
	err    error
	loaded atomic.Bool
	vocabulary
}

// rank orders the tokens of a vocabulary: pairs that make a token of a lower
// rank are merged first. It is the token's place in the rank file, which is its
// published rank but for gaps, and all that merging asks of it.
type rank uint32

// noRank is the rank of what is no token.
const noRank rank = math.MaxUint32

const (
	// maxTokens bounds a vocabulary: a rank and one more fit rankBits.
	rankBits  = 18
	maxTokens = 1<<rankBits - 1
	// maxTokenBytes bounds a token: the bytes of a part fit a byte.
	maxTokenBytes = math.MaxUint8
)

// vocabulary finds the rank of a token. It is two open hash tables, of short
// tokens and of long ones, beside one string with all tokens: 5.7 MB for
// o200k_base, where a Go map of strings takes four times that.
type vocabulary struct {
	tokens  string   // all tokens, in order of rank
	ends    []uint32 // ends[r] is the end of token r in tokens, ends[r-1] its beginning
	longest int      // bytes of the longest token

	words words // the tokens of up to eight bytes

	// slots is a hash table of the others with linear probing, at most half full:
	// in each slot one more than a rank, 0 for none, below a tag of hash bits, so
	// that tokens are hardly ever compared in vain.
	slots []uint32
	shift int

	// pairs has the ranks of the tokens of two bytes, by bytes.
	pairs []rank

	atoms atoms
}

// read loads the embedded rank file: lines of a token in base64 and its decimal
// rank, in order of rank.
func (c *Counter) read() error {
	if err := loadClasses(); err != nil {
		return err
	}
	file, err := assets.Assets.Open(c.file)
	if err == nil {
		err = c.vocabulary.read(file)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("embedded encoding %s: %w", c.file, err)
	}
	return nil
}

func (v *vocabulary) read(from io.Reader) error {
	var tokens []byte
	var single [256]bool
	last := int64(-1)
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		token, number, ok := bytes.Cut(lines.Bytes(), []byte{' '})
		if !ok {
			continue // a blank line
		}
		start := len(tokens)
		var err error
		if tokens, err = base64.StdEncoding.AppendDecode(tokens, token); err != nil {
			return fmt.Errorf("line %d: %w", len(v.ends)+1, err)
		}
		published, err := strconv.ParseInt(string(number), 10, 32)
		size := len(tokens) - start
		switch {
		case err != nil:
			return fmt.Errorf("line %d: %w", len(v.ends)+1, err)
		case published <= last:
			return fmt.Errorf("line %d: rank %d is not above %d", len(v.ends)+1, published, last)
		case size == 0 || size > maxTokenBytes:
			return fmt.Errorf("line %d: a token of %d bytes, not 1 to %d", len(v.ends)+1, size, maxTokenBytes)
		case len(v.ends) == maxTokens:
			return fmt.Errorf("more than %d tokens", maxTokens)
		case size == 1:
			single[tokens[start]] = true
		}
		last = published
		v.ends = append(v.ends, uint32(len(tokens)))
		v.longest = max(v.longest, size)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	for b, is := range single {
		if !is {
			return fmt.Errorf("byte %#x is no token", b)
		}
	}
	v.tokens, v.ends = string(tokens), append(make([]uint32, 0, len(v.ends)), v.ends...)
	v.index()
	v.findAtoms()
	return nil
}

// index fills the tables from the tokens.
func (v *vocabulary) index() {
	short, long := 0, 0
	for r := range v.ends {
		if isShort(v.token(rank(r))) {
			short++
		} else {
			long++
		}
	}
	v.words.make(short)
	sizeBits := bits.Len(uint(2 * long))
	v.slots, v.shift = make([]uint32, 1<<sizeBits), 64-sizeBits
	v.pairs = make([]rank, 1<<16)
	for i := range v.pairs {
		v.pairs[i] = noRank
	}
	for r := range v.ends {
		token := v.token(rank(r))
		if len(token) == 2 {
			v.pairs[int(token[0])<<8|int(token[1])] = rank(r)
		}
		if isShort(token) {
			v.words.add(shortKey(token), rank(r))
			continue
		}
		h := hash(token)
		at := h >> v.shift
		for v.slots[at] != 0 {
			at = (at + 1) & uint64(len(v.slots)-1)
		}
		v.slots[at] = uint32(h)<<rankBits | uint32(r+1)
	}
}

// token returns the bytes of a token.
func (v *vocabulary) token(r rank) string {
	start := uint32(0)
	if r > 0 {
		start = v.ends[r-1]
	}
	return v.tokens[start:v.ends[r]]
}

// rank returns the rank of some bytes, at least two, or noRank.
func (v *vocabulary) rank(token string) rank {
	if len(token) == 2 {
		return v.pairs[int(token[0])<<8|int(token[1])]
	}
	if isShort(token) {
		return v.words.rank(shortKey(token))
	}
	return v.longRank(token)
}

// longRank returns the rank of what is not short, or noRank.
func (v *vocabulary) longRank(token string) rank {
	if len(token) > v.longest {
		return noRank
	}
	h := hash(token)
	tag := uint32(h) << rankBits
	mask := uint64(len(v.slots) - 1)
	for at := h >> v.shift; ; at = (at + 1) & mask {
		slot := v.slots[at&mask]
		if slot == 0 {
			return noRank
		}
		if slot&^maxTokens == tag {
			if r := rank(slot&maxTokens - 1); v.token(r) == token {
				return r
			}
		}
	}
}

// Odd numbers without a pattern: the fractional parts of the square roots of 2
// and 3.
const (
	hashA = 0x6a09e667f3bcc909
	hashB = 0xbb67ae8584caa73b
)

// hash spreads the bytes of a token over 64 bits: the high ones choose the
// slot, the low ones are the tag. Vocabularies are fixed, so that no caller can
// fill the table with collisions.
func hash(s string) uint64 {
	n := len(s)
	var low, high uint64
	switch {
	case n > 16:
		low = hashA
		for ; len(s) > 16; s = s[8:] {
			low = fold(low^word64(s, 0), hashB)
		}
		high = word64(s, len(s)-8)
		low ^= word64(s, 0)
	case n > 8:
		low, high = word64(s, 0), word64(s, n-8)
	case n >= 4:
		low, high = uint64(word32(s, 0)), uint64(word32(s, n-4))
	case n > 0:
		low = uint64(s[0]) | uint64(s[n/2])<<8 | uint64(s[n-1])<<16
	}
	return fold(low^hashA, high^hashB^uint64(n)<<56)
}

// fold multiplies to 128 bits and folds them to 64.
func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

func word64(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func word32(s string, i int) uint32 {
	s = s[i : i+4]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}
