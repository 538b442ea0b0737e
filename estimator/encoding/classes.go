package encoding

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// class is what a pre-tokenizer needs to know of a character: a set of which
// each character has exactly one member.
type class uint8

const (
	upper    class = 1 << iota // \p{Lu} and \p{Lt}
	lower                      // \p{Ll}
	caseless                   // \p{Lm} and \p{Lo}
	mark                       // \p{M}
	number                     // \p{N}
	space                      // \s without newlines
	newline                    // \r and \n
	other

	letter = upper | lower | caseless // \p{L}
	white  = space | newline          // \s
)

var classNames = map[string]class{
	"upper": upper, "lower": lower, "caseless": caseless, "mark": mark,
	"number": number, "space": space, "newline": newline,
}

// classText is the classes of Unicode 16.0.0. The version matters: a letter
// that the pre-tokenizer does not know ends a piece. Go's own tables follow
// Go's version of Unicode instead.
//
//go:embed classes.txt
var classText string

// blockSize is the code points that share an entry of the first stage. It must
// be a power of two that divides the number of code points.
const blockSize = 256

// classTable finds the class of a code point in two steps: the number of its
// block, and its place there. Most blocks are alike.
type classTable struct {
	byByte [256]class // of ASCII; 0 for a byte of a wider character
	leads  [256]uint8 // 1 for a character of ASCII that may lead a word in o200k_base
	blocks [(utf8.MaxRune + 1) / blockSize]uint16
	kinds  [][blockSize]class
}

var classes classTable

var loadClasses = sync.OnceValue(func() error { return classes.read(classText) })

// read fills the table from lines of "first last step class", code points in
// hexadecimal. What no line names is other.
func (t *classTable) read(text string) error {
	of := make([]class, utf8.MaxRune+1)
	for i := range of {
		of[i] = other
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 4 {
			return fmt.Errorf("embedded classes: %q has not four fields", line)
		}
		var numbers [3]int64
		for i, base := range []int{16, 16, 10} {
			n, err := strconv.ParseInt(fields[i], base, 32)
			if err != nil {
				return fmt.Errorf("embedded classes: %q: %w", line, err)
			}
			numbers[i] = n
		}
		first, last, step := numbers[0], numbers[1], numbers[2]
		kind, known := classNames[fields[3]]
		if !known || step < 1 || first > last || last > utf8.MaxRune {
			return fmt.Errorf("embedded classes: %q is out of range", line)
		}
		for c := first; c <= last; c += step {
			of[c] = kind
		}
	}
	copy(t.byByte[:utf8.RuneSelf], of)
	for b, c := range t.byByte {
		if c&(space|other) != 0 {
			t.leads[b] = 1
		}
	}
	kinds := map[[blockSize]class]uint16{}
	for i := range t.blocks {
		block := [blockSize]class(of[i*blockSize:])
		kind, known := kinds[block]
		if !known {
			kind = uint16(len(t.kinds))
			kinds[block] = kind
			t.kinds = append(t.kinds, block)
		}
		t.blocks[i] = kind
	}
	return nil
}

// at returns the class of the character at offset i and its bytes. The text
// must be valid UTF-8, which saves the checks of utf8.DecodeRuneInString.
func (t *classTable) at(text string, i int) (class, int) {
	if c := t.byByte[text[i]]; c != 0 {
		return c, 1
	}
	return t.wide(text, i)
}

// wide is at for characters of more than one byte.
func (t *classTable) wide(text string, i int) (class, int) {
	var c uint32
	var size int
	switch b := uint32(text[i]); {
	case b < 0xE0:
		c, size = b&0x1F<<6|uint32(text[i+1]&0x3F), 2
	case b < 0xF0:
		c, size = b&0x0F<<12|uint32(text[i+1]&0x3F)<<6|uint32(text[i+2]&0x3F), 3
	default:
		c, size = b&0x07<<18|uint32(text[i+1]&0x3F)<<12|uint32(text[i+2]&0x3F)<<6|uint32(text[i+3]&0x3F), 4
	}
	return t.kinds[t.blocks[c/blockSize]][c%blockSize], size
}

// span returns the end of the run of characters of some classes that begins at
// offset i.
func span(text string, i int, of class) int {
	for i < len(text) {
		c := classes.byByte[text[i]]
		if c&of != 0 {
			i++
			continue
		}
		if c != 0 {
			break
		}
		c, size := classes.wide(text, i)
		if c&of == 0 {
			break
		}
		i += size
	}
	return i
}
