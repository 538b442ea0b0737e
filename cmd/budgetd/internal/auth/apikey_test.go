package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The pattern that doc comments promise to secret scanners.
var scanner = regexp.MustCompile(`^bk_[a-z2-7]{16}_[a-z2-7]{47}$`)

func TestNewKeyParses(t *testing.T) {
	seen := make(map[string]bool)
	for range 1000 {
		id, key := newKey()
		if !scanner.MatchString(key.Reveal()) {
			t.Fatal("a new key does not match the scanners' pattern")
		}
		got, ok := parseKey(key.Reveal())
		if !ok || got != id {
			t.Fatalf("parseKey = %q, %v, want %q", got, ok, id)
		}
		if seen[id] || seen[key.Reveal()] {
			t.Fatal("two keys are alike")
		}
		seen[id], seen[key.Reveal()] = true, true
		if want := key.Reveal()[len(key.Reveal())-4:]; last4(key) != want {
			t.Fatalf("last4 = %q, want %q", last4(key), want)
		}
	}
}

// A key with one character changed, wherever, is refused without the store.
func TestMistypedKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, key := newKey()
		text := []byte(key.Reveal())
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		to := rapid.Byte().Filter(func(b byte) bool { return b != text[at] }).Draw(t, "to")
		text[at] = to
		if _, ok := parseKey(string(text)); ok {
			t.Fatalf("a key with character %d changed to %q parses", at, to)
		}
	})
}

func TestMalformedKeys(t *testing.T) {
	_, key := newKey()
	good := key.Reveal()
	for name, text := range map[string]string{
		"empty":        "",
		"prefix":       "bk_",
		"demo":         DemoKey,
		"short":        good[:len(good)-1],
		"long":         good + "a",
		"upper case":   strings.ToUpper(good),
		"space around": " " + good[:len(good)-1],
		"other prefix": "sk_" + good[3:],
		"separator":    strings.Replace(good, good[19:20], "-", 1),
		"zero bytes":   strings.Repeat("\x00", len(good)),
		"not UTF-8":    strings.Repeat("\xff", len(good)),
		"huge":         strings.Repeat("bk_", 1<<20),
	} {
		if id, ok := parseKey(text); ok || id != "" && name != "separator" {
			t.Errorf("%s: parseKey = %q, %v", name, id, ok)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	_, key := newKey()
	f.Add(key.Reveal())
	f.Add("bk_")
	f.Add(strings.Repeat("a", keyChars))
	f.Add("bk_aaaaaaaaaaaaaaaa_" + strings.Repeat("a", 47))
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := parseKey(text)
		if !ok {
			return
		}
		if !scanner.MatchString(text) {
			t.Fatalf("%q parses and secret scanners would miss it", text)
		}
		if body := text[:len(text)-checksumChars]; id != text[3:19] || body+checksum(body) != text {
			t.Fatalf("%q parses as id %q", text, id)
		}
	})
}

func TestSecretIsHidden(t *testing.T) {
	_, key := newKey()
	type holder struct {
		Key    Secret
		Ptr    *Secret
		Nested struct{ secret Secret }
	}
	h := holder{Key: key, Ptr: &key}
	h.Nested.secret = key
	var shown bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s", "%T"} {
		fmt.Fprintf(&shown, verb+"\n", key)
		fmt.Fprintf(&shown, verb+"\n", &key)
		fmt.Fprintf(&shown, verb+"\n", []Secret{key})
		fmt.Fprintf(&shown, verb+"\n", h) // an unexported field in it has no methods for fmt
	}
	fmt.Fprintln(&shown, key, key.String(), key.GoString(), h.Key, fmt.Errorf("failed: %v", key))
	slog.New(slog.NewJSONHandler(&shown, nil)).Info("made", "key", key, "all", []any{key})
	slog.New(slog.NewTextHandler(&shown, nil)).Info("made", "key", key)
	if err := json.NewEncoder(&shown).Encode(map[string]any{"key": key, "holder": h}); err != nil {
		t.Fatal(err)
	}
	assertHides(t, shown.String(), key)
	if n := strings.Count(shown.String(), hiddenSecret); n < 30 {
		t.Errorf("%q is shown %d times; what else was formatted?\n%s", hiddenSecret, n, shown.String())
	}
}

// assertHides fails when text has any part of the key that could serve as one,
// in plain, in hex or as bytes.
func assertHides(t *testing.T, text string, key Secret) {
	t.Helper()
	secret := key.Reveal()[len(keyPrefix)+idChars+1:]
	for _, form := range []string{secret[:12], fmt.Sprintf("%x", secret[:12]), fmt.Sprintf("%X", secret[:12]), strings.Trim(fmt.Sprint([]byte(secret[:12])), "[]")} {
		if strings.Contains(text, form) {
			t.Errorf("the secret is in: %s", text)
		}
	}
}
