// Package corpus makes the texts on which the rules for models without a public
// tokenizer are measured: some hundreds, of 25 kinds, from 8 bytes to 24 kB.
//
// All of them are made here, by a seeded generator, from sentences and code
// written for this purpose and from random characters: the same texts on every
// machine, free of anybody's rights, and no download. A change of anything in
// this package changes the texts, so their real counts must be counted again
// (see package measure).
package corpus

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// Text is one text of the corpus.
type Text struct {
	ID   string // kind and number, such as "chinese/07"
	Kind string // see [Kinds]
	Body string // UTF-8, 8 bytes to 24 kB
}

// Hash is the first half of the SHA-256 of the body, in hex: by it a count is
// known to be of this text.
func (t Text) Hash() string {
	sum := sha256.Sum256([]byte(t.Body))
	return hex.EncodeToString(sum[:16])
}

const (
	perKind  = 18
	shortest = 8
	longest  = 24_000
)

// source appends one unit of a kind of text: a sentence, a function, a line.
type source func(r *rand.Rand, b *strings.Builder)

type kind struct {
	name    string
	sources []source // taken in turn, so that each has texts of all lengths
}

var kinds = append(slices.Clone(plain), kind{"mixed", []source{mixed}})

var plain = []kind{
	{"english", []source{sentences("english", " ")}},
	{"european", []source{sentences("european", " ")}},
	{"russian", []source{sentences("russian", " ")}},
	{"arabic", []source{sentences("arabic", " ")}},
	{"hindi", []source{sentences("hindi", " ")}},
	{"other scripts", []source{sentences("scripts", "\n")}},
	{"chinese", []source{sentences("chinese", "")}},
	{"japanese", []source{sentences("japanese", "")}},
	{"korean", []source{sentences("korean", " ")}},
	{"code", []source{chunks("go"), chunks("python"), chunks("javascript"), chunks("rust"), chunks("c"), chunks("other")}},
	{"identifiers", []source{identifiers}},
	{"json", []source{jsonCompact, jsonIndented}},
	{"markdown", []source{markdown}},
	{"logs", []source{logLine}},
	{"numbers", []source{csvRow, tableRow, digits}},
	{"white space", []source{indented, blanks, columns}},
	{"punctuation", []source{punctuation, frames}},
	{"emoji", []source{emoji, emojiProse}},
	{"base64", []source{base64Blob, dataURI}},
	{"hex", []source{hexBlob, hexDump, uuids}},
	{"random letters", []source{randomWords, randomCapitals, randomRun}},
	{"random characters", []source{randomScript, randomAny}},
	{"rare chinese", []source{randomHan}},
	{"compatibility", []source{compatibility}},
}

// Kinds returns the kinds of text, in the order of the corpus.
func Kinds() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

// Texts makes the corpus.
func Texts() []Text {
	texts := make([]Text, 0, len(kinds)*perKind)
	for k, kind := range kinds {
		for i := range perKind {
			r := rand.New(rand.NewPCG(uint64(k+1), uint64(i+1)))
			size := int(shortest * math.Pow(float64(longest)/shortest, float64(i)/(perKind-1)))
			texts = append(texts, Text{
				ID:   fmt.Sprintf("%s/%02d", kind.name, i+1),
				Kind: kind.name,
				Body: fill(r, kind.sources[i%len(kind.sources)], size),
			})
		}
	}
	return texts
}

// fill appends units up to a size in bytes and cuts there, at a whole
// character.
func fill(r *rand.Rand, from source, size int) string {
	var b strings.Builder
	for b.Len() < size {
		from(r, &b)
	}
	text := b.String()
	for !utf8.RuneStart(text[min(size, len(text)-1)]) {
		size--
	}
	return text[:min(size, len(text))]
}
