package middleware

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// client names who calls: by API key, else by address.
func (m *middleware) client(r *http.Request) string {
	if key := m.key(r); key != "" {
		return hashedKey(key)
	}
	return addressKey(m.proxies.client(r.RemoteAddr, r.Header.Values("X-Forwarded-For")))
}

func (m *middleware) key(r *http.Request) string {
	if m.options.keyOf != nil {
		return m.options.keyOf(r)
	}
	if m.options.keyHeader == "" {
		return ""
	}
	key := strings.TrimSpace(r.Header.Get(m.options.keyHeader))
	if http.CanonicalHeaderKey(m.options.keyHeader) == "Authorization" {
		if _, credential, found := strings.Cut(key, " "); found {
			key = strings.TrimSpace(credential)
		}
	}
	return key
}

// hashedKey stands for a key that must not leave this process: 128 bits of its
// SHA-256. It can't be taken for an address.
func hashedKey(key string) string {
	const kept = 16
	sum := sha256.Sum256([]byte(key))
	return "key-" + hex.EncodeToString(sum[:kept])
}
