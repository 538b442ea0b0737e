package encoding

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go-loader/assets"
	"pgregory.net/rapid"
)

// The counts that the OpenAI Cookbook prints ("How to count tokens with
// tiktoken").
func TestCountsOfTheCookbook(t *testing.T) {
	for _, tt := range []struct {
		text                      string
		o200k, cl100k, p50k, r50k int
	}{
		{"antidisestablishmentarianism", 6, 6, 5, 5},
		{"2 + 2 = 4", 7, 7, 5, 5},
		{"お誕生日おめでとう", 8, 9, 14, 14},
	} {
		for e, want := range map[Encoding]int{O200kBase: tt.o200k, O200kHarmony: tt.o200k, CL100kBase: tt.cl100k, P50kBase: tt.p50k, R50kBase: tt.r50k} {
			if got := mustLoad(t, e).Count(tt.text); got != want {
				t.Errorf("%s: Count(%q) = %d, the Cookbook says %d", e, tt.text, got, want)
			}
		}
	}
}

func TestUnknownEncoding(t *testing.T) {
	const name = Encoding("gpt2")
	if _, err := Load(name); err == nil || !strings.Contains(err.Error(), `"gpt2" is not one of o200k_base`) || name.Known() || name.Loaded() {
		t.Errorf("Load: %v, known %t, loaded %t", err, name.Known(), name.Loaded())
	}
	if !O200kHarmony.Known() {
		t.Error("o200k_harmony is not known")
	}
}

// naive is byte pair encoding by its definition.
func naive(v *vocabulary, piece string) int {
	if v.rank(piece) != noRank {
		return 1
	}
	parts := make([]string, len(piece))
	for i := range parts {
		parts[i] = piece[i : i+1]
	}
	for {
		lowest, at := noRank, -1
		for i := range len(parts) - 1 {
			if r := v.rank(parts[i] + parts[i+1]); r < lowest {
				lowest, at = r, i
			}
		}
		if at < 0 {
			return len(parts)
		}
		parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
	}
}

// pieceOf draws a piece as a window of a long piece has them: any characters, of
// which the first and the last may be cut. A byte that is no part of a character
// is U+FFFD before it is counted.
func pieceOf(v *vocabulary, r *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size+2*utf8.UTFMax {
		if r.IntN(3) == 0 {
			alphabet := alphabets[r.IntN(len(alphabets))]
			b.WriteRune(alphabet[r.IntN(len(alphabet))])
			continue
		}
		token := v.token(rank(r.IntN(len(v.ends))))
		b.WriteString(token[r.IntN(len(token)):])
	}
	from := r.IntN(utf8.UTFMax)
	return string([]rune(b.String()))[from:][:size]
}

// Each way to merge gives what the definition does: characters as parts from
// the start, the heap, and windows.
func TestMergesEqualTheDefinition(t *testing.T) {
	seed := seedOf(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, e := range distinct {
		v := &mustLoad(t, e).vocabulary
		s := new(scratch)
		refused := 0
		for i := range 4000 {
			size := 2 + r.IntN(40)
			if i%16 == 0 {
				size = shortPiece - r.IntN(40)
			}
			piece := pieceOf(v, r, size)
			if v.rank(piece) != noRank {
				continue
			}
			want := naive(v, piece)
			if got, ok := v.countShort(piece); ok && got != want {
				t.Fatalf("%s: countShort(%q) = %d, want %d", e, piece, got, want)
			} else if !ok {
				if refused++; size <= shortParts {
					t.Fatalf("%s: countShort(%q) is refused", e, piece)
				}
			}
			if got, _ := s.countLong(v, piece, nil); got != want {
				t.Fatalf("%s: countLong(%q) = %d, want %d", e, piece, got, want)
			}
		}
		if refused == 0 {
			t.Errorf("%s: no piece had more than %d parts", e, shortParts)
		}
		for range 10 {
			piece := pieceOf(v, r, 3*windowBytes+r.IntN(windowBytes))
			got, _ := s.countLong(v, piece, nil)
			s.merge(v, piece, nil)
			if want := s.tokens(0, len(piece)); got != want {
				t.Fatalf("%s: in windows %d tokens, as one %d: %q", e, got, want, piece)
			}
		}
	}
}

// Every token across characters that begins or ends with a part of one, or comes
// before one of its characters is made, keeps them from being taken whole.
func TestTokensAcrossCharactersMergeAsDefined(t *testing.T) {
	for _, e := range distinct {
		v := &mustLoad(t, e).vocabulary
		texts := 0
		made := map[rune]rank{}
		for r := range v.ends {
			token := v.token(rank(r))
			for _, c := range token {
				if highest, ok := v.make(string(c)); ok && c >= 0x80 {
					made[c] = highest
				}
			}
			if v.isPlain(token, rank(r), made) {
				continue
			}
			for _, around := range [][2]string{{"", ""}, {"x", "y"}, {"中", "文"}, {"\u0430", "\u0301"}} {
				piece := around[0] + token + around[1]
				if len(piece) < 2 || len(piece) > shortPiece || v.rank(piece) != noRank {
					continue
				}
				texts++
				if got, ok := v.countShort(piece); !ok || got != naive(v, piece) {
					t.Errorf("%s: %q has %d tokens, want %d", e, piece, got, naive(v, piece))
				}
			}
		}
		if texts < 50 {
			t.Errorf("%s: only %d texts", e, texts)
		}
	}
}

// The tokens of a window from 10 on, beside those of the last window by their
// ends.
func TestTokenInCommon(t *testing.T) {
	s := &scratch{sizes: []uint8{3, 0, 0, 3, 0, 0}, ends: []int{10, 12, 14, 16}}
	if at, _ := s.common(10); at != -1 {
		t.Errorf("a token in common at %d", at)
	}
	s.ends = []int{10, 12, 13, 16}
	if at, before := s.common(10); at != 13 || before != 2 {
		t.Errorf("a token in common at %d after %d, want 13 after 2", at, before)
	}
}

// Of a vocabulary in which each pair of a text comes before the pair on its left,
// tokens begin at even distances from the right end, so that two windows may have
// no token in common. No published vocabulary is like that.
func TestWindowsWithoutACommonToken(t *testing.T) {
	const most = windowBytes + 1000
	r := rand.New(rand.NewPCG(3, 4))
	text := []byte{0}
	used := map[[2]byte]bool{}
	for len(text) < most {
		pair := [2]byte{text[len(text)-1], byte(r.IntN(256))}
		if !used[pair] {
			used[pair] = true
			text = append(text, pair[1])
		}
	}
	var file strings.Builder
	add := func(number int, token []byte) {
		fmt.Fprintf(&file, "%s %d\n", base64.StdEncoding.EncodeToString(token), number)
	}
	for b := range 256 {
		add(b, []byte{byte(b)})
	}
	for i := len(text) - 2; i >= 0; i-- {
		add(256+len(text)-2-i, text[i:i+2])
	}
	v := new(vocabulary)
	if err := v.read(strings.NewReader(file.String())); err != nil {
		t.Fatal(err)
	}
	whole := 0
	for _, size := range []int{most - 1, most} {
		s := new(scratch)
		piece := string(text[:size])
		if got, _ := s.countLong(v, piece, nil); got != naive(v, piece) {
			t.Errorf("%d bytes: %d tokens, want %d", size, got, naive(v, piece))
		}
		if cap(s.sizes) >= size {
			whole++
		}
	}
	if whole != 1 {
		t.Errorf("%d of two pieces were merged as one, want one", whole)
	}
}

// The work is bounded, not the time: pairs taken from the heap for each byte of
// the worst pieces known.
func TestHostilePiecesTakeBoundedWork(t *testing.T) {
	const size = 1 << 16
	r := rand.New(rand.NewPCG(1, 2))
	random := func(first rune, count int) string {
		var b strings.Builder
		for b.Len() < size {
			b.WriteRune(first + rune(r.IntN(count)))
		}
		return b.String()
	}
	texts := map[string]string{"letters": random('a', 26), "two letters": random('a', 2), "Chinese": random(0x4e00, 3000), "Greek": random(0x3b1, 24)}
	for _, unit := range []string{"a", "A", " ", "\n", "\t", "😀", "👩\u200d", "e\u0301", "\u0301", "=", "中文字", "彩神", "\x00", "\ufffd", "abcdefghijklmnopqrstuvwxyz"} {
		texts[unit] = strings.Repeat(unit, size/len(unit))
	}
	for name, text := range texts {
		for _, e := range distinct {
			s := new(scratch)
			n, _ := s.countLong(&mustLoad(t, e).vocabulary, text, nil)
			if n < 1 || n > len(text) {
				t.Errorf("%s of %q: %d tokens of %d bytes", e, name, n, len(text))
			}
			// A byte begins one pair and each merge makes two, of which one
			// replaces another; windows overlap by an eighth.
			if limit := 4 * len(text); s.taken > limit || cap(s.sizes) > windowBytes {
				t.Errorf("%s of %q: %d pairs taken and memory for %d bytes, of %d bytes", e, name, s.taken, cap(s.sizes), len(text))
			}
		}
	}
}

func TestPiecesHoldTheText(t *testing.T) {
	mustLoad(t, O200kBase) // and the classes
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		text := textOf(r, 30)
		for _, e := range distinct {
			c := counters[e]
			if got := strings.Join(collect(c, text), ""); got != text {
				t.Fatalf("%s: the pieces of %q are %q", e, text, got)
			}
		}
	})
}

func TestCountStopsWithItsContext(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, text := range map[string]string{"words": strings.Repeat("word ", 10_000), "a piece": strings.Repeat("a", 100_000), "not UTF-8": strings.Repeat("\xff ", 20_000)} {
		c := mustLoad(t, O200kBase)
		if n, err := c.CountContext(ended, text); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		if n, err := c.CountContext(t.Context(), text); n != c.Count(text) || err != nil {
			t.Errorf("%s after a stop: %d, %v; want %d", name, n, err, c.Count(text))
		}
	}
}

func TestCountAllocatesNothing(t *testing.T) {
	c := mustLoad(t, O200kBase)
	s := new(scratch)
	for name, text := range map[string]string{
		"English": strings.Repeat("The quick brown fox jumps over the lazy dog's antidisestablishmentarianism. ", 50),
		"code":    strings.Repeat("if err := f(x); err != nil {\n\t\treturn 0, err\n\t}\n", 50),
		"Chinese": strings.Repeat("今天天气很好，我们去公园散步吧。", 50),
		"base64":  strings.Repeat("Zm9vYmFyL2Jhei9xdXV4K1p", 50),
	} {
		if n := testing.AllocsPerRun(20, func() { c.Count(text) }); n != 0 {
			t.Errorf("%s: %.1f allocations", name, n)
		}
	}
	for name, piece := range map[string]string{"a": strings.Repeat("a", 10_000), "Chinese": strings.Repeat("中文字", 3000), "spaces": strings.Repeat(" ", 10_000)} {
		if n := testing.AllocsPerRun(20, func() { s.countLong(&c.vocabulary, piece, nil) }); n != 0 {
			t.Errorf("a long piece, %s: %.1f allocations", name, n)
		}
	}
	invalid := strings.Repeat("a\xff", 5000)
	if n := testing.AllocsPerRun(20, func() { s.valid(invalid) }); n != 0 {
		t.Errorf("bytes that are not UTF-8: %.1f allocations", n)
	}
}

func TestLargeScratchIsNotKept(t *testing.T) {
	s := new(scratch)
	s.valid(strings.Repeat("\xff", maxKeptBytes))
	returnScratch(s)
	for range 100 {
		if borrowScratch() == s {
			t.Fatal("the pool kept the scratch of a huge text")
		}
	}
}

// What an encoding holds in memory, by the heap's own account.
func TestLoadedBytes(t *testing.T) {
	mustLoad(t, O200kBase) // the classes, once
	live := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for file, most := range map[string]int64{"o200k_base.tiktoken": 6 << 20, "cl100k_base.tiktoken": 7 << 19, "p50k_base.tiktoken": 7 << 18, "r50k_base.tiktoken": 7 << 18} {
		before := live()
		c := &Counter{file: file}
		if err := c.read(); err != nil {
			t.Fatal(err)
		}
		held := live() - before
		data, err := assets.Assets.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes held of %d in the file", file, held, len(data))
		if held > most {
			t.Errorf("%s: %d bytes held, at most %d", file, held, most)
		}
		runtime.KeepAlive(c)
	}
}

func TestBadRankFiles(t *testing.T) {
	for text, want := range map[string]string{
		"YQ== 0\nYg== 0\n": "line 2: rank 0 is not above 0",
		"YQ== x\n":         `parsing "x"`,
		"!!!! 0\n":         "illegal base64",
		" 0\n":             "a token of 0 bytes",
		"YQ== 0\n\n":       "byte 0x0 is no token",
	} {
		if err := new(vocabulary).read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := (&Counter{file: "none.tiktoken"}).read(); err == nil || !strings.Contains(err.Error(), "embedded encoding none.tiktoken") {
		t.Errorf("a file that is not there: %v", err)
	}
	for text, want := range map[string]string{
		"0041 0042 1": "four fields", "zz 0042 1 upper": `parsing "zz"`, "0042 0041 1 upper": "out of range",
		"0041 0042 0 upper": "out of range", "0041 110000 1 upper": "out of range", "0041 0042 1 loud": "out of range",
	} {
		if err := new(classTable).read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Look-ups probe few slots, whatever the bytes.
func TestProbesAreShort(t *testing.T) {
	for _, e := range distinct {
		v := &mustLoad(t, e).vocabulary
		if long := inARow(v.slots); long > 64 {
			t.Errorf("%s: %d slots of long tokens in a row are taken", e, long)
		}
		if short := inARow(v.words.keys); short > 96 {
			t.Errorf("%s: %d slots of short tokens in a row are taken", e, short)
		}
	}
}

// inARow returns the longest run of numbers that are not 0.
func inARow[N uint32 | uint64](slots []N) int {
	run, longest := 0, 0
	for _, slot := range slots {
		if run++; slot == 0 {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

// Every token has its rank, also one that ends in zero bytes beside the same one
// without, and is found in a text as well as alone.
func TestEveryTokenHasItsRank(t *testing.T) {
	for _, e := range distinct {
		v := &mustLoad(t, e).vocabulary
		for r := range v.ends {
			token := v.token(rank(r))
			if len(token) > 1 && v.rank(token) != rank(r) {
				t.Fatalf("%s: %q has rank %d, want %d", e, token, v.rank(token), r)
			}
			if got := v.words.has(token+"12345678", 0, len(token)); got != isShort(token) {
				t.Fatalf("%s: %q is a word: %t", e, token, got)
			}
		}
		for _, no := range []string{"the\x00", "\x00the", "the\x00\x00\x00\x00\x00", "q\x00q\x00"} {
			if v.words.has(no+"12345678", 0, len(no)) || v.rank(no) != noRank {
				t.Errorf("%s: %q is a token", e, no)
			}
		}
	}
}

// Where plainWord can tell, it says what the pattern does without it.
func TestPlainWordsEndAsThePatternSays(t *testing.T) {
	mustLoad(t, O200kBase)
	seed := seedOf(t)
	r := rand.New(rand.NewPCG(seed, 2))
	alphabet := []string{"a", "z", "s", "A", "Z", "'", "'s", " ", "\n", "\r", "\t", "0", "9", "(", "`", "{", "@", "[", "é", "É", "中", "\u0301", "ſ", "\x00", "\x7f", "\u0085"}
	told := 0
	for range 200_000 {
		text := strings.Repeat("x", r.IntN(9))
		for len(text) < 16 {
			text += alphabet[r.IntN(len(alphabet))]
			if r.IntN(4) == 0 {
				text += "abcdefghijklm"[r.IntN(13):]
			}
		}
		got := plainWord(text, 0)
		if want := nextPieceO200k(text, 0); got != 0 && got != want {
			t.Fatalf("plainWord(%q) ends at %d, want %d", text, got, want)
		}
		if got != 0 {
			told++
		}
	}
	if told < 50_000 {
		t.Errorf("plainWord could tell of %d texts only", told)
	}
}

func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		c := &Counter{file: "o200k_base.tiktoken"}
		if err := c.read(); err != nil {
			b.Fatal(err)
		}
	}
}
