package simulate

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"cell": Cell, "figure": IsFigure, "svg": inlineSVG}).Parse(pageText))

// WritePage writes one page with the tables, charts and checks of reports. It is
// whole by itself: it loads nothing, from nowhere.
func WritePage(out io.Writer, reports []*Report) error {
	var text bytes.Buffer
	if err := page.Execute(&text, reports); err != nil {
		return err
	}
	_, err := out.Write(text.Bytes())
	return err
}

// inlineSVG is a chart without the declaration that stands before a file.
func inlineSVG(c Chart) (template.HTML, error) {
	svg, err := c.SVG()
	if err != nil {
		return "", err
	}
	_, drawing, _ := bytes.Cut(svg, []byte("<svg"))
	return template.HTML("<svg role=\"img\"" + string(drawing)), nil // the library escapes what is text in it
}
