package encoding

import (
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
)

// reference returns tiktoken-go's own encoder of an encoding. It calls
// o200k_harmony o200k_base.
var reference = func() func(t testing.TB, e Encoding) *tiktoken.Tiktoken {
	var mu sync.Mutex
	made := map[Encoding]*tiktoken.Tiktoken{}
	return func(t testing.TB, e Encoding) *tiktoken.Tiktoken {
		t.Helper()
		if e == O200kHarmony {
			e = O200kBase
		}
		mu.Lock()
		defer mu.Unlock()
		if enc := made[e]; enc != nil {
			return enc
		}
		tiktoken.SetBpeLoader(loader.NewOfflineLoader())
		enc, err := tiktoken.GetEncoding(string(e))
		if err != nil {
			t.Fatalf("tiktoken-go: %v", err)
		}
		made[e] = enc
		return enc
	}
}()

// distinct are the encodings, each once of those that count alike.
var distinct = []Encoding{O200kBase, CL100kBase, P50kBase, R50kBase}

func mustLoad(t testing.TB, e Encoding) *Counter {
	t.Helper()
	c, err := Load(e)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// goClass is the class of a character by Go's version of Unicode, which
// tiktoken-go goes by.
func goClass(c rune) class {
	switch {
	case c == '\n' || c == '\r':
		return newline
	case unicode.IsSpace(c):
		return space
	case unicode.In(c, unicode.Lu, unicode.Lt):
		return upper
	case unicode.Is(unicode.Ll, c):
		return lower
	case unicode.Is(unicode.L, c):
		return caseless
	case unicode.Is(unicode.M, c):
		return mark
	case unicode.Is(unicode.N, c):
		return number
	}
	return other
}

func classOf(c rune) class {
	kind, _ := classes.at(string(c), 0)
	return kind
}

// comparable returns a text without what tiktoken-go splits in another way:
// characters that are of another class in its version of Unicode, and
// contractions with the long s, which it leaves out of (?i:'s).
func comparable(text string) string {
	text = strings.Map(func(c rune) rune {
		if classOf(c) != goClass(c) {
			return 'x'
		}
		return c
	}, text)
	return strings.ReplaceAll(text, "'\u017f", "'s")
}

// Where tiktoken-go counts another number, ours is that of the npm package.
func TestWhereTiktokenGoDiffers(t *testing.T) {
	npm := map[string][4]int{}
	for _, row := range npmRows(t) {
		npm[row.Text] = row.Counts
	}
	for _, text := range []string{"\u1c89's", "\U00013f80's", "\n\U00016d66's", "\ua7cb's x", "!\u0897's", "e'\u017f'TTTDm"} {
		want, ok := npm[text]
		if !ok {
			t.Fatalf("counts.jsonl does not have %+q", text)
		}
		got, theirs := [4]int{}, [4]int{}
		for i, e := range distinct {
			got[i], theirs[i] = mustLoad(t, e).Count(text), len(reference(t, e).EncodeOrdinary(text))
		}
		if got != want {
			t.Errorf("Count(%+q) = %v, tiktoken says %v", text, got, want)
		}
		if known := comparable(text) == text; (theirs == want) != known {
			t.Errorf("tiktoken-go counts %v of %+q, tiktoken %v; taken to be comparable: %t", theirs, text, want, known)
		}
	}
}

// Characters that Go's version of Unicode knows have the same class in ours.
func TestClassesEqualGos(t *testing.T) {
	mustLoad(t, O200kBase)
	later := 0
	for c := rune(0); c <= unicode.MaxRune; c++ {
		if c >= 0xd800 && c <= 0xdfff || classOf(c) == goClass(c) {
			continue
		}
		if later++; unicode.Version == "15.0.0" && goClass(c) != other {
			t.Errorf("%U is of class %b, in Unicode %s of %b", c, classOf(c), unicode.Version, goClass(c))
		}
	}
	t.Logf("%d characters are of another class in Unicode %s", later, unicode.Version)
}
