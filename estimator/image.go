package estimator

import (
	"math"
	"strings"

	"github.com/budgetd/budgetd/quota"
)

// pixels is the size of an image; zero when it is not known.
type pixels struct{ width, height int64 }

func (p pixels) known() bool { return p.width > 0 && p.height > 0 }

// imageRule is what one image costs on a model.
type imageRule struct {
	method string
	// tokens returns the figures for one image: of its size, or of any size
	// when that is not known, at the detail that the request names.
	tokens func(size pixels, detail string) Figures
}

// imageRuleOf returns the rule of a model, and false where no provider
// documents one.
func imageRuleOf(m Model) (imageRule, bool) {
	id := strings.ToLower(m.ID)
	switch {
	case isOpenAI(m):
		return openAIImages(strings.TrimPrefix(strings.TrimPrefix(id, "openai/"), "ft:")), true
	case strings.Contains(id, "claude"):
		return claudeImages(id), true
	case strings.Contains(id, "gemini"):
		return geminiImages(id), true
	case strings.Contains(id, "grok"):
		return imageRule{method: "xai-tiles", tokens: grokTiles}, true
	}
	return imageRule{}, false
}

// isOpenAI says whether a model is one that OpenAI serves: gpt-oss, which reads
// text only, is not.
func isOpenAI(m Model) bool {
	id := strings.ToLower(m.ID)
	return m.Encoding != O200kHarmony && (m.Encoding != "" || strings.HasPrefix(id, "gpt-") && !strings.HasPrefix(id, "gpt-oss"))
}

// ceilDiv is a/b rounded up, of numbers that are not negative.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// grid is how many squares of a side cover an image.
func grid(size pixels, side int64) int64 {
	return ceilDiv(size.width, side) * ceilDiv(size.height, side)
}

// fit scales an image down, never up, so that its long edge is at most a
// bound. Sides are cut to whole pixels, and at least one.
func (p pixels) fit(longEdge int64) pixels {
	long := max(p.width, p.height)
	if long <= longEdge {
		return p
	}
	return pixels{max(1, p.width*longEdge/long), max(1, p.height*longEdge/long)}
}

// --- OpenAI: the guide "Images and vision", section "Calculating costs".

// openAIImages returns the rule of a model with a public encoding.
//
// Tiles: GPT-4o, GPT-4.1, GPT-4.5 and before (base 85, 170 a tile), GPT-4o mini
// (2,833 and 5,667), GPT-5 (70 and 140), o1 and o3 (75 and 150), computer use
// (65 and 129). Patches of 32 x 32, at most 1,536, times a factor: GPT-4.1 mini
// and GPT-5 mini 1.62, GPT-4.1 nano and GPT-5 nano 2.46, o4-mini 1.72. Models
// after GPT-5.1 count patches times 1.2 (mini 1.62, nano 2.46), at most 2,500
// of them at high and 10,000 at original detail. A model that is not named is
// taken for one of those, the dearest of all.
func openAIImages(id string) imageRule {
	for _, family := range []struct {
		prefix string
		rule   imageRule
	}{
		{"gpt-4o-mini", openAITiles(2833, 5667)},
		{"gpt-4.1-mini", openAIPatches(162)},
		{"gpt-4.1-nano", openAIPatches(246)},
		{"gpt-5-mini", openAIPatches(162)},
		{"gpt-5-nano", openAIPatches(246)},
		{"o4-mini", openAIPatches(172)},
		{"computer-use", openAITiles(65, 129)},
		{"gpt-5.1", openAITiles(70, 140)},
		{"gpt-5.", openAIBudget(id)},
		{"gpt-5", openAITiles(70, 140)},
		{"gpt-4", openAITiles(85, 170)},
		{"chatgpt-4o", openAITiles(85, 170)},
		{"o1", openAITiles(75, 150)},
		{"o3", openAITiles(75, 150)},
	} {
		if strings.HasPrefix(id, family.prefix) {
			return family.rule
		}
	}
	return openAIBudget(id)
}

// The bounds of the tile formula.
const (
	tileSide      = 512
	tileLongEdge  = 2048
	tileShortEdge = 768
)

// openAITiles counts squares of 512 pixels after the image was scaled to fit
// 2,048 x 2,048 and its short edge to 768. The guide's words scale small images
// up as well, and measurements do not: the ceiling does, the others don't.
// Low detail costs the base alone; auto may be low.
func openAITiles(base, tile quota.Tokens) imageRule {
	return imageRule{method: "openai-tiles", tokens: func(size pixels, detail string) Figures {
		low := exactly(base)
		if detail == "low" {
			return low
		}
		high := Figures{base + tile, base + 4*tile, base + 8*tile} // 768 x 2,048 is 2 x 4 tiles; a square has 4
		if size.known() {
			high = exactly(base + tile*quota.Tokens(grid(tileScaled(size, false), tileSide)))
			high.Ceiling = base + tile*quota.Tokens(grid(tileScaled(size, true), tileSide))
		}
		if detail != "high" {
			high.Floor = base
		}
		return high
	}}
}

// tileScaled is the size that tiles are counted of. With literal set the short
// edge becomes 768 in any case, and fractions of a pixel are whole ones.
func tileScaled(size pixels, literal bool) pixels {
	scaled := size.fit(tileLongEdge)
	short := min(scaled.width, scaled.height)
	switch {
	case short == tileShortEdge, short < tileShortEdge && !literal:
		return scaled
	case literal:
		// From the first size, so that nothing is cut twice.
		short, long := min(size.width, size.height), max(size.width, size.height)
		scaledLong := min(ceilDiv(long*tileShortEdge, short), tileLongEdge)
		return pixels{tileShortEdge, scaledLong}
	}
	return pixels{max(1, scaled.width*tileShortEdge/short), max(1, scaled.height*tileShortEdge/short)}
}

// patchSide is the side of OpenAI's patches.
const patchSide = 32

// openAIPatches counts patches, scaled down to cover no more than 1,536 of
// them, times a factor in hundredths. The floor leaves the factor out: models
// were measured below the documented one. Low detail is not documented for
// these models: it lowers the floor only, to the patches of 512 x 512.
func openAIPatches(hundredths int64) imageRule {
	const budget = 1536
	return imageRule{method: "openai-patches", tokens: func(size pixels, detail string) Figures {
		f := Figures{1, patchTokens(1024, hundredths), patchTokens(budget, hundredths)} // 1,024 x 1,024
		if size.known() {
			n := scaledPatches(size, budget)
			f = Figures{quota.Tokens(n), patchTokens(n, hundredths), patchTokens(n, hundredths)}
			if grid(size, patchSide) > budget { // bills were seen at the budget itself
				f.Ceiling = patchTokens(budget, hundredths)
			}
		}
		if detail != "high" {
			f.Floor = min(f.Floor, 256)
		}
		return f
	}}
}

// openAIBudget is the rule of the models after GPT-5.1: a budget of patches by
// detail, with long edges of at most 2,048 (high) and 6,000 (original).
func openAIBudget(id string) imageRule {
	hundredths := int64(120)
	switch {
	case strings.Contains(id, "nano"):
		hundredths = 246
	case strings.Contains(id, "mini"):
		hundredths = 162
	}
	return imageRule{method: "openai-patches", tokens: func(size pixels, detail string) Figures {
		budget, edge := int64(10_000), int64(6000) // original, and auto, which may be that
		switch detail {
		case "high":
			budget, edge = 2500, 2048
		case "low":
			budget, edge = 256, 512
		}
		f := Figures{1, patchTokens(min(budget, 1024), hundredths), patchTokens(budget, hundredths)}
		if size.known() {
			n := scaledPatches(size.fit(edge), budget)
			f = Figures{quota.Tokens(n), patchTokens(n, hundredths), patchTokens(min(grid(size, patchSide), budget), hundredths)}
		}
		if detail != "high" && detail != "low" && detail != "original" {
			f.Floor = min(f.Floor, 256)
		}
		return f
	}}
}

func patchTokens(patches, hundredths int64) quota.Tokens {
	return quota.Tokens(ceilDiv(patches*hundredths, 100))
}

// scaledPatches counts the patches of an image that is scaled down, where it
// has more than the budget, by the guide's steps: by the square root of the
// areas, then so that one side is a whole number of patches.
func scaledPatches(size pixels, budget int64) int64 {
	n := grid(size, patchSide)
	if n <= budget {
		return n
	}
	w, h := float64(size.width), float64(size.height)
	r := math.Sqrt(float64(budget) * patchSide * patchSide / (w * h))
	across, down := w*r/patchSide, h*r/patchSide
	r *= min(whole(across)/across, whole(down)/down)
	n = int64(math.Ceil(w*r/patchSide-1e-9)) * int64(math.Ceil(h*r/patchSide-1e-9))
	return min(max(n, 1), budget)
}

// whole cuts to a whole number, and at least one: an image may be thinner than
// a patch.
func whole(f float64) float64 { return max(1, math.Floor(f)) }

// --- Anthropic: the guide "Vision".

// claudeStandard names the models of the standard resolution. Models that are
// not among them are taken to have the high one.
var claudeStandard = []string{
	"claude-3", "claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-2025", "claude-opus-4-5", "claude-opus-4-6",
	"claude-4-opus", "claude-4-sonnet", "claude-sonnet-4", "claude-haiku-4", "claude-4-5", "claude-4-6", "claude-4.5", "claude-4.6",
	"claude-opus-4.1", "claude-opus-4.5", "claude-opus-4.6",
}

// claudeImages counts squares of 28 pixels of an image that is scaled down to a
// long edge of 1,568 pixels and some 1,600 tokens, from Claude Opus 4.7 on to
// 2,576 pixels and 4,784 tokens. An older edition of the guide divides the
// pixels by 750, which gives slightly more: the ceiling is the larger one.
func claudeImages(id string) imageRule {
	edge, most, likely := int64(2576), quota.Tokens(4784), quota.Tokens(4784)
	for _, name := range claudeStandard {
		if strings.Contains(id, name) {
			edge, most, likely = 1568, 1600, 1568
			break
		}
	}
	return imageRule{method: "anthropic-patches", tokens: func(size pixels, _ string) Figures {
		if !size.known() {
			return Figures{1, likely, most}
		}
		scaled := size.fit(edge)
		patches := min(quota.Tokens(grid(scaled, 28)), likely)
		area := quota.Tokens(ceilDiv(scaled.width*scaled.height, 750))
		return Figures{min(patches, area), patches, max(patches, min(area, most))}
	}}
}

// --- Gemini: the guides "Image understanding" and "Media resolution".

// Gemini's names of a medium's resolution, without their common beginning.
const geminiResolution = "MEDIA_RESOLUTION_"

// geminiTileTokens is what one tile, one small image or one page costs before
// Gemini 3.
const geminiTileTokens = 258

// geminiResolved is what an image or a page has at most at a media resolution,
// and standard where none is asked for.
func geminiResolved(detail string, standard quota.Tokens) Figures {
	switch strings.TrimPrefix(detail, geminiResolution) {
	case "LOW":
		return upTo(280)
	case "MEDIUM":
		return upTo(560)
	case "HIGH":
		return upTo(1120)
	case "ULTRA_HIGH":
		return upTo(2240)
	}
	return upTo(standard)
}

// geminiImages: since Gemini 3 an image has at most 1,120 tokens (280 at low,
// 560 at medium, 2,240 at ultra high resolution); before, it is cut into tiles
// of 258 tokens.
func geminiImages(id string) imageRule {
	if geminiTiled(id) {
		return imageRule{method: "gemini-tiles", tokens: geminiTiles}
	}
	return imageRule{method: "gemini-resolution", tokens: func(_ pixels, detail string) Figures {
		return geminiResolved(detail, 1120)
	}}
}

// geminiTiled says whether a model is of the generations before Gemini 3.
func geminiTiled(id string) bool {
	for _, name := range []string{"gemini-1", "gemini-2", "gemini-pro", "gemini-exp"} {
		if strings.Contains(id, name) {
			return true
		}
	}
	return false
}

// geminiTiles: an image of at most 384 x 384 is one tile. A larger one is cut
// into squares whose side is its short edge divided by 1.5, at least 256 and at
// most 768 pixels, after it was scaled to a long edge of at most 3,072. Low
// resolution is 64 tokens. The ceiling has no fewer than squares of 768; the
// dearest image, 3,072 x 384, has 24.
func geminiTiles(size pixels, detail string) Figures {
	if strings.TrimPrefix(detail, geminiResolution) == "LOW" {
		return Figures{64, 64, geminiTileTokens}
	}
	if !size.known() {
		return Figures{geminiTileTokens, 4 * geminiTileTokens, 24 * geminiTileTokens}
	}
	if size.width <= 384 && size.height <= 384 {
		return exactly(geminiTileTokens)
	}
	scaled := size.fit(3072)
	unit := min(max(min(scaled.width, scaled.height)*2/3, 256), 768)
	cut, flat := grid(scaled, unit), grid(scaled, 768)
	return Figures{
		Floor:    geminiTileTokens * quota.Tokens(min(cut, flat)),
		Expected: geminiTileTokens * quota.Tokens(cut),
		Ceiling:  geminiTileTokens * quota.Tokens(max(cut, flat)),
	}
}

// --- xAI: the guide "Image understanding": 256 tokens a tile of 448 x 448, one
// tile more in any case, and fewer than 1,792 tokens.
func grokTiles(size pixels, detail string) Figures {
	const tile, most = 256, 7
	if !size.known() {
		return Figures{tile, most * tile, most * tile}
	}
	tiles := quota.Tokens(min(grid(size, 448)+1, most))
	f := Figures{tile, tiles * tile, tiles * tile}
	if detail == "high" {
		f.Floor = f.Expected
	}
	return f
}
