package encoding

import (
	"math/bits"
	"unicode/utf8"
)

// A splitter returns the end of the piece that begins at offset i of a text of
// valid UTF-8. Each is an ordered choice of alternatives as the published
// pattern is, and looks at no character more than a fixed number of times, so
// that a text is split in a time in proportion to it.
type splitter func(text string, i int) int

// nextR50k splits as
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func nextR50k(text string, i int) int {
	if end := contraction(text, i, false); end > 0 {
		return end
	}
	at := i
	c, size := classes.at(text, i)
	if text[i] == ' ' && i+1 < len(text) {
		at++
		c, size = classes.at(text, at)
	}
	switch {
	case c&letter != 0:
		return span(text, at+size, letter)
	case c == number:
		return span(text, at+size, number)
	case c&(mark|other) != 0:
		return span(text, at+size, mark|other)
	}
	return blank(text, i)
}

// nextCL100k splits as
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//	 ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func nextCL100k(text string, i int) int {
	if end := contraction(text, i, true); end > 0 {
		return end
	}
	c, size := classes.at(text, i)
	after := i + size
	switch {
	case c&letter != 0:
		return span(text, after, letter)
	case c == number:
		return digits(text, after)
	case c == newline:
		return lines(text, i)
	}
	if after < len(text) {
		if c, size := classes.at(text, after); c&letter != 0 {
			return span(text, after+size, letter)
		}
	}
	if at, ok := symbols(text, i, c, after); ok {
		return span(text, span(text, at, mark|other), newline)
	}
	return lines(text, i)
}

// nextO200k splits as
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//	\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func nextO200k(text string, i int) int {
	if end := plainWord(text, i); end > 0 {
		return end
	}
	return nextPieceO200k(text, i)
}

func nextPieceO200k(text string, i int) int {
	c, size := classes.at(text, i)
	after := i + size
	switch {
	case c&letter != 0:
		end, _ := word(text, i)
		return withContraction(text, end)
	case c == number:
		return digits(text, after)
	case c == newline:
		return lines(text, i)
	}
	// A mark, a space or a symbol may lead a word.
	if end, kind := word(text, after); kind == mixedWord {
		return withContraction(text, end)
	} else if c == mark {
		// Without a lead: marks are of the word themselves.
		end, _ = word(text, i)
		return withContraction(text, end)
	} else if kind == upperWord {
		return withContraction(text, end)
	}
	if at, ok := symbols(text, i, c, after); ok {
		end := span(text, at, mark|other)
		for end < len(text) && (text[end] == '\r' || text[end] == '\n' || text[end] == '/') {
			end++
		}
		return end
	}
	return lines(text, i)
}

// plainWord is nextO200k for what most pieces are, eight bytes at a time: words
// in lower case, or with a capital first, after at most one character of ASCII.
// It returns 0 where it can't tell.
func plainWord(text string, i int) int {
	if i+9 > len(text) {
		return 0
	}
	first := text[i]
	if classes.byByte[first]&(space|other|upper|lower) == 0 {
		return 0
	}
	rest := word64(text, i+1)
	capital := 0 // 1 where the first is a lead and a capital follows it
	if rest&0xFF-'A' < 26 {
		capital = int(classes.leads[first])
	}
	n := lowerRun(rest | uint64(capital)*('a'-'A'))
	if n <= capital {
		return 0
	}
	end := i + 1 + n
	if n == 8 {
		end = span(text, end, lower|caseless|mark)
		if end == len(text) {
			return end
		}
	} else if text[end] >= utf8.RuneSelf {
		return 0
	}
	if text[end] == '\'' {
		return withContraction(text, end)
	}
	return end
}

// lowerRun returns how many of eight bytes, from the first, are letters of ASCII
// in lower case. A byte without its highest bit is one if adding 0x1f sets that
// bit and adding 5 does not.
func lowerRun(bytes uint64) int {
	const ones = 0x0101010101010101
	low := bytes & (0x7f * ones)
	letters := (low + 0x1f*ones) &^ (low + 5*ones) &^ bytes & (0x80 * ones)
	return bits.TrailingZeros64(letters^(0x80*ones)) / 8
}

type wordKind int

const (
	noWord    wordKind = iota
	mixedWord          // the first alternative of o200k_base matches
	upperWord          // the second does, and the first does not
)

// word matches the words of o200k_base at offset i, without what leads and what
// follows them:
//
//	[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+, else
//	[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*
//
// Caseless letters and marks are in both classes. So where nothing in lower
// case follows the first run, the pattern gives back of it until the last
// caseless letter or mark, which then ends the word; a run without one is of
// upper case alone, which is the second alternative.
func word(text string, i int) (end int, kind wordKind) {
	start, lastBoth := i, 0
	for i < len(text) {
		c, size := classes.at(text, i)
		switch {
		case c == upper:
			i += size
			continue
		case c&(caseless|mark) != 0:
			i += size
			lastBoth = i
			continue
		case c == lower:
			return span(text, i+size, lower|caseless|mark), mixedWord
		}
		break
	}
	switch {
	case lastBoth > 0:
		return lastBoth, mixedWord
	case i > start:
		return i, upperWord
	default:
		return i, noWord
	}
}

// contraction matches (?i:'s|'t|'re|'ve|'m|'ll|'d) at offset i, or the same
// without (?i: when fold is not set, and returns its end, or 0. Folding takes
// the long s, U+017F, for an s, as Unicode's simple case folding says.
func contraction(text string, i int, fold bool) int {
	if i+1 >= len(text) || text[i] != '\'' {
		return 0
	}
	var lowered byte
	if fold {
		lowered = 0x20
	}
	switch text[i+1] | lowered {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if i+2 < len(text) && text[i+2]|lowered == 'e' {
			return i + 3
		}
	case 'l':
		if i+2 < len(text) && text[i+2]|lowered == 'l' {
			return i + 3
		}
	}
	if fold && text[i+1] == 0xC5 && text[i+2] == 0xBF {
		return i + 3
	}
	return 0
}

// withContraction returns the end of a word of o200k_base with the contraction
// that may follow it.
func withContraction(text string, end int) int {
	if more := contraction(text, end, true); more > 0 {
		return more
	}
	return end
}

// digits matches what is left of \p{N}{1,3} after its first character.
func digits(text string, i int) int {
	for range 2 {
		if i >= len(text) {
			break
		}
		c, size := classes.at(text, i)
		if c != number {
			break
		}
		i += size
	}
	return i
}

// symbols says whether " ?[^\s\p{L}\p{N}]+" matches at offset i, whose
// character is of class c and ends at after, and where to go on.
func symbols(text string, i int, c class, after int) (int, bool) {
	if c&(mark|other) != 0 {
		return after, true
	}
	if text[i] == ' ' && after < len(text) {
		if c, size := classes.at(text, after); c&(mark|other) != 0 {
			return after + size, true
		}
	}
	return 0, false
}

// lines matches \s*[\r\n]+|\s+(?!\S)|\s+ at offset i, which is white space: up
// to the last newline of the run, else as blank.
func lines(text string, i int) int {
	end := span(text, i, white)
	for at := end; at > i; at-- {
		if b := text[at-1]; b == '\r' || b == '\n' {
			return at
		}
	}
	return blankUntil(text, i, end)
}

// blank matches \s+(?!\S)|\s+ at offset i, which is white space: the run, but
// its last character where something follows, unless that is all.
func blank(text string, i int) int { return blankUntil(text, i, span(text, i, white)) }

func blankUntil(text string, i, end int) int {
	if end == len(text) {
		return end
	}
	last := end - 1
	for last > i && text[last]&0xC0 == 0x80 {
		last-- // to the first byte of the character
	}
	if last == i {
		return end
	}
	return last
}
