package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
	"strings"
)

// An API key is "bk_", an id, "_", a secret and a checksum, in lower-case base32
// (RFC 4648, no padding):
//
//	bk_<16 characters of id>_<40 of secret><7 of checksum>
//
// The fixed prefix and length let secret scanners find a leaked key with
//
//	bk_[a-z2-7]{16}_[a-z2-7]{47}
//
// and the checksum (CRC-32 of everything before it) tells a mistyped key from
// an unknown one without asking the store.
const (
	keyPrefix     = "bk_"
	idBytes       = 10 // 80 bits: unique, and not secret
	secretBytes   = 25 // 200 bits of entropy
	checksumBytes = 4

	idChars       = 16 // ceil(8*10/5)
	secretChars   = 40 // ceil(8*25/5)
	checksumChars = 7  // ceil(8*4/5)

	keyChars = len(keyPrefix) + idChars + 1 + secretChars + checksumChars

	last4Chars = 4
)

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newKey makes a key and returns its id with it.
func newKey() (id string, key Secret) {
	var random [idBytes + secretBytes]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	id = base32Lower.EncodeToString(random[:idBytes])
	body := keyPrefix + id + "_" + base32Lower.EncodeToString(random[idBytes:])
	return id, newSecret(body + checksum(body))
}

func checksum(body string) string {
	var sum [checksumBytes]byte
	binary.BigEndian.PutUint32(sum[:], crc32.ChecksumIEEE([]byte(body)))
	return base32Lower.EncodeToString(sum[:])
}

// parseKey returns the id of a key that is well formed. It does not say
// whether the key exists.
func parseKey(key string) (id string, ok bool) {
	if len(key) != keyChars || !strings.HasPrefix(key, keyPrefix) {
		return "", false
	}
	id, rest := key[len(keyPrefix):len(keyPrefix)+idChars], key[len(keyPrefix)+idChars:]
	if rest[0] != '_' || !isBase32(id) || !isBase32(rest[1:]) {
		return "", false
	}
	body := key[:keyChars-checksumChars]
	return id, checksum(body) == key[len(body):]
}

func isBase32(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// hashKey is what the store keeps of a key. A plain SHA-256 is right here,
// unlike for a password: the secret is 200 random bits, so nobody can guess
// it from the hash however fast the hash is, there are no two alike for a salt
// to separate, and a slow hash would only slow every call down.
func hashKey(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

// last4 is what lists show of a key, so that its owner can tell it from
// another: the key's last 4 characters. They are part of the checksum; what
// they tell about the secret is at most 17 bits of its 200.
func last4(key Secret) string { return key.Reveal()[keyChars-last4Chars:] }
