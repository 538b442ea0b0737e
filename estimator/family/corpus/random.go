package corpus

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode"
)

func randomBytes(r *rand.Rand, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func base64Blob(r *rand.Rand, b *strings.Builder) {
	text := base64.StdEncoding.EncodeToString(randomBytes(r, 30+r.IntN(2000)))
	for len(text) > 76 {
		b.WriteString(text[:76] + "\n")
		text = text[76:]
	}
	b.WriteString(text + "\n")
}

func dataURI(r *rand.Rand, b *strings.Builder) {
	b.WriteString("data:image/png;base64," + base64.URLEncoding.EncodeToString(randomBytes(r, 30+r.IntN(4000))) + " ")
}

func hexBlob(r *rand.Rand, b *strings.Builder) {
	b.WriteString(hex.EncodeToString(randomBytes(r, 16+r.IntN(500))) + "\n")
}

func hexDump(r *rand.Rand, b *strings.Builder) {
	fmt.Fprintf(b, "%08X  % X  0x%04x\n", r.Uint32(), randomBytes(r, 16), r.IntN(1<<16))
}

func uuids(r *rand.Rand, b *strings.Builder) {
	d := randomBytes(r, 16)
	fmt.Fprintf(b, "%x-%x-%x-%x-%x\n", d[:4], d[4:6], d[6:8], d[8:10], d[10:])
}

func letters(r *rand.Rand, b *strings.Builder, n int, first rune) {
	for range n {
		b.WriteRune(first + r.Int32N(26))
	}
}

func randomWords(r *rand.Rand, b *strings.Builder) {
	letters(r, b, 1+r.IntN(14), 'a')
	b.WriteByte(' ')
}

func randomCapitals(r *rand.Rand, b *strings.Builder) {
	letters(r, b, 1+r.IntN(20), 'A')
	b.WriteString(pick(r, []string{" ", "_", "\n", "-", "/"}))
	letters(r, b, 1+r.IntN(3), pick(r, []rune{'a', 'A'}))
}

func randomRun(r *rand.Rand, b *strings.Builder) {
	letters(r, b, 20+r.IntN(300), 'a')
	b.WriteString(strings.Repeat(string('a'+r.Int32N(26)), r.IntN(100)))
}

func punctuation(r *rand.Rand, b *strings.Builder) {
	const marks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	if r.IntN(3) == 0 {
		b.WriteString(strings.Repeat(string(marks[r.IntN(len(marks))]), 1+r.IntN(50)))
	} else {
		for range 1 + r.IntN(8) {
			b.WriteByte(marks[r.IntN(len(marks))])
		}
	}
	b.WriteString(pick(r, []string{" ", "\n", "", "x", " a "}))
}

func frames(r *rand.Rand, b *strings.Builder) {
	marks := []rune("─│┌┐└┘├┤┬┴┼═║╔╗╚╝█▓▒░■□▲▼◆○●★☆→←↑↓⇒∀∃∈∑∏∫√∞≈≠≤≥±×÷§¶†‡•…‰€£¥₹©®™")
	b.WriteString(strings.Repeat(string(pick(r, marks)), 1+r.IntN(8)))
	if r.IntN(5) == 0 {
		b.WriteString(" " + word(r) + "\n")
	}
}

var emojis = strings.Fields("😀 😂 🤣 😍 🙏 👍 👍🏽 🔥 🎉 ❤️ 💯 ✅ ❌ ⚠️ 🚀 🐛 📈 🧪 👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 🇯🇵 🇧🇷 1️⃣ #️⃣ 🫠 🦩 🪐 🧑🏿‍🚒 🐻‍❄️ ♟️ 🀄 🃏 ☕ ⛄")

func emoji(r *rand.Rand, b *strings.Builder) {
	b.WriteString(strings.Repeat(pick(r, emojis), 1+r.IntN(4)))
}

func emojiProse(r *rand.Rand, b *strings.Builder) {
	b.WriteString(word(r) + " " + pick(r, emojis) + " " + word(r) + pick(r, emojis) + "! ")
}

// blocks are ranges of characters that are seldom seen in running text.
var blocks = []struct{ first, last rune }{
	{0x100, 0x24f}, {0x250, 0x2af}, {0x370, 0x3ff}, {0x400, 0x52f}, {0x531, 0x587}, {0x5d0, 0x5ea}, {0x620, 0x6ff}, {0x710, 0x74a},
	{0x905, 0x97f}, {0x985, 0x9fe}, {0xb83, 0xbf2}, {0xc05, 0xc7f}, {0xd05, 0xd7f}, {0xe01, 0xe5b}, {0xf00, 0xf6c}, {0x1000, 0x109f},
	{0x10a0, 0x10ff}, {0x1200, 0x137c}, {0x13a0, 0x13f5}, {0x1400, 0x167f}, {0x1780, 0x17f9}, {0x1820, 0x1878}, {0x2200, 0x22ff},
	{0x2460, 0x24ff}, {0x2800, 0x28ff}, {0x3041, 0x3096}, {0x30a1, 0x30fa}, {0x3105, 0x312f}, {0xa000, 0xa48c}, {0xac00, 0xd7a3},
	{0x10000, 0x100fa}, {0x12000, 0x12399}, {0x13000, 0x1342e}, {0x1d400, 0x1d7ff}, {0x1f300, 0x1f5ff}, {0x1f600, 0x1f64f},
}

// character returns an assigned character of a block.
func character(r *rand.Rand, block int) rune {
	for {
		c := blocks[block].first + r.Int32N(blocks[block].last-blocks[block].first+1)
		if unicode.In(c, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S) {
			return c
		}
	}
}

func randomScript(r *rand.Rand, b *strings.Builder) {
	block := r.IntN(len(blocks))
	for range 1 + r.IntN(12) {
		b.WriteRune(character(r, block))
	}
	b.WriteByte(' ')
}

func randomAny(r *rand.Rand, b *strings.Builder) { b.WriteRune(character(r, r.IntN(len(blocks)))) }

func randomHan(r *rand.Rand, b *strings.Builder) {
	if r.IntN(8) == 0 {
		b.WriteRune(0x20000 + r.Int32N(0xa6d6)) // extension B
	} else {
		b.WriteRune(0x4e00 + r.Int32N(0x51a6))
	}
}

// compatibility takes characters that Unicode normalisation, which some
// tokenizers begin with, makes longer or other ones, between words.
func compatibility(r *rand.Rand, b *strings.Builder) {
	parts := strings.Fields("ﬁ ﬂ ﬃ ﷺ ﷲ ㎏ ㎡ ㏒ ㈱ ㍿ ㌔ ㌧ ｶﾞ ﾊﾟ ＡＢＣ １２３ ，。！ ⅷ ½ ¼ ① ⑳ ™ ℡ № ℃ … ‥ ″ ʼn ǆ क़ ख़ ড় שׁ אּ é ñ ü ệ 𝐀 𝓑 𝟘 𝅗𝅥")
	b.WriteString(pick(r, parts))
	if r.IntN(3) == 0 {
		b.WriteString(" " + word(r) + " ")
	}
}
