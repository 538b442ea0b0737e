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
	return slog.New(slog.NewJSONHandler(out, options))
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
