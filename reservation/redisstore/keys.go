package redisstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/budgetd/budgetd/reservation"
)

// shards is the number of hash tags over which accounts are spread. All keys
// of an account carry the tag of its shard, and so does the shard's index of
// accounts: one script keeps them together. It is part of the stored layout.
const shards = 256

// longestName bounds what an account, pool, limit or scope adds to a key.
const longestName = 200

// shardOf is FNV-1a, 64 bits, folded to 8. It is part of the stored layout.
func shardOf(name string) int {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	h ^= h >> 32
	h ^= h >> 16
	return int((h ^ h>>8) & (shards - 1))
}

// escape makes a name part of a key: bytes outside [A-Za-z0-9._@=,-] become %
// and two hex digits, so that neither ':' nor a brace of a hash tag is left;
// what is then longer than longestName becomes '#' and its SHA-256. Different
// names never meet.
func escape(name string) string {
	const digits = "0123456789ABCDEF"
	plain := true
	for i := range len(name) {
		if !isPlain(name[i]) {
			plain = false
			break
		}
	}
	if plain && len(name) <= longestName {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if isPlain(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	if b.Len() > longestName {
		sum := sha256.Sum256([]byte(name))
		return "#" + hex.EncodeToString(sum[:])
	}
	return b.String()
}

// unescape is the name that escape made part of a key; what is hashed stays as
// it is.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '_' || c == '@' || c == '=' || c == ',' || c == '-'
}

// space is the key space of one account, or of one pool's leg on a Cluster.
type space struct {
	name    string // raw: the member of the index
	base    string // prefix and hash tag
	escaped string
}

func (s *Store) tag(kind byte, shard int) string {
	const digits = "0123456789abcdef"
	return s.prefix + string([]byte{'{', kind, digits[shard>>4], digits[shard&15], '}', ':'})
}

func (s *Store) account(name string) space {
	return space{name: name, base: s.tag('s', shardOf(name)), escaped: escape(name)}
}

func (s *Store) pool(name string) space {
	return space{name: name, base: s.tag('p', shardOf(name)), escaped: escape(name)}
}

func (p space) hash() string  { return p.base + "a:" + p.escaped }
func (p space) dues() string  { return p.base + "d:" + p.escaped }
func (p space) index() string { return p.base + "due" }

// closings is the key of the confirmed closings of the minute in which the id
// was minted.
func (p space) closings(id reservation.ID) string {
	return p.base + "c:" + p.escaped + ":" + strconv.FormatInt(id.Minted().Unix()/60, 10)
}

// idempotency is the key of an idempotency key. For none it is the account's
// hash, as a script's keys must all be of one slot.
func (p space) idempotency(key string) string {
	if key == "" {
		return p.hash()
	}
	sum := sha256.Sum256([]byte(key))
	return p.base + "k:" + p.escaped + ":" + hex.EncodeToString(sum[:16])
}

// own is the key of a counter with a key of its own.
func (p space) own(kind byte, limit, scope string) string {
	key := p.base + string([]byte{kind, ':'}) + p.escaped + ":" + escape(limit)
	if scope != "" {
		key += ":" + escape(scope)
	}
	return key
}
