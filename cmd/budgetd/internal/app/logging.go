package app

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

// NewLogger returns the log that the configuration asks for: text where out is
// a terminal and JSON elsewhere, unless log_format says otherwise.
func NewLogger(out io.Writer, c config.Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "text" || c.LogFormat == "auto" && isTerminal(out) {
		return slog.New(slog.NewTextHandler(out, options))
	}
	options.ReplaceAttr = withUnits
	return slog.New(slog.NewJSONHandler(out, options))
}

// withUnits writes durations as texts such as "1.5s", as the text form has them: in
// JSON they are else numbers of nanoseconds.
func withUnits(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
