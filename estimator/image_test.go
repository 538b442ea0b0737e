package estimator

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
)

func rule(t testing.TB, provider, model string) imageRule {
	t.Helper()
	m, err := newEstimator(t, Config{UnknownModel: &Ceiling{Input: usd, Output: usd}}).ModelAt(provider, model, anyDay)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := imageRuleOf(m)
	if !ok {
		t.Fatalf("no rule for images of %s", model)
	}
	return r
}

// The examples that the providers' guides print, and bills that were seen.
func TestImageFormulas(t *testing.T) {
	for _, tt := range []struct {
		provider, model, detail string
		width, height           int64
		want                    Figures
	}{
		// OpenAI's guide: 765 for 1,024 x 1,024, 1,105 for 2,048 x 4,096, 85 at low detail.
		{"", "gpt-4o", "high", 1024, 1024, exactly(765)},
		{"", "gpt-4o", "high", 2048, 4096, exactly(1105)},
		{"", "gpt-4o", "low", 2048, 4096, exactly(85)},
		{"", "gpt-4o", "auto", 1024, 1024, Figures{85, 765, 765}},
		{"", "gpt-4o", "", 1024, 1024, Figures{85, 765, 765}},
		{"", "gpt-4o", "high", 512, 512, Figures{255, 255, 765}}, // not scaled up in bills
		{"", "gpt-4o", "high", 0, 0, Figures{255, 765, 1445}},
		{"", "gpt-4o", "high", 1, 1 << 31, Figures{85 + 4*170, 85 + 4*170, 1445}},
		{"", "gpt-4.1", "high", 1800, 2400, exactly(765)}, // a bill of 773 with 8 of text
		{"", "gpt-4o-mini", "high", 1024, 1024, exactly(2833 + 4*5667)},
		{"", "gpt-5", "high", 1024, 1024, exactly(70 + 4*140)},
		{"", "o1", "high", 1024, 1024, exactly(75 + 4*150)},
		// The guide: 1,024 patches of 1,024 x 1,024; 1,452 of 1,800 x 2,400.
		{"", "gpt-4.1-mini", "high", 1024, 1024, Figures{1024, 1659, 1659}},
		{"", "gpt-4.1-mini", "high", 1800, 2400, Figures{1452, 2353, 2489}}, // bills of 2,352 to 2,488
		{"", "o4-mini", "high", 1024, 1024, Figures{1024, 1762, 1762}},
		{"", "gpt-5-nano", "high", 1024, 1024, Figures{1024, 2520, 2520}},
		{"", "gpt-5-mini", "", 64, 32, Figures{2, 4, 4}},
		{"", "gpt-5-mini", "", 0, 0, Figures{1, 1659, 2489}},
		{"openai", "gpt-9", "original", 4000, 2560, Figures{10000, 12000, 12000}},
		{"openai", "gpt-9", "", 0, 0, Figures{1, 1229, 12000}},
		// Anthropic's guide: some 1,334 tokens of 1,000 x 1,000 and 54 of 200 x 200.
		{"", "claude-sonnet-4-5", "", 1000, 1000, Figures{1296, 1296, 1334}},
		{"", "claude-sonnet-4-5", "", 200, 200, Figures{54, 64, 64}},
		{"", "claude-sonnet-4-5", "", 4000, 4000, Figures{1568, 1568, 1600}},
		{"", "claude-sonnet-4-5", "", 0, 0, Figures{1, 1568, 1600}},
		{"", "claude-opus-4-7", "", 4000, 4000, Figures{4784, 4784, 4784}},
		{"", "claude-3-opus-latest", "", 8000, 10, Figures{3, 56, 56}},
		// Google's guides: 258 up to 384 x 384; 960 x 540 is 3 x 2 tiles.
		{"", "gemini-2.5-flash", "", 384, 384, exactly(258)},
		{"", "gemini-2.5-flash", "", 960, 540, Figures{2 * 258, 6 * 258, 6 * 258}},
		{"", "gemini-2.5-flash", "MEDIA_RESOLUTION_LOW", 960, 540, Figures{64, 64, 258}},
		{"", "gemini-2.5-flash", "", 3072, 384, Figures{4 * 258, 24 * 258, 24 * 258}},
		{"", "gemini-2.5-flash", "", 0, 0, Figures{258, 4 * 258, 24 * 258}},
		{"", "gemini-3-pro-preview", "", 960, 540, upTo(1120)},
		{"", "gemini-3-pro-preview", "MEDIA_RESOLUTION_ULTRA_HIGH", 960, 540, upTo(2240)},
		// xAI's guide: fewer than 1,792 tokens.
		{"", "grok-4", "high", 448, 448, exactly(512)},
		{"", "grok-4", "", 9000, 9000, Figures{256, 1792, 1792}},
	} {
		got := rule(t, tt.provider, tt.model).tokens(pixels{tt.width, tt.height}, tt.detail)
		if got != tt.want {
			t.Errorf("%s of %d x %d at %q: %+v, want %+v", tt.model, tt.width, tt.height, tt.detail, got, tt.want)
		}
	}
}

// Whatever the size, the figures are in order, and none is above what is said
// of an image whose size is not known.
func TestImageFiguresAreInOrder(t *testing.T) {
	sides := []int64{1, 2, 27, 28, 29, 32, 255, 256, 383, 384, 385, 511, 512, 513, 576, 768, 769, 1000, 1568, 1569, 2048, 2049, 3072, 4000, 6000, 6001, 65535, 1<<31 - 1}
	for _, model := range []string{
		"gpt-4o", "gpt-4o-mini", "gpt-4.1-mini", "gpt-5", "gpt-5-nano", "gpt-5.2", "o1", "o4-mini", "claude-sonnet-4-5", "claude-opus-4-7",
		"gemini-2.5-flash", "gemini-3-pro-preview", "grok-4",
	} {
		r := rule(t, "", model)
		for _, detail := range []string{"", "low", "high", "auto", "original", "nonsense", "MEDIA_RESOLUTION_LOW"} {
			most := r.tokens(pixels{}, detail).Ceiling
			for _, w := range sides {
				for _, h := range sides {
					if f := r.tokens(pixels{w, h}, detail); f.Floor < 1 && r.method != "gemini-resolution" || f.Floor > f.Expected || f.Expected > f.Ceiling || f.Ceiling > most {
						t.Fatalf("%s, %d x %d at %q: %+v of at most %d", model, w, h, detail, f, most)
					}
				}
			}
		}
	}
}

func encoded(t testing.TB, kind string, width, height int) string {
	t.Helper()
	img := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.Black, color.White})
	var b bytes.Buffer
	var err error
	switch kind {
	case "png":
		err = png.Encode(&b, img)
	case "jpeg":
		err = jpeg.Encode(&b, img, nil)
	case "gif":
		err = gif.Encode(&b, img, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// The headers of the three forms of WebP, of 1,024 x 640 each: lossy, lossless
// and extended (the container's specification, RFC 9649).
var webpHeaders = map[string]string{
	"VP8 ": "RIFF\x20\x00\x00\x00WEBPVP8 \x14\x00\x00\x00\x30\x01\x00\x9d\x01\x2a\x00\x04\x80\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	"VP8L": "RIFF\x20\x00\x00\x00WEBPVP8L\x14\x00\x00\x00\x2f\xff\xc3\x9f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	"VP8X": "RIFF\x20\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\xff\x03\x00\x7f\x02\x00",
}

func TestImageSize(t *testing.T) {
	files := map[string]string{}
	for _, kind := range []string{"png", "jpeg", "gif"} {
		files[kind] = encoded(t, kind, 1024, 640)
	}
	for kind, header := range webpHeaders {
		files[kind] = base64.StdEncoding.EncodeToString([]byte(header))
	}
	// A camera's JPEG has long segments before its size.
	raw, err := base64.StdEncoding.DecodeString(files["jpeg"])
	if err != nil {
		t.Fatal(err)
	}
	segment := "\xff\xe1\xff\xff" + strings.Repeat("x", 0xffff-2)
	files["jpeg with segments"] = base64.StdEncoding.EncodeToString([]byte(string(raw[:2]) + strings.Repeat(segment, 6) + string(raw[2:])))
	files["base64url"] = strings.NewReplacer("+", "-", "/", "_").Replace(files["jpeg with segments"])
	files["in lines"] = files["png"][:40] + "\r\n" + files["png"][40:]
	for name, data := range files {
		if got := imageSize((&tally{}).look(data, maxImageHeader)); got != (pixels{1024, 640}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, data := range map[string]string{
		"nothing": "", "text": base64.StdEncoding.EncodeToString([]byte("no image at all")), "no base64": "!!!!", "cut": files["png"][:24],
		"a header that does not end": base64.StdEncoding.EncodeToString([]byte("\xff\xd8" + strings.Repeat(segment, 20))),
	} {
		if got := imageSize((&tally{}).look(data, maxImageHeader)); got.known() {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Images count by their size, wherever they are in a body; what lies about its
// size or its type is bounded by the formula.
func TestImagesAreMeasured(t *testing.T) {
	e := newEstimator(t, Config{})
	small, big := encoded(t, "png", 300, 200), encoded(t, "png", 3000, 2000)
	for _, tt := range []struct {
		name, provider, body string
		floor, ceiling       quota.Tokens // of the image
	}{
		{"openai", "openai", `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + big + `","detail":"high"}}]}],"max_tokens":1}`, 1105, 1105},
		{"openai by URL", "openai", `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com/` + strings.Repeat("a", 2000) + `.png"}}]}],"max_tokens":1}`, 85, 1445},
		{"openai responses", "openai", `{"model":"gpt-4o","input":[{"role":"user","content":[{"type":"input_image","detail":"low","image_url":"data:image/png;base64,` + big + `"}]}],"max_output_tokens":1}`, 85, 85},
		{"a screenshot", "openai", `{"model":"computer-use-preview","input":[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,` + big + `"}}],"max_output_tokens":1}`, 65, 65 + 6*129},
		{"anthropic", "anthropic", `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + small + `"}}]}],"max_tokens":1}`, 80, 88},
		{"anthropic by URL", "anthropic", `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]}],"max_tokens":1}`, 1, 1600},
		{"another type than it says", "anthropic", `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/webp","data":"` + small + `"}}]}],"max_tokens":1}`, 80, 88},
		{"no image", "anthropic", `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}],"max_tokens":1}`, 1, 1600},
		{"gemini", "gemini", `{"model":"gemini-2.5-flash","contents":[{"parts":[{"inline_data":{"mime_type":"image/png","data":"` + small + `"}}]}],"generationConfig":{"maxOutputTokens":1}}`, 258, 258},
	} {
		got, err := e.Estimate(Call{Provider: tt.provider, ProviderRequest: parse(t, tt.body)}, anyDay)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for _, part := range got.Parts {
			if part.Kind == KindImages && (part.Count != 1 || part.Tokens.Floor != tt.floor || part.Tokens.Ceiling != tt.ceiling) || part.Kind == KindText && part.Count > 100 {
				t.Errorf("%s: %+v, want %d to %d", tt.name, part, tt.floor, tt.ceiling)
			}
		}
		if got.Images() != 1 {
			t.Errorf("%s: %d images", tt.name, got.Images())
		}
	}
}

func FuzzImageSize(f *testing.F) {
	for _, kind := range []string{"png", "jpeg", "gif"} {
		data, _ := base64.StdEncoding.DecodeString(encoded(f, kind, 3, 2))
		f.Add(data)
	}
	for _, header := range webpHeaders {
		f.Add([]byte(header))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		size := imageSize(bytes.NewReader(data))
		if size.width < 0 || size.height < 0 {
			t.Errorf("%+v", size)
		}
		if size.known() {
			if f := claudeImages("claude").tokens(size, ""); f.Floor > f.Ceiling || f.Ceiling > 4784 {
				t.Errorf("%+v: %+v", size, f)
			}
		}
	})
}
