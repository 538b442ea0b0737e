package estimator

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// wavHeader is a WAV's head: format, channels, samples a second and bits. The
// field of bytes a second lies.
func wavHeader(format, channels uint16, samples uint32, bits uint16) string {
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00")
	b = binary.LittleEndian.AppendUint16(b, format)
	b = binary.LittleEndian.AppendUint16(b, channels)
	b = binary.LittleEndian.AppendUint32(b, samples)
	b = binary.LittleEndian.AppendUint32(b, 1<<31)
	b = binary.LittleEndian.AppendUint16(b, channels*bits/8)
	return string(binary.LittleEndian.AppendUint16(b, bits)) + "data\xff\xff\xff\xff"
}

func mediaTally(t *testing.T, model string) *tally {
	t.Helper()
	m, err := newEstimator(t, Config{UnknownModel: &Ceiling{Input: usd, Output: usd}}).ModelAt("", model, anyDay)
	if err != nil {
		t.Fatal(err)
	}
	return &tally{model: m, maxBytes: 1 << 20, method: "rule/test", count: func(text string) Figures { return exactly(quota.Tokens(len(text))) }}
}

func TestAudio(t *testing.T) {
	second := strings.Repeat("\x80", 16_000)
	for _, tt := range []struct {
		name, model, format, data string
		want                      Figures
	}{
		{"10 s of WAV at 8 kHz, 16 bits", "gemini-2.5-flash", "audio/wav", wavHeader(1, 1, 8000, 16) + strings.Repeat(second, 10), Figures{311, 321, 321}},
		{"the same for OpenAI", "gpt-4o", "wav", wavHeader(1, 1, 8000, 16) + strings.Repeat(second, 10), Figures{97, 101, 101}},
		{"stereo, called MP3", "gpt-4o", "mp3", wavHeader(0xfffe, 2, 8000, 8) + strings.Repeat(second, 10), Figures{97, 101, 101}},
		{"a WAV of compressed samples", "gpt-4o", "wav", wavHeader(85, 1, 8000, 16) + second, Figures{2, 11, 214}},
		{"a WAV of no samples a second", "gpt-4o", "wav", wavHeader(1, 1, 0, 16) + second, Figures{2, 11, 214}},
		{"a second of MP3 at 128 kbit/s", "gpt-4o", "mp3", second, Figures{2, 10, 214}},
		{"FLAC", "gemini-2.5-flash", "audio/flac", second, Figures{9, 32, 4096}},
		{"24 kHz of PCM", "gpt-audio", "pcm16", strings.Repeat(second, 3), Figures{9, 10, 10}},
	} {
		tally := mediaTally(t, tt.model)
		if err := tally.audio("audio", tt.format, b64(tt.data)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := tally.parts[0]; got.Kind != KindAudio || got.Count != 1 || got.Tokens != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	var call *CallError
	if err := mediaTally(t, "claude-sonnet-4-5").audio("audio", "wav", "AAAA"); !errors.As(err, &call) || call.Field != "audio" {
		t.Errorf("audio for Claude: %v", err)
	}
	// However long, it is no more than what the model reads.
	tally := mediaTally(t, "gpt-4o")
	if err := tally.audio("audio", "mp3", b64(strings.Repeat(second, 1000))); err != nil {
		t.Fatal(err)
	}
	tally.boundMedia()
	if got := tally.parts[0].Tokens; got.Ceiling != tally.model.ContextWindow || got.Floor != 3998 {
		t.Errorf("16 MB of MP3: %+v", got)
	}
}

// pdfOf is a PDF of so many page objects.
func pdfOf(pages int, more string) string {
	var b strings.Builder
	b.WriteString("%PDF-1.7\n1 0 obj <</Type /Catalog /Pages 2 0 R /PageMode /UseOutlines>> endobj\n2 0 obj <</Type /Pages>> endobj\n")
	for i := range pages {
		space := []string{"", " ", "\r\n"}[i%3]
		fmt.Fprintf(&b, "%d 0 obj <</Type%s/Page/Parent 2 0 R /PageLabels /Page /Contents [(/Type/Page)] >> endobj\n", i+3, space)
	}
	return b.String() + more
}

func TestPDFPages(t *testing.T) {
	const maximum = 600
	for _, tt := range []struct {
		name, text string
		want       pageCount
	}{
		{"three", pdfOf(3, ""), pageCount{3 * 2, 3 * 2, 3 * 2}}, // a page's own text is not told apart
		{"none seen", "%PDF-1.7", pageCount{1, 1, 1}},
		{"compressed", pdfOf(0, "<</Type /ObjStm /N 100>> "+strings.Repeat("x", 10*usualPageBytes)), pageCount{1, 11, maximum}},
		{"ends in a name", "/Type/Page", pageCount{1, 1, 1}},
		{"many", strings.Repeat("<</Type/Page>>", 10_000), pageCount{10_000, 10_000, 10_000}},
	} {
		if got := pdfPages(strings.NewReader(tt.text), maximum); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestDocuments(t *testing.T) {
	for _, tt := range []struct {
		name, model, kind, data string
		kindOf                  Kind
		want                    Figures
	}{
		{"text", "claude-sonnet-4-5", "text/plain; charset=utf-8", "hello", KindText, exactly(5)},
		{"text by its name", "gpt-4o", "notes.MD", "hello", KindText, exactly(5)},
		{"JSON", "gemini-2.5-flash", "application/json", "{}", KindText, exactly(2)},
		{"a page for Claude", "claude-sonnet-4-5", "application/pdf", "<</Type /Page>>", KindPages, Figures{0, 2250 + 1568, 3000 + 1600}},
		{"a page for Gemini", "gemini-2.5-flash", "application/pdf", "<</Type /Page>>", KindPages, exactly(258)},
		{"a page for Gemini 3", "gemini-3-pro-preview", "application/pdf", "<</Type /Page>>", KindPages, upTo(560)},
		{"a page for GPT", "gpt-4o", "a.pdf", "<</Type /Page>>", KindPages, Figures{0, 2250 + 765, 3000 + 1445}},
		{"a spreadsheet", "gpt-4o", "a.xlsx", "PK", KindPages, upTo(128_000)},
	} {
		tally := mediaTally(t, tt.model)
		if err := tally.document("file", tt.kind, b64(tt.data), ""); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := tally.parts[0]; got.Kind != tt.kindOf || got.Tokens != tt.want {
			t.Errorf("%s: %+v, want %s %+v", tt.name, got, tt.kindOf, tt.want)
		}
	}
	var large *TooLargeError
	if err := mediaTally(t, "gpt-4o").document("file", "a.txt", b64(strings.Repeat("x", 1<<20+1)), ""); !errors.As(err, &large) {
		t.Errorf("a text over the bound: %v", err)
	}
	var call *CallError
	if err := mediaTally(t, "gpt-4o").document("file", "a.txt", "%%%", ""); !errors.As(err, &call) {
		t.Errorf("no base64: %v", err)
	}
}

// A call's media are looked into up to a bound, and then bounded by formula.
func TestMediaIsLookedIntoUpToABound(t *testing.T) {
	tally := mediaTally(t, "gpt-4o")
	tally.media = maxMediaBytes
	if err := tally.image("image", encoded(t, "png", 100, 100), "high"); err != nil {
		t.Fatal(err)
	}
	if got := tally.parts[0].Tokens; got.Ceiling != 1445 {
		t.Errorf("%+v", got)
	}
}

func TestDataURL(t *testing.T) {
	for _, tt := range []struct {
		url, mime, data string
		ok              bool
	}{
		{"data:image/png;base64,AAAA", "image/png", "AAAA", true},
		{"DATA:image/PNG;name=x;base64,AAAA", "image/png", "AAAA", true},
		{"data:,x", "", "x", true}, {"data:image/png;base64", "image/png", "", false},
		{"https://example.com/data:image/png,", "", "", false}, {"", "", "", false},
	} {
		if mime, data, ok := dataURL(tt.url); mime != tt.mime || data != tt.data || ok != tt.ok {
			t.Errorf("%q: %q, %q, %t", tt.url, mime, data, ok)
		}
	}
}

func FuzzMedia(f *testing.F) {
	f.Add("audio", "wav", []byte(wavHeader(1, 1, 8000, 16)))
	f.Add("document", "pdf", []byte(pdfOf(2, "/ObjStm")))
	f.Add("document", "txt", []byte("hello"))
	e := newEstimator(f, Config{})
	models := []Model{}
	for _, name := range []string{"gpt-4o", "claude-sonnet-4-5", "gemini-2.5-flash", "gemini-3-pro-preview"} {
		m, err := e.ModelAt("", name, anyDay)
		if err != nil {
			f.Fatal(err)
		}
		models = append(models, m)
	}
	f.Fuzz(func(t *testing.T, kind, format string, data []byte) {
		for _, m := range models {
			tally := &tally{model: m, maxBytes: 1 << 16, count: func(text string) Figures { return exactly(quota.Tokens(len(text))) }}
			text := base64.StdEncoding.EncodeToString(data)
			var err error
			switch kind {
			case "audio":
				err = tally.audio("f", format, text)
			case "document":
				err = tally.document("f", format, text, "")
			default:
				err = tally.image("f", text, format)
			}
			if err != nil && !errors.Is(err, ErrInvalidCall) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("untyped error %v", err)
			}
			tally.boundMedia()
			for _, part := range tally.parts {
				if f := part.Tokens; f.Floor < 0 || f.Floor > f.Expected || f.Expected > f.Ceiling || f.Ceiling > 1<<40 {
					t.Errorf("%s of %s: %+v", kind, m.ID, part)
				}
			}
		}
	})
}
