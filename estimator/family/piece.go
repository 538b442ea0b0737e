package family

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/budgetd/budgetd/quota"
)

// Class says which of a rule's factors a piece of text takes. Vocabularies
// differ little on words of English and much on the scripts that few of their
// training texts were in.
type Class int

// The classes, in the order of their weight: a piece is of the highest class of
// its characters.
const (
	Signs     Class = iota // ASCII without a letter
	Words                  // with an ASCII letter
	Pictures               // with emoji or any other character that is no letter
	Cased                  // up to U+052F, and U+1E00 to U+1FFF: Latin with accents, Greek, Cyrillic
	EastAsian              // Chinese, Japanese and Korean, with their full-width forms
	Letters                // every other script
	classes

	digits Class = -1 // counted by themselves
	blank  Class = -2
)

// classOf finds the class of a piece of the o200k_base pre-tokenizer.
func classOf(piece string) Class {
	first, _ := utf8.DecodeRuneInString(piece)
	switch {
	case unicode.Is(unicode.N, first):
		return digits
	case len(piece) > 1 && strings.TrimSpace(piece) == "":
		return blank
	}
	highest := Signs
	for _, r := range piece {
		highest = max(highest, characterClass(r))
	}
	return highest
}

func characterClass(r rune) Class {
	switch {
	case r < utf8.RuneSelf:
		if 'a' <= r|0x20 && r|0x20 <= 'z' {
			return Words
		}
		return Signs
	case r <= 0x52f, 0x1e00 <= r && r <= 0x1fff:
		return Cased
	case 0x2e80 <= r && r <= 0x9fff, 0xac00 <= r && r <= 0xd7ff, 0x1100 <= r && r <= 0x11ff,
		0xf900 <= r && r <= 0xfaff, 0xff00 <= r && r <= 0xffef, 0x20000 <= r && r <= 0x3ffff:
		return EastAsian
	case 0x20d0 <= r && r <= 0x20ff, 0xfe00 <= r && r <= 0xfe0f: // enclosing marks and variants of emoji
		return Pictures
	case unicode.IsLetter(r), unicode.IsMark(r):
		return Letters
	default:
		return Pictures
	}
}

// densest is the most bytes of a class that a rule takes one token to cover,
// whatever o200k_base makes of them: its vocabulary has some very long tokens,
// such as rows of one sign, that others have to put together.
var densest = [classes]int64{Signs: 3, Words: 8, Pictures: 6, Cased: 8, EastAsian: 6, Letters: 6}

// perText is what a rule adds to each text: the space that some tokenizers put
// before it, and one for the rounding of the shortest texts.
const perText = 2

// Sum adds up the pieces of one text. The zero value has none.
type Sum struct {
	tenths int64
	tokens int64
}

// Add counts a piece of the o200k_base pre-tokenizer, which is that many tokens
// of o200k_base. A piece never counts more than its bytes.
func (s *Sum) Add(r Rule, piece string, tokens int) {
	size := int64(len(piece))
	s.tokens += int64(tokens)
	switch class := classOf(piece); class {
	case digits:
		if r.GroupsDigits && piece[0] < utf8.RuneSelf {
			size = int64(tokens)
		}
		s.tenths += 10 * size
	case blank:
		spaces := int64(strings.Count(piece, " "))
		s.tenths += 10 * (size - spaces + (spaces+7)/8)
	default:
		s.tenths += min(10*size, max(r.Factors[class]*int64(tokens), (10*size+densest[class]-1)/densest[class]))
	}
}

// Ceiling is the rule's bound of the text's tokens. A text without pieces has none.
func (s *Sum) Ceiling() quota.Tokens {
	if s.tokens == 0 {
		return 0
	}
	return quota.Tokens((s.tenths+9)/10 + perText)
}

// Likely is what the text is expected to come to: its tokens of o200k_base.
func (s *Sum) Likely() quota.Tokens { return min(quota.Tokens(s.tokens), s.Ceiling()) }
