package estimator

import (
	"strings"
	"sync"
	"testing"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
	"pgregory.net/rapid"
)

// reference returns tiktoken-go's own encoder, which is what our counts must
// equal in ordinary mode.
var reference = func() func(t testing.TB, name string) *tiktoken.Tiktoken {
	var mu sync.Mutex
	made := map[string]*tiktoken.Tiktoken{}
	return func(t testing.TB, name string) *tiktoken.Tiktoken {
		mu.Lock()
		defer mu.Unlock()
		if enc := made[name]; enc != nil {
			return enc
		}
		tiktoken.SetBpeLoader(loader.NewOfflineLoader())
		enc, err := tiktoken.GetEncoding(name)
		if err != nil {
			t.Fatalf("tiktoken-go: %v", err)
		}
		made[name] = enc
		return enc
	}
}()

var tiktokenNames = map[Encoding]string{
	O200kBase: "o200k_base", O200kHarmony: "o200k_base", CL100kBase: "cl100k_base",
	P50kBase: "p50k_base", R50kBase: "r50k_base",
}

func mustCount(t testing.TB, e Encoding, text string) int {
	t.Helper()
	n, err := Count(e, text)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

func TestCountEqualsTiktoken(t *testing.T) {
	texts := []string{
		"", "a", " ", "\n", "Hello, world!", "hello <|endoftext|> there <|im_start|>",
		"I'll don't WE'VE it's 12345678 3.14159 x=1;\r\n\r\n\t\tif (a) { b(); }  \n  c",
		"日本語のテキスト、中文字符,한국어 텍스트", "👩‍👩‍👧‍👦 🇯🇵 e\u0301\u0301 \ufeff\u0085\u00a0\x00",
		"\xff\xfe invalid \xc3", "\xff\xff\xff\xff\xff", strings.Repeat("a", 1000), strings.Repeat(" ", 1000) + "x",
		strings.Repeat("A", 300), strings.Repeat("😀", 300), strings.Repeat("ab", 40) + "\n",
		"supercalifragilisticexpialidocious" + strings.Repeat("antidisestablishmentarianism", 9),
		"https://example.com/a/b?c=d&e=f#g//\n\n//", strings.Repeat("=", 200), strings.Repeat("- ", 100),
	}
	for e, name := range tiktokenNames {
		for _, text := range texts {
			if got, want := mustCount(t, e, text), len(reference(t, name).EncodeOrdinary(text)); got != want {
				t.Errorf("%s: Count(%.60q) = %d, tiktoken-go says %d", e, text, got, want)
			}
		}
	}
}

// anyText draws text from alphabets in which the pre-tokenizers and merges
// differ most, in runs long enough to reach the heap.
func anyText() *rapid.Generator[string] {
	alphabets := []string{
		"a", "ab", "abcdefghijklmnopqrstuvwxyz", "AbC", " ", " \n\r\t", "0123456789", "'s'T're", "e\u0301ǅʰא",
		"中文字一二三", "😀👩\u200d🇯", "=-/#*.,;", "\u0085\u00a0\u2028\ufeff\x00", "ABCdef123+/=",
	}
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 6).Draw(t, "runs") {
			runes := []rune(rapid.SampledFrom(alphabets).Draw(t, "alphabet"))
			for range rapid.SampledFrom([]int{1, 2, 3, 5, 9, 30, 70, 200}).Draw(t, "length") {
				b.WriteRune(rapid.SampledFrom(runes).Draw(t, "rune"))
			}
		}
		return b.String()
	})
}

func TestCountEqualsTiktokenOnAnyText(t *testing.T) {
	for e, name := range tiktokenNames {
		t.Run(string(e), func(t *testing.T) {
			ref := reference(t, name)
			rapid.Check(t, func(t *rapid.T) {
				text := anyText().Draw(t, "text")
				got, err := Count(e, text)
				if err != nil {
					t.Fatal(err)
				}
				if want := len(ref.EncodeOrdinary(text)); int(got) != want {
					t.Fatalf("Count(%q) = %d, tiktoken-go says %d", text, got, want)
				}
			})
		})
	}
}

func FuzzCountEqualsTiktoken(f *testing.F) {
	for _, seed := range []string{"Hello, world!", "  \r\n x", "it's 1234", strings.Repeat("ab", 50), "\xff", "e\u0301"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return // the reference is quadratic
		}
		for _, e := range []Encoding{O200kBase, CL100kBase, R50kBase} {
			if got, want := mustCount(t, e, text), len(reference(t, tiktokenNames[e]).EncodeOrdinary(text)); got != want {
				t.Errorf("%s: Count(%q) = %d, tiktoken-go says %d", e, text, got, want)
			}
		}
	})
}
