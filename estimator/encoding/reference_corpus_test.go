package encoding

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// alphabets are where the pre-tokenizers and the merges differ most.
var alphabets = [][]rune{
	[]rune("etaoinshrdlu"), []rune("AbCdE"), []rune(" "), []rune(" \n\r\t"), []rune("0123456789"), []rune("'sTrevelLmdD\u017f"),
	[]rune("e\u0301\u01c5\u02b0\u05d0A"), []rune("\u4e2d\u6587\u5b57\u4e00\u7684\u662f"), []rune("\u5f69\u7968\u795e\u5929\u5317"),
	[]rune("\U0001f600\U0001f469\u200d\U0001f1ef\ufe0f"), []rune("=-/#*.,;!\n"), []rune("\u0085\u00a0\u2028\ufeff\x00 "),
	[]rune("ABab12+/="), []rune("\u0430\u0431\u0412 "), []rune("\u0915\u094d\u0937 "), []rune("\uac00\ub098 "), []rune("{}[]()\"': \n\t"), []rune("\u0e2a\u0e27\u0e31"),
}

// textOf makes a text of a few runs, mostly short ones: the reference is slow,
// and what differs differs in few characters.
func textOf(r *rand.Rand, longest int) string {
	var b strings.Builder
	for range 1 + r.IntN(3) {
		alphabet := alphabets[r.IntN(len(alphabets))]
		strange := rune(-1)
		if r.IntN(8) == 0 {
			if strange = rune(r.IntN(0x20000)); classOf(strange) != goClass(strange) {
				strange = -1 // tiktoken-go splits it in another way
			}
		}
		for range 1 + r.IntN(longest) {
			if strange >= 0 && r.IntN(3) == 0 {
				b.WriteRune(strange) // U+FFFD for a surrogate
			} else {
				b.WriteRune(alphabet[r.IntN(len(alphabet))])
			}
		}
	}
	return strings.ReplaceAll(b.String(), "'\u017f", "'s")
}

// seedOf is that of the environment, or a new one, which is printed.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	const name = "BUDGETD_TEST_SEED"
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(name); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	t.Logf("to repeat: %s=%d go test ./estimator/encoding -run '^%s$'", name, seed, t.Name())
	return seed
}

// A million short texts, and some that reach the merging of long pieces.
func TestCountsEqualTiktokenGo(t *testing.T) {
	seed := seedOf(t)
	parts := []struct {
		e              Encoding
		texts, longest int
	}{
		{O200kBase, 500_000, 4}, {CL100kBase, 300_000, 4}, {R50kBase, 150_000, 4}, {P50kBase, 50_000, 4},
		{O200kBase, 4_000, 40}, {CL100kBase, 2_000, 40}, {R50kBase, 2_000, 40},
		{O200kBase, 60, 900}, {CL100kBase, 40, 900},
	}
	workers := runtime.GOMAXPROCS(0)
	for number, part := range parts {
		c, ref := mustLoad(t, part.e), reference(t, part.e)
		var running sync.WaitGroup
		for worker := range workers {
			running.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(number*workers+worker)))
				for i := worker; i < part.texts; i += workers {
					text := textOf(r, part.longest)
					if got, want := c.Count(text), len(ref.EncodeOrdinary(text)); got != want {
						t.Errorf("%s: Count(%+q) = %d, tiktoken-go says %d", part.e, text, got, want)
						return
					}
				}
			})
		}
		running.Wait()
	}
}

func TestInvalidBytesCountAsReplacements(t *testing.T) {
	for _, text := range []string{"\xff\xfe invalid \xc3", "\xff\xff\xff\xff\xff", "\xe4\xb8 x\xe4\xb8\xad\xed\xa0\x80", strings.Repeat("a\x80", 300), strings.Repeat("\xf0\x9f", 300)} {
		replaced := string([]rune(text))
		for _, e := range distinct {
			c := mustLoad(t, e)
			if got, want := c.Count(text), len(reference(t, e).EncodeOrdinary(replaced)); got != want {
				t.Errorf("%s: Count(%q) = %d, and %d of U+FFFD", e, text, got, want)
			}
			if got := strings.Join(collect(c, text), ""); got != replaced {
				t.Errorf("%s: the pieces of %q are %q", e, text, got)
			}
		}
	}
}

func collect(c *Counter, text string) (pieces []string) {
	for piece := range c.Pieces(text) {
		pieces = append(pieces, piece)
	}
	return pieces
}

func FuzzCountEqualsTiktokenGo(f *testing.F) {
	for _, seed := range []string{"Hello, world!", "  \r\n x", "it's 1234", strings.Repeat("ab", 80), "\xff", "e\u0301", "\u4e2dA'LL", "\u5f69\u7968 \u5929"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1024 {
			return // the reference is quadratic
		}
		mustLoad(t, O200kBase) // and the classes
		text = comparable(text)
		for _, e := range []Encoding{O200kBase, CL100kBase, R50kBase} {
			c := mustLoad(t, e)
			got := c.Count(text)
			if want := len(reference(t, e).EncodeOrdinary(text)); got != want {
				t.Errorf("%s: Count(%+q) = %d, tiktoken-go says %d", e, text, got, want)
			}
			sum := 0
			for _, piece := range collect(c, text) {
				sum += c.CountPiece(piece)
			}
			if sum != got {
				t.Errorf("%s: the pieces of %+q have %d tokens, the text %d", e, text, sum, got)
			}
		}
	})
}
