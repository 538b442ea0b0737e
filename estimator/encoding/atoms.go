package encoding

import "unicode/utf8"

// Byte pair encoding starts from bytes, which for a character of three bytes is
// two merges that nearly always end in the same token. Most characters can be
// taken as one part from the start. That is exact where both ends of the
// character are safe:
//
// A boundary between two characters is unsafe if its two bytes are at such a
// boundary inside a token that is cut at one end in mid-character, or whose rank
// is below one that is needed to make a character in it. So a token across a safe
// boundary has whole characters and comes after them. Then nothing merges with a
// part of a character whose ends are safe (what comes of it would be a token
// across a safe end, and one of its two halves would be cut in mid-character
// there): it is made of its own bytes alone, and before any token that it is part
// of. Starting with it made changes no later choice.
//
// Bytes of ASCII are parts in either case.
type atoms struct {
	unsafe [256][4]uint64         // by the last byte of one character, the set of the first bytes of the next
	whole  [maxAtom/64 + 1]uint64 // the characters whose bytes merge into one token
}

// maxAtom is the last character that is taken as one part: of the planes above
// hardly any is a token.
const maxAtom = 1<<17 - 1

// size returns the bytes of the part that begins at offset i of a text: those of
// a character, or one. The text is UTF-8 that may begin and end in mid-character:
// a window of a longer one.
func (a *atoms) size(text string, i int) int {
	b := text[i]
	if b < 0xC2 {
		return 1 // ASCII, or in mid-character
	}
	c, size := utf8.DecodeRuneInString(text[i:])
	end := i + size
	if size == 1 || c > maxAtom || a.whole[c/64]&(1<<(c%64)) == 0 ||
		i > 0 && a.isUnsafe(text[i-1], b) || end < len(text) && a.isUnsafe(text[end-1], text[end]) {
		return 1
	}
	return size
}

func (a *atoms) isUnsafe(last, first byte) bool {
	return a.unsafe[last][first/64]&(1<<(first%64)) != 0
}

// findAtoms fills the atoms of a vocabulary whose ranks are known.
func (v *vocabulary) findAtoms() {
	made := map[rune]rank{} // the highest rank that is needed to make a character
	for r := range v.ends {
		token := v.token(rank(r))
		c, size := utf8.DecodeRuneInString(token)
		if size > 1 && size == len(token) && c <= maxAtom {
			if highest, ok := v.make(token); ok {
				made[c] = highest
				v.atoms.whole[c/64] |= 1 << (c % 64)
			}
		}
	}
	for r := range v.ends {
		token := v.token(rank(r))
		if !v.isPlain(token, rank(r), made) {
			for i := 1; i < len(token); i++ {
				if first := token[i]; utf8.RuneStart(first) {
					v.atoms.unsafe[token[i-1]][first/64] |= 1 << (first % 64)
				}
			}
		}
	}
}

// isPlain says whether a token has whole characters that are all made before it.
func (v *vocabulary) isPlain(token string, r rank, made map[rune]rank) bool {
	for i := 0; i < len(token); {
		if token[i] < utf8.RuneSelf {
			i++
			continue
		}
		c, size := utf8.DecodeRuneInString(token[i:])
		if size == 1 {
			return false
		}
		if highest, whole := made[c]; whole && highest >= r && size < len(token) {
			return false
		}
		i += size
	}
	return true
}

// make returns the highest rank among the merges that make a character from its
// bytes, or false when they do not end in one token.
func (v *vocabulary) make(char string) (highest rank, ok bool) {
	ends := make([]int, 0, utf8.UTFMax) // of the parts
	for i := range len(char) {
		ends = append(ends, i+1)
	}
	for len(ends) > 1 {
		lowest, at := noRank, 0
		for i, start := 0, 0; i+1 < len(ends); i, start = i+1, ends[i] {
			if r := v.rank(char[start:ends[i+1]]); r < lowest {
				lowest, at = r, i
			}
		}
		if lowest == noRank {
			return 0, false
		}
		highest = max(highest, lowest)
		ends = append(ends[:at], ends[at+1:]...)
	}
	return highest, true
}
