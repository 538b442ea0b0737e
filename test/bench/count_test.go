package bench

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"

	"github.com/budgetd/budgetd/estimator/encoding"
)

// The first articles of the Universal Declaration of Human Rights, as the United
// Nations publish them.
const chinese = "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。" +
	"人人有资格享有本宣言所载的一切权利和自由，不分种族、肤色、性别、语言、宗教、政治或其他见解、" +
	"国籍或社会出身、财产、出生或其他身份等任何区别。人人有权享有生命、自由和人身安全。" +
	"任何人不得使为奴隶或奴役；一切形式的奴隶制度和奴隶买卖，均应予以禁止。"

// ofFiles returns size bytes of the repository's own files.
func ofFiles(b *testing.B, pattern string, size int) string {
	b.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
	if err != nil || len(files) == 0 {
		b.Fatalf("no files like %s: %v", pattern, err)
	}
	var text strings.Builder
	for text.Len() < size {
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				b.Fatal(err)
			}
			text.Write(data)
		}
	}
	return strings.ToValidUTF8(text.String()[:size], "")
}

// repeated returns about size bytes of a unit, whole units only.
func repeated(unit string, size int) string { return strings.Repeat(unit, size/len(unit)) }

// random returns at least size bytes of characters of an alphabet.
func random(alphabet []rune, size int) string {
	r := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for text.Len() < size {
		text.WriteRune(alphabet[r.IntN(len(alphabet))])
	}
	return text.String()
}

func runes(first rune, count int) []rune {
	out := make([]rune, count)
	for i := range out {
		out[i] = first + rune(i)
	}
	return out
}

// best returns the shortest of some times of a call: other processes only ever
// make one longer.
func best(turns int, what func()) time.Duration {
	shortest := time.Duration(1<<63 - 1)
	for range turns {
		begun := time.Now()
		what()
		shortest = min(shortest, time.Since(begun))
	}
	return shortest
}

func o200k(b *testing.B) *encoding.Counter {
	b.Helper()
	counter, err := encoding.Load(encoding.O200kBase)
	if err != nil {
		b.Fatal(err)
	}
	return counter
}

// BenchmarkCount compares Count with tiktoken-go's ordinary mode on the same
// 100 KB, in turns in one run: how many times the latter takes, by the shortest
// time of each.
func BenchmarkCount(b *testing.B) {
	const size = 100_000
	counter := o200k(b)
	tiktoken.SetBpeLoader(loader.NewOfflineLoader())
	reference, err := tiktoken.GetEncoding("o200k_base")
	if err != nil {
		b.Fatal(err)
	}
	for _, input := range []struct{ name, text string }{
		{"English", ofFiles(b, "docs/*.md", size)},
		{"code", ofFiles(b, "reservation/*.go", size)},
		{"Chinese", repeated(chinese, size)},
		{"base64", random([]rune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"), size)},
	} {
		b.Run(input.name, func(b *testing.B) {
			if got, want := counter.Count(input.text), len(reference.EncodeOrdinary(input.text)); got != want {
				b.Fatalf("%d tokens, tiktoken-go says %d", got, want)
			}
			b.SetBytes(int64(len(input.text)))
			b.ReportAllocs()
			ours, theirs := time.Duration(1<<63-1), time.Duration(1<<63-1)
			for b.Loop() {
				ours = min(ours, best(1, func() { counter.Count(input.text) }))
				b.StopTimer()
				ours = min(ours, best(4, func() { counter.Count(input.text) }))
				theirs = min(theirs, best(1, func() { reference.EncodeOrdinary(input.text) }))
				b.StartTimer()
			}
			b.ReportMetric(float64(theirs)/float64(ours), "times")
			b.ReportMetric(float64(ours.Microseconds())/1000, "ms-best")
		})
	}
}

// BenchmarkCountGrowth measures how many times longer 1 MB takes than 100 KB of
// the worst texts known, and the time of 1 MB.
func BenchmarkCountGrowth(b *testing.B) {
	counter := o200k(b)
	for _, input := range []struct {
		name string
		text func(size int) string
	}{
		{"a", func(size int) string { return repeated("a", size) }},
		{"spaces", func(size int) string { return repeated(" ", size) }},
		{"emoji", func(size int) string { return repeated("😀", size) }},
		{"random letters", func(size int) string { return random(runes('a', 26), size) }},
		{"Chinese without punctuation", func(size int) string { return random(runes(0x4e00, 3000), size) }},
		{"not UTF-8", func(size int) string { return repeated("\xff", size) }},
		{"special tokens", func(size int) string { return repeated("<|endoftext|>", size) }},
	} {
		b.Run(input.name, func(b *testing.B) {
			small, large := input.text(100_000), input.text(1_000_000)
			b.SetBytes(int64(len(large)))
			b.ReportAllocs()
			// Ten calls of 100 KB at a stretch, so that other processes interrupt
			// both alike.
			var ten, thousand time.Duration
			shortest := time.Duration(1<<63 - 1)
			for b.Loop() {
				b.StopTimer()
				ten += best(1, func() {
					for range 10 {
						counter.Count(small)
					}
				})
				b.StartTimer()
				took := best(1, func() { counter.Count(large) })
				thousand += took
				shortest = min(shortest, took)
			}
			b.ReportMetric(10*float64(thousand)/float64(ten), "times-of-100KB")
			b.ReportMetric(float64(shortest.Microseconds())/1000, "ms-best")
		})
	}
}
