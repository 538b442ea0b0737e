package auth

import (
	"fmt"
	"log/slog"
)

// hiddenSecret is what every way of formatting a [Secret] shows.
const hiddenSecret = "[hidden]"

// Secret is text that must not be printed by accident: formatting, logging and
// encoding it all show "[hidden]". [Secret.Reveal] is the only way to the text.
type Secret struct {
	// A pointer, because fmt calls no method of a value in an unexported field
	// of another struct: there it shows the pointer instead of the text.
	text *string
}

func newSecret(text string) Secret { return Secret{text: &text} }

// Reveal returns the text, for the one place where it is shown or sent. That of
// the zero Secret is "".
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Format writes "[hidden]" for every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, hiddenSecret) }

// String returns "[hidden]".
func (s Secret) String() string { return hiddenSecret }

// GoString returns "[hidden]".
func (s Secret) GoString() string { return hiddenSecret }

// MarshalText returns "[hidden]".
func (s Secret) MarshalText() ([]byte, error) { return []byte(hiddenSecret), nil }

// LogValue is "[hidden]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(hiddenSecret) }
