package estimator

import (
	"cmp"
	"strings"
)

// openAIMedium counts a content part that is no text: an image, a recording or
// a file, of chat completions and of responses.
func (t *tally) openAIMedium(field, kind string, part map[string]any) error {
	switch kind {
	case "image_url", "input_image", "image", "computer_screenshot":
		url, detail, err := openAIImage(field, part)
		if err != nil {
			return err
		}
		_, data, _ := dataURL(url)
		return t.image(field, data, detail)
	case "input_audio":
		audio, err := objectAt(part, field, "input_audio")
		if err != nil {
			return err
		}
		field += ".input_audio"
		format, err := stringAt(audio, field, "format")
		if err != nil {
			return err
		}
		data, err := stringAt(audio, field, "data")
		if err != nil {
			return err
		}
		return t.audio(field, strings.ToLower(format), data)
	case "file", "input_file":
		file := part
		if kind == "file" {
			var err error
			if file, err = objectAt(part, field, "file"); err != nil {
				return err
			}
			field += ".file"
		}
		return t.openAIFile(field, file)
	default:
		return refusePart(field+".type", "content of type "+quoted(kind))
	}
}

// openAIImage returns the URL and the detail of an image. Chat completions have
// them in an object, responses side by side; some hosts take a bare URL in the
// place of the object.
func openAIImage(field string, part map[string]any) (url, detail string, err error) {
	if detail, err = stringAt(part, field, "detail"); err != nil {
		return "", "", err
	}
	switch image := part["image_url"].(type) {
	case nil:
		return "", detail, nil // by file_id
	case string:
		return image, detail, nil
	case map[string]any:
		field += ".image_url"
		if url, err = stringAt(image, field, "url"); err != nil {
			return "", "", err
		}
		inner, err := stringAt(image, field, "detail")
		return url, cmp.Or(inner, detail), err
	default:
		return "", "", invalid(field+".image_url", "must be a URL or an object")
	}
}

// openAIFile counts a file: its data, as a data URL or base64, else by its id
// or URL.
func (t *tally) openAIFile(field string, file map[string]any) error {
	text, err := stringAt(file, field, "file_data")
	if err != nil {
		return err
	}
	name, err := stringAt(file, field, "filename")
	if err != nil {
		return err
	}
	if err := t.text(field+".filename", name); err != nil {
		return err
	}
	kind, data, ok := dataURL(text)
	if !ok {
		kind, data = name, text
	}
	return t.document(field, kind, data, "")
}
