package corpus

import (
	"embed"
	"math/rand/v2"
	"strings"
)

//go:embed prose/*.txt code/*.txt
var written embed.FS

// read returns the parts of an embedded file.
func read(name, separator string) []string {
	data, err := written.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the binary
	}
	return strings.Split(strings.TrimRight(string(data), "\n"), separator)
}

// sentences takes sentences of a language at random; now and then a paragraph
// ends.
func sentences(language, space string) source {
	lines := read("prose/"+language+".txt", "\n")
	return func(r *rand.Rand, b *strings.Builder) {
		b.WriteString(pick(r, lines))
		if r.IntN(6) == 0 {
			b.WriteString("\n\n")
		} else {
			b.WriteString(space)
		}
	}
}

// chunks takes functions and the like, which a blank line separates.
func chunks(language string) source {
	parts := read("code/"+language+".txt", "\n\n")
	return func(r *rand.Rand, b *strings.Builder) {
		b.WriteString(pick(r, parts))
		b.WriteString("\n\n")
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// words are those of the English sentences.
var words = strings.FieldsFunc(strings.Join(read("prose/english.txt", "\n"), " "), func(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
})

func word(r *rand.Rand) string { return strings.ToLower(pick(r, words)) }

// mixed takes a unit of any other kind, as a chat that quotes logs, code and
// several languages does.
func mixed(r *rand.Rand, b *strings.Builder) {
	pick(r, pick(r, plain).sources)(r, b)
	b.WriteByte('\n')
}
