package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
)

// URL is the address of a server, which may contain a password: formatting,
// logging and encoding it never show that. [URL.Reveal] is the only way to the
// whole text.
type URL struct {
	text string
}

// NewURL returns the address.
func NewURL(text string) URL { return URL{text} }

// Reveal returns the address with its password, for the driver.
func (u URL) Reveal() string { return u.text }

// IsSet says whether there is an address.
func (u URL) IsSet() bool { return u.text != "" }

// keyword finds what may be shown of the keyword form of a PostgreSQL
// address, "host=x password=y". Quoted values may hold anything: an address
// with a quote is not shown at all.
var keyword = regexp.MustCompile(`^(host|port|dbname)=[A-Za-z0-9._/:,-]+$`)

// String returns scheme, host and path of the address: neither the user's
// password nor any option, which may hold one too.
func (u URL) String() string {
	if u.text == "" {
		return ""
	}
	if parsed, err := url.Parse(u.text); err == nil && parsed.Scheme != "" {
		shown := url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}
		if parsed.User != nil && parsed.User.Username() != "" {
			shown.User = url.User(parsed.User.Username())
		}
		return shown.String()
	}
	shown := ""
	if !strings.ContainsAny(u.text, `'"\`) {
		for _, word := range strings.Fields(u.text) {
			if !keyword.MatchString(word) {
				continue
			}
			if shown != "" {
				shown += " "
			}
			shown += word
		}
	}
	if shown == "" {
		return "[hidden]"
	}
	return shown
}

// Format writes String for every verb.
func (u URL) Format(f fmt.State, _ rune) { fmt.Fprint(f, u.String()) }

// GoString returns String.
func (u URL) GoString() string { return u.String() }

// MarshalText returns String.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue is String.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }
