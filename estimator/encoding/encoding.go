package encoding

import (
	"context"
	"fmt"
	"iter"
	"unicode/utf8"
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

var (
	o200k = &Counter{file: "o200k_base.tiktoken", next: nextO200k}

	counters = map[Encoding]*Counter{
		O200kBase:    o200k,
		O200kHarmony: o200k,
		CL100kBase:   {file: "cl100k_base.tiktoken", next: nextCL100k},
		P50kBase:     {file: "p50k_base.tiktoken", next: nextR50k},
		R50kBase:     {file: "r50k_base.tiktoken", next: nextR50k},
	}
)

// Load returns the counter of an encoding, which is read from the embedded
// ranks when it is first asked for. It fails only on an unknown encoding.
func Load(e Encoding) (*Counter, error) {
	c, ok := counters[e]
	if !ok {
		return nil, fmt.Errorf("encoding: %q is not one of o200k_base, o200k_harmony, cl100k_base, p50k_base, r50k_base", string(e))
	}
	c.once.Do(func() {
		c.err = c.read()
		c.loaded.Store(c.err == nil)
	})
	return c, c.err
}

// Known says whether an encoding is one of those that are embedded.
func (e Encoding) Known() bool { return counters[e] != nil }

// Loaded says whether an encoding is in memory.
func (e Encoding) Loaded() bool { return e.Known() && counters[e].loaded.Load() }

// Count returns how many tokens the text is. A text of n bytes takes a time of
// at most n log n; working memory is 14 bytes for each byte of the longest
// piece over 128 bytes, which are what most texts do not have.
func (c *Counter) Count(text string) int {
	n, _ := c.count(text, nil)
	return n
}

// CountContext is Count that gives up, with the context's error, soon after the
// context ends: within a fraction of a millisecond of work.
func (c *Counter) CountContext(ctx context.Context, text string) (int, error) {
	n, ok := c.count(text, ctx.Done())
	if !ok {
		return 0, ctx.Err()
	}
	return n, nil
}

// pollBytes is how much of a text is counted between two looks at whether the
// caller still waits.
const pollBytes = 16 << 10

// count returns the number of tokens, or false when stop was closed before it
// was known. A nil stop never is.
func (c *Counter) count(text string, stop <-chan struct{}) (total int, ok bool) {
	if !utf8.ValidString(text) {
		s := borrowScratch()
		defer returnScratch(s)
		text = s.valid(text)
	}
	for i, poll := 0, pollBytes; i < len(text); {
		end := c.next(text, i)
		if c.words.has(text, i, end) {
			total++
		} else {
			n, ok := c.countPiece(text[i:end], stop)
			if !ok {
				return 0, false
			}
			total += n
		}
		if i = end; i > poll {
			if stopped(stop) {
				return 0, false
			}
			poll = i + pollBytes
		}
	}
	return total, true
}

// Pieces returns the pieces into which the pre-tokenizer splits the text, in
// order. They hold the whole text, with U+FFFD for each byte that is not UTF-8.
// No token crosses a piece.
func (c *Counter) Pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !utf8.ValidString(text) {
			text = string([]rune(text))
		}
		for i := 0; i < len(text); {
			end := c.next(text, i)
			if !yield(text[i:end]) {
				return
			}
			i = end
		}
	}
}

// CountPiece returns how many tokens one of the pieces of [Counter.Pieces] is.
func (c *Counter) CountPiece(piece string) int {
	n, _ := c.countPiece(piece, nil)
	return n
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
