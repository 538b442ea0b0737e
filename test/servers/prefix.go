package servers

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
)

// Prefix returns a key prefix that no other test has: the test's name, cut to
// 40 characters, and 8 random hexadecimal digits. It consists of lower-case
// letters, digits and single dashes, begins with a letter and is at most 51
// characters long, so it may stand in a Redis key, in or out of a hash tag, and
// in an account id.
func Prefix(tb testing.TB) string {
	tb.Helper()
	return "t-" + plainName(tb.Name(), '-') + "-" + randomHex(4)
}

// plainName makes a name of at most 40 lower-case letters, digits and single
// gaps.
func plainName(name string, gap byte) string {
	const limit = 40
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if b.Len() == limit {
			break
		}
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && b.String()[b.Len()-1] != gap:
			b.WriteByte(gap)
		}
	}
	return strings.TrimRight(b.String(), string(gap))
}

// randomHex returns 2n random hexadecimal digits.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails: see crypto/rand
	return hex.EncodeToString(b)
}
