package estimator

import (
	"encoding/base64"
	"io"
	"strings"
)

// maxMediaBytes bounds the base64 of one call that is looked into: what comes
// after is bounded by its formula alone. It is as large as the largest body.
const maxMediaBytes = MaxRequestBytes

// maxImageHeader bounds how far into an image its size is looked for. Cameras
// put colour profiles and previews of some hundred kilobytes before it.
const maxImageHeader = 1 << 20

// look returns a reader of what base64 text holds, at most so many bytes of it,
// or nil when the call's budget is spent. Line breaks are skipped, and both
// alphabets are read.
func (t *tally) look(data string, most int) io.Reader {
	size := min(len(data), base64.StdEncoding.EncodedLen(most))
	if size > maxMediaBytes-t.media {
		return nil
	}
	t.media += size
	encoding := base64.StdEncoding
	if strings.ContainsAny(data[:size], "-_") {
		encoding = base64.URLEncoding
	}
	return io.LimitReader(base64.NewDecoder(encoding, strings.NewReader(data)), int64(most))
}

// bytesOf is how many bytes base64 text holds at most.
func bytesOf(data string) int64 {
	return int64(len(strings.TrimRight(data, "="))) * 3 / 4
}

// dataURL splits "data:image/png;base64,AAAA". ok is false for another URL.
func dataURL(url string) (mime, data string, ok bool) {
	const scheme = "data:"
	if len(url) < len(scheme) || !strings.EqualFold(url[:len(scheme)], scheme) {
		return "", "", false
	}
	head, data, ok := strings.Cut(url[len(scheme):], ",")
	mime, _, _ = strings.Cut(head, ";")
	return strings.ToLower(mime), data, ok
}

// image counts one image: the base64 that it comes in, or "" when the request
// only names it. Its data is never text.
func (t *tally) image(field, data, detail string) error {
	if t.count == nil {
		return nil
	}
	rule, ok := imageRuleOf(t.model)
	if !ok {
		return refusePart(field, "an image for this model, whose provider documents no formula,")
	}
	var size pixels
	if data != "" {
		if r := t.look(data, maxImageHeader); r != nil {
			size = imageSize(r)
		}
	}
	t.add(KindImages, 1, rule.tokens(size, detail), rule.method)
	return nil
}

// stored counts what the provider keeps and the request only names, or what
// can't be measured: at most what the model can read at all. kind is what the
// part is shown as.
func (t *tally) stored(field, what string, kind Kind) error {
	if t.count == nil {
		return nil
	}
	if t.model.ContextWindow == 0 {
		return refusePart(field, what)
	}
	t.add(kind, 1, upTo(t.model.ContextWindow), "context-window")
	return nil
}

// boundMedia keeps what is measured by bounds together within the model's
// context window: the provider refuses more.
func (t *tally) boundMedia() {
	left := t.model.ContextWindow
	if left == 0 {
		return
	}
	for i := range t.parts {
		switch part := &t.parts[i]; part.Kind {
		case KindAudio, KindVideo, KindPages, KindStored:
			part.Tokens = part.Tokens.atMost(left)
			left -= part.Tokens.Ceiling
		}
	}
}
