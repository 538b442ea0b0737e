package estimator

import (
	"io"
	"strings"

	"github.com/budgetd/budgetd/quota"
)

// pageRule is what documents cost by the page on a model.
type pageRule struct {
	method  string
	page    Figures
	maximum int64 // pages that the provider takes
}

// pageRuleOf returns the rule of a model.
//
// Anthropic, the guide "PDF support": 1,500 to 3,000 tokens of text a page, and
// each page as an image besides; 100 pages, 600 on models that read more than
// 200,000 tokens. A page may be blank, so the floor is nothing.
//
// Gemini, the guides "Document understanding" and "Media resolution": 258 tokens
// a page, since Gemini 3 at most 560 (280 at low, 1,120 at high resolution);
// 1,000 pages.
//
// OpenAI, the guide "File inputs": the text and an image of each page. Neither
// is given a figure, so the text is taken to be what Anthropic says, and the
// image by the model's formula.
func pageRuleOf(m Model, detail string) (pageRule, bool) {
	id := strings.ToLower(m.ID)
	images, ok := imageRuleOf(m)
	const textLikely, textMost = 2250, 3000
	switch {
	case !ok:
		return pageRule{}, false
	case strings.Contains(id, "claude"):
		image := images.tokens(pixels{}, "")
		rule := pageRule{"anthropic-pages", Figures{0, textLikely + image.Expected, textMost + image.Ceiling}, 100}
		if m.ContextWindow == 0 || m.ContextWindow > 200_000 {
			rule.maximum = 600
		}
		return rule, true
	case strings.Contains(id, "gemini"):
		if geminiTiled(id) {
			return pageRule{"gemini-pages", exactly(geminiTileTokens), 1000}, true
		}
		return pageRule{"gemini-pages", geminiResolved(detail, 560), 1000}, true
	case isOpenAI(m):
		image := images.tokens(pixels{1024, 1325}, detail) // A4
		anyImage := images.tokens(pixels{}, detail)
		return pageRule{"openai-pages", Figures{0, textLikely + image.Expected, textMost + anyImage.Ceiling}, 1000}, true
	}
	return pageRule{}, false
}

// textTypes are the kinds of documents that are read as the text they hold, by
// media type, format or the end of a name.
var textTypes = set("txt md markdown csv tsv html htm json xml yaml yml log")

// isText says whether a document of a kind is plain text.
func isText(kind string) bool {
	kind, _, _ = strings.Cut(strings.ToLower(kind), ";")
	if strings.HasPrefix(kind, "text/") {
		return true
	}
	return textTypes[kind[strings.LastIndexAny(kind, "/.")+1:]]
}

// document counts a document: its kind is a media type, a format or a name;
// data is its base64, or "" when the request only names it.
func (t *tally) document(field, kind, data, detail string) error {
	switch {
	case t.count == nil:
		return nil
	case data == "":
		return t.stored(field, "a document that the request only names", KindPages)
	case isText(kind):
		r := t.look(data, int(bytesOf(data)))
		if r == nil {
			return &TooLargeError{Field: field, MaxBytes: t.maxBytes}
		}
		text, err := io.ReadAll(io.LimitReader(r, int64(t.maxBytes-t.bytes)+1))
		if err != nil {
			return invalid(field, "is not base64")
		}
		return t.text(field, string(text))
	}
	rule, ok := pageRuleOf(t.model, detail)
	if !ok || !strings.HasSuffix(strings.ToLower(kind), "pdf") {
		return t.stored(field, "a document of kind "+quoted(kind), KindPages)
	}
	pages := pageCount{1, 1, rule.maximum}
	if r := t.look(data, int(bytesOf(data))); r != nil {
		pages = pdfPages(r, rule.maximum)
	}
	t.add(KindPages, 1, Figures{
		Floor:    rule.page.Floor * quota.Tokens(pages.floor),
		Expected: rule.page.Expected * quota.Tokens(pages.expected),
		Ceiling:  rule.page.Ceiling * quota.Tokens(pages.ceiling),
	}, rule.method)
	return nil
}

// pageCount is how many pages a document has.
type pageCount struct{ floor, expected, ceiling int64 }

// usualPageBytes is what a page of a PDF takes on average, for those that hide
// their pages.
const usualPageBytes = 50_000

// pdfPages counts the page objects of a PDF. Where objects may be in compressed
// streams, pages that are not seen may be up to the provider's maximum. A page
// that the document shows more than once counts once. Memory does not grow with
// the document.
func pdfPages(r io.Reader, maximum int64) pageCount {
	var (
		buffer [32 << 10]byte
		names  = pdfNames{length: -1}
		size   int64
	)
	for {
		n, err := r.Read(buffer[:])
		size += int64(n)
		for _, b := range buffer[:n] {
			names.next(b)
		}
		if err != nil {
			break
		}
	}
	names.next(' ')
	pages := max(1, names.pages)
	out := pageCount{pages, pages, pages}
	if names.packed {
		out.floor, out.ceiling = 1, max(maximum, pages)
		out.expected = min(max(pages, 1+size/usualPageBytes), out.ceiling)
	}
	return out
}

// pdfNames follows the names in a PDF, such as /Type, byte by byte.
type pdfNames struct {
	name   [8]byte
	length int  // bytes of the present name; -1 outside of one
	typed  bool // the name before was /Type, and only white space came since
	pages  int64
	packed bool // objects in compressed streams
}

func (p *pdfNames) next(b byte) {
	if p.length >= 0 {
		switch b {
		case 0, '\t', '\n', '\f', '\r', ' ', '/', '(', ')', '<', '>', '[', ']', '{', '}', '%':
			name := string(p.name[:min(p.length, len(p.name))])
			switch {
			case name == "ObjStm":
				p.packed = true
			case name == "Page" && p.typed:
				p.pages++
			}
			p.typed = name == "Type"
			p.length = -1
		default:
			if p.length < len(p.name) {
				p.name[p.length] = b
			}
			p.length++
			return
		}
	}
	switch b {
	case '/':
		p.length = 0
	case 0, '\t', '\n', '\f', '\r', ' ':
	default:
		p.typed = false
	}
}
