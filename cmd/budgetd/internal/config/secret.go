package config

import (
	"fmt"
	"log/slog"
	"net/url"
)

// Secret is a text that formatting, logging and encoding never show, only what
// stands for it. [Secret.Reveal] is the only way to it.
type Secret struct {
	text  string
	shown string
}

// NewSecret returns a text of which nothing is shown.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: text, shown: hidden}
}

// NewEndpoint returns an address of which scheme, host and port are shown: user,
// path and query may be secrets.
func NewEndpoint(text string) Secret {
	s := NewSecret(text)
	if u, err := url.Parse(text); err == nil && u.Scheme != "" && hostPort.MatchString(u.Host) && u.Host != "" {
		s.shown = u.Scheme + "://" + u.Host
	}
	return s
}

// Reveal returns the text.
func (s Secret) Reveal() string { return s.text }

// IsSet says whether there is a text.
func (s Secret) IsSet() bool { return s.text != "" }

// String returns what may be shown.
func (s Secret) String() string { return s.shown }

// Format writes String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.shown) }

// GoString returns String.
func (s Secret) GoString() string { return s.shown }

// MarshalText returns String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.shown), nil }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.shown) }
