package config

import (
	"fmt"
	"log/slog"
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

var (
	// hostPort is what may be shown of one host of an address.
	hostPort = regexp.MustCompile(`^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])?(?::[0-9]{1,5})?$`)
	// database is what may be shown of its path.
	database = regexp.MustCompile(`^[A-Za-z0-9_-]*$`)
	// keyword is what may be shown of the keyword form of a PostgreSQL address,
	// "host=x password=y".
	keyword = regexp.MustCompile(`^(?:host|port|dbname)=[A-Za-z0-9._/:,-]+$`)
)

const hidden = "[hidden]"

// String returns scheme, hosts and database of the address: no user, no
// password and no option, which may hold one too. What does not look like that
// is hidden altogether.
func (u URL) String() string {
	if u.text == "" {
		return ""
	}
	scheme, rest, isURL := strings.Cut(u.text, "://")
	if !isURL {
		return keywordsShown(u.text)
	}
	rest, _, _ = strings.Cut(rest, "?")
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	hosts, path, _ := strings.Cut(rest, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if !hostPort.MatchString(host) {
			return hidden
		}
	}
	if !database.MatchString(path) || !database.MatchString(scheme) {
		return hidden
	}
	if path != "" {
		path = "/" + path
	}
	return scheme + "://" + hosts + path
}

func keywordsShown(text string) string {
	var shown []string
	if !strings.ContainsAny(text, `'"\`) { // quoted values may hold anything
		for word := range strings.FieldsSeq(text) {
			if keyword.MatchString(word) {
				shown = append(shown, word)
			}
		}
	}
	if len(shown) == 0 {
		return hidden
	}
	return strings.Join(shown, " ")
}

// Format writes String for every verb.
func (u URL) Format(f fmt.State, _ rune) { fmt.Fprint(f, u.String()) }

// GoString returns String.
func (u URL) GoString() string { return u.String() }

// MarshalText returns String.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue is String.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }
