package estimator

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/pkoukk/tiktoken-go-loader/assets"

	"github.com/budgetd/budgetd/quota"
)

// Encoding names a public token encoding.
type Encoding string

// The embedded encodings. O200kHarmony differs from O200kBase in its special
// tokens only, which ordinary text never becomes, so both count alike.
const (
	O200kBase    Encoding = "o200k_base"    // GPT-4o and later, o-series
	O200kHarmony Encoding = "o200k_harmony" // gpt-oss
	CL100kBase   Encoding = "cl100k_base"   // GPT-4, GPT-3.5, embeddings
	P50kBase     Encoding = "p50k_base"     // text-davinci-002 and -003
	R50kBase     Encoding = "r50k_base"     // GPT-3 base models
)

// The pre-tokenizer patterns as openai/tiktoken publishes them
// (tiktoken_ext/openai_public.py).
const (
	patternR50k = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	patternCL100k = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|` +
		` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	patternO200k = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var (
	o200k = &encoder{file: "o200k_base.tiktoken", pattern: patternO200k}

	encoders = map[Encoding]*encoder{
		O200kBase:    o200k,
		O200kHarmony: o200k,
		CL100kBase:   {file: "cl100k_base.tiktoken", pattern: patternCL100k},
		P50kBase:     {file: "p50k_base.tiktoken", pattern: patternR50k},
		R50kBase:     {file: "r50k_base.tiktoken", pattern: patternR50k},
	}
)

// Count returns how many tokens the text is in an encoding, in ordinary mode:
// text that looks like a special token is counted as the text it is. Bytes
// that are not UTF-8 count as U+FFFD, which is what a JSON body makes of them.
//
// The time is bounded by n log n of the text's bytes whatever the text, and
// the memory by a small multiple of it. The first use of an encoding loads it.
// It fails only on an unknown encoding.
func Count(e Encoding, text string) (quota.Tokens, error) {
	enc, err := e.load()
	if err != nil {
		return 0, err
	}
	s := borrowScratch()
	defer returnScratch(s)
	return quota.Tokens(enc.count(text, s)), nil
}

// load returns the encoder, read from the embedded ranks on first use.
func (e Encoding) load() (*encoder, error) {
	enc, ok := encoders[e]
	if !ok {
		return nil, fmt.Errorf("encoding: %q is not one of o200k_base, o200k_harmony, cl100k_base, p50k_base, r50k_base", string(e))
	}
	enc.once.Do(enc.read)
	return enc, enc.err
}

// encoder is one encoding, shared by all callers. Nothing changes after read.
type encoder struct {
	file    string
	pattern string

	once     sync.Once
	err      error
	ranks    map[string]uint32 // token bytes -> merge rank, which is the token's id
	maxToken int               // bytes of the longest token
	split    *regexp2.Regexp
}

// read fills the encoder from the embedded rank file: lines of base64 token
// and decimal rank.
func (e *encoder) read() {
	data, err := assets.Assets.ReadFile(e.file)
	if err != nil {
		e.err = fmt.Errorf("embedded encoding %s: %w", e.file, err)
		return
	}
	lines := bytes.Count(data, []byte{'\n'}) + 1
	e.ranks = make(map[string]uint32, lines)

	// All tokens live in one string that the map's keys point into.
	slab := make([]byte, 0, len(data)*3/4)
	type entry struct {
		end  int
		rank uint32
	}
	entries := make([]entry, 0, lines)
	for line := range bytes.Lines(data) {
		token, number, ok := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte{' '})
		if !ok {
			continue // a blank line
		}
		if slab, err = base64.StdEncoding.AppendDecode(slab, token); err != nil {
			e.err = fmt.Errorf("embedded encoding %s: %w", e.file, err)
			return
		}
		rank, err := strconv.ParseUint(string(number), 10, 32)
		if err != nil {
			e.err = fmt.Errorf("embedded encoding %s: %w", e.file, err)
			return
		}
		entries = append(entries, entry{end: len(slab), rank: uint32(rank)})
	}
	tokens, start := string(slab), 0
	for _, entry := range entries {
		e.ranks[tokens[start:entry.end]] = entry.rank
		e.maxToken = max(e.maxToken, entry.end-start)
		start = entry.end
	}
	if e.split, err = regexp2.Compile(e.pattern, regexp2.None); err != nil {
		e.err = fmt.Errorf("encoding pattern of %s: %w", e.file, err)
	}
}

// count returns the number of tokens of the text.
func (e *encoder) count(text string, s *scratch) int {
	total := 0
	e.pieces(text, func(piece string) { total += e.countPiece(piece, s) })
	return total
}

// pieces calls f with each piece of the text, in order, as the pre-tokenizer
// splits it. Merges never cross a piece.
func (e *encoder) pieces(text string, f func(piece string)) {
	if !utf8.ValidString(text) {
		text = string([]rune(text)) // U+FFFD for each bad byte
	}
	// The matcher speaks in runes; keep the byte offset beside it.
	runes, offset := 0, 0
	advance := func(to int) {
		for ; runes < to; runes++ {
			_, size := utf8.DecodeRuneInString(text[offset:])
			offset += size
		}
	}
	match, _ := e.split.FindStringMatch(text) // fails only on a match timeout; none is set
	for match != nil {
		advance(match.Index)
		start := offset
		advance(match.Index + match.Length)
		f(text[start:offset])
		match, _ = e.split.FindNextMatch(match)
	}
}
