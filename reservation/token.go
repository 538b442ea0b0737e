package reservation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
)

// TokenKeys gives the secret keys that authenticate reservation tokens. They
// live in the ledger's store and rotate: Current signs, every key that ByID
// still knows verifies. Implementations are safe for concurrent use.
type TokenKeys interface {
	Current() (id uint16, key []byte)
	ByID(id uint16) (key []byte, ok bool)
}

// errBadToken covers every way in which a token can be wrong: callers must not
// learn which.
var errBadToken = errors.New("not a reservation id of this broker")

const (
	tokenVersion  = 6
	withoutOutput = 3 // the last version that knew nothing of the call's output
	oldestToken   = 1 // still opened; its quotas are not soft
	sixClasses    = 2 // the last version whose prices had six classes of tokens and nothing else
	withoutRule   = 4 // the last version that had no RuleInput
	withoutShadow = 5 // the last version that knew no shadow limits and no envelopes
	tokenMACBytes = 16
	tokenHeader   = 1 + 2 // version, key id

	// tokenUndecided marks the version of a token that leaves a choice to the
	// engine. Only an engine has such a token: callers get it decided.
	tokenUndecided = 0x80
)

// tokenKeyID is the key that a token was sealed with.
func tokenKeyID(raw []byte) uint16 { return binary.BigEndian.Uint16(raw[1:3]) }

// MaxTokenText is the longest reservation id that a caller may send.
var MaxTokenText = base64.RawURLEncoding.EncodedLen(MaxTokenBytes)

// plannedHold is a hold with what settles it: the meter that it counts and the
// weight of the call's labels. It is a function of the policy at the time of
// Reserve and never looked up again.
type plannedHold struct {
	Hold
	Name   string // the limit's
	Meter  quota.Meter
	Weight quota.Amount
	Views  ViewSet // as HeldLimit.Views; no part of the token
	Soft   bool    // a quota that never refuses: Max is what callers see, and the engine's bound is its own

	Missed bool         // a shadow hold that did not fit: it takes 0, and what the call used does not count in it
	Wanted quota.Amount // Missed: what it would have taken
}

// engine is the hold as engines take it.
func (h *plannedHold) engine() Hold {
	hold := h.Hold
	if h.Soft {
		hold.Max = quota.MaxAmount
	}
	return hold
}

// reservationToken is all that any node, or the same node after Redis lost
// everything, needs to end it. The caller carries it as the reservation id.
type reservationToken struct {
	ID           ID
	Account      string
	Lease        time.Duration
	Retention    time.Duration
	Degraded     bool
	Charge       bool
	TotalsPeriod string // key of the account's calendar month, to which its totals are posted
	PriceVersion string
	Price        *estimator.Price // pinned: what the model cost at the time of Reserve; nil without a model
	Labels       map[string]string
	Asked        quota.Amounts
	RuleInput    quota.Tokens // the estimate's: what a Refund with the provider's count has something to teach about; 0 for nothing
	Holds        []plannedHold
	Output       *callOutput // nil without a model call whose output is bounded
	Shadowing    bool        // the engine has still to say which shadow holds are missed
	Kin          Kin         // the envelope that it was made in, and the holds that this pays, as far as it has enough left
}

func (t *reservationToken) holds() []Hold {
	holds := make([]Hold, len(t.Holds))
	for i := range t.Holds {
		holds[i] = t.Holds[i].engine()
	}
	return holds
}

// seal encodes and signs a token. It fails only when the token is too long.
func (t *reservationToken) seal(keys TokenKeys) ([]byte, error) {
	keyID, key := keys.Current()
	return t.sealWith(keyID, key)
}

func (t *reservationToken) sealWith(keyID uint16, key []byte) ([]byte, error) {
	b := make([]byte, 0, 512)
	version, longest := byte(tokenVersion), MaxTokenBytes
	if t.undecided() {
		// What the engine appends must fit too.
		version, longest = version|tokenUndecided, MaxTokenBytes-decidedDigits-len(t.Holds)-1
	}
	b = append(b, version)
	b = binary.BigEndian.AppendUint16(b, keyID)
	b = append(b, t.ID[:]...)
	b = msgp.AppendString(b, t.Account)
	b = msgp.AppendInt64(b, t.Lease.Microseconds())
	b = msgp.AppendInt64(b, t.Retention.Microseconds())
	b = msgp.AppendBool(b, t.Degraded)
	b = msgp.AppendBool(b, t.Charge)
	b = msgp.AppendString(b, t.TotalsPeriod)
	b = msgp.AppendString(b, t.PriceVersion)
	b = appendPrice(b, t.Price)
	b = msgp.AppendArrayHeader(b, uint32(len(t.Labels)))
	for _, name := range sortedKeys(t.Labels) {
		b = msgp.AppendString(b, name)
		b = msgp.AppendString(b, t.Labels[name])
	}
	b = appendAmounts(b, t.Asked)
	b = msgp.AppendArrayHeader(b, uint32(len(t.Holds)))
	for i := range t.Holds {
		b = appendHold(b, &t.Holds[i])
	}
	b = appendOutput(b, t.Output, t.undecided())
	b = msgp.AppendInt64(b, int64(t.RuleInput))
	b = appendShadows(b, t)
	b = appendKin(b, t.Kin)
	if len(b)+tokenMACBytes > longest {
		return nil, &InvalidError{
			Field:   "labels",
			Problem: fmt.Sprintf("labels and limits take %d bytes together", len(b)+tokenMACBytes),
			Bound:   fmt.Sprintf("at most %d bytes", longest),
		}
	}
	return append(b, tokenMAC(key, b)...), nil
}

func tokenMAC(key, signed []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(signed)
	return mac.Sum(nil)[:tokenMACBytes]
}

// tokenText is what callers see as the reservation id.
func tokenText(token []byte) string { return base64.RawURLEncoding.EncodeToString(token) }

// openTokenText decodes and verifies a reservation id from a caller.
func openTokenText(text string, keys TokenKeys) (*reservationToken, []byte, error) {
	if len(text) > MaxTokenText {
		return nil, nil, errBadToken
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, nil, errBadToken
	}
	token, err := openToken(raw, keys)
	return token, raw, err
}

// openToken decodes and verifies the binary form.
func openToken(raw []byte, keys TokenKeys) (*reservationToken, error) {
	if len(raw) > 0 && raw[0]&tokenUndecided != 0 {
		return nil, errBadToken
	}
	return readToken(raw, keys)
}

// readToken is openToken for a token that may leave a choice to the engine.
func readToken(raw []byte, keys TokenKeys) (*reservationToken, error) {
	if len(raw) < tokenHeader+len(ID{})+tokenMACBytes || len(raw) > MaxTokenBytes {
		return nil, errBadToken
	}
	version, undecided := raw[0]&^tokenUndecided, raw[0]&tokenUndecided != 0
	if version < oldestToken || version > tokenVersion || undecided && version <= withoutOutput {
		return nil, errBadToken
	}
	key, ok := keys.ByID(tokenKeyID(raw))
	if !ok {
		return nil, errBadToken
	}
	signed, mac := raw[:len(raw)-tokenMACBytes], raw[len(raw)-tokenMACBytes:]
	if !hmac.Equal(mac, tokenMAC(key, signed)) {
		return nil, errBadToken
	}
	t := &reservationToken{}
	copy(t.ID[:], signed[tokenHeader:])
	r := reader{rest: signed[tokenHeader+len(ID{}):]}
	t.Account = r.text()
	t.Lease = time.Duration(r.integer()) * time.Microsecond
	t.Retention = time.Duration(r.integer()) * time.Microsecond
	t.Degraded = r.boolean()
	t.Charge = r.boolean()
	t.TotalsPeriod = r.text()
	t.PriceVersion = r.text()
	if t.Price = r.price(version); t.Price != nil {
		t.Price.Version = t.PriceVersion
	}
	if n := r.length(quota.MaxLabels); n > 0 {
		t.Labels = make(map[string]string, n)
		for range n {
			name := r.text()
			t.Labels[name] = r.text()
		}
	}
	t.Asked = r.amounts()
	t.Holds = make([]plannedHold, r.length(MaxHolds))
	for i := range t.Holds {
		t.Holds[i] = r.hold(version)
	}
	if version > withoutOutput {
		t.Output = r.output(version, undecided)
	}
	if version > withoutRule {
		t.RuleInput = quota.Tokens(r.integer())
	}
	if version > withoutShadow {
		r.shadows(t)
		t.Kin = r.kin()
		t.Shadowing = undecided && t.shadows()
	}
	chooses := t.Output != nil && t.Output.Choice != nil
	if undecided && !chooses && !t.Shadowing || chooses && len(t.Output.Choice.Tolerances) != len(t.Holds) {
		return nil, errBadToken
	}
	if r.err != nil || len(r.rest) != 0 {
		// Signed by us and yet unreadable: another version's encoding under
		// this version's number, which must not happen.
		return nil, errBadToken
	}
	return t, nil
}

func appendHold(b []byte, h *plannedHold) []byte {
	b = msgp.AppendString(b, h.Pool)
	b = msgp.AppendString(b, h.Limit)
	b = msgp.AppendString(b, h.Scope)
	b = msgp.AppendString(b, h.Name)
	b = msgp.AppendString(b, string(h.Meter))
	b = msgp.AppendInt64(b, int64(h.Weight))
	b = msgp.AppendInt64(b, int64(h.Kind))
	b = msgp.AppendInt64(b, int64(h.Amount))
	b = msgp.AppendBool(b, h.OnExpiry == quota.ExpiryCharge)
	switch h.Kind {
	case quota.KindBucket, quota.KindGCRA, quota.KindLeakyQueue:
		b = msgp.AppendInt64(b, int64(h.Bucket.Capacity))
		b = msgp.AppendInt64(b, int64(h.Bucket.Refill))
		b = msgp.AppendInt64(b, h.Bucket.PerMicros)
		b = msgp.AppendInt64(b, int64(h.Risk))
	case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
		b = msgp.AppendInt64(b, int64(h.Window.Max))
		b = msgp.AppendInt64(b, h.Window.Length)
		b = msgp.AppendBool(b, h.Window.Calendar)
	case quota.KindQuota:
		b = msgp.AppendInt64(b, int64(h.Max))
		b = msgp.AppendString(b, h.Period.Key)
		b = msgp.AppendInt64(b, h.Period.Start.UnixMicro())
		b = msgp.AppendInt64(b, h.Period.End.UnixMicro())
		b = msgp.AppendBool(b, h.Soft)
	default:
		b = msgp.AppendInt64(b, int64(h.Max))
	}
	return b
}

func (r *reader) hold(version byte) plannedHold {
	var h plannedHold
	h.Pool, h.Limit, h.Scope, h.Name = r.text(), r.text(), r.text(), r.text()
	h.Meter = quota.Meter(r.text())
	h.Weight = quota.Amount(r.integer())
	h.Kind = quota.Kind(r.integer())
	h.Amount = quota.Amount(r.integer())
	h.OnExpiry = quota.ExpiryGiveBack
	if r.boolean() {
		h.OnExpiry = quota.ExpiryCharge
	}
	switch h.Kind {
	case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
		h.Window.Kind = h.Kind
		h.Window.Max = quota.Amount(r.integer())
		h.Window.Length = r.integer()
		h.Window.Calendar = r.boolean()
	case quota.KindBucket, quota.KindGCRA, quota.KindLeakyQueue:
		h.Bucket.Capacity = quota.Amount(r.integer())
		h.Bucket.Refill = quota.Amount(r.integer())
		h.Bucket.PerMicros = r.integer()
		if version > withoutOutput {
			h.Risk = quota.Amount(r.integer())
		}
	case quota.KindQuota:
		h.Max = quota.Amount(r.integer())
		h.Period.Key = r.text()
		h.Period.Start = time.UnixMicro(r.integer()).UTC()
		h.Period.End = time.UnixMicro(r.integer()).UTC()
		h.Soft = version > 1 && r.boolean()
	default:
		h.Max = quota.Amount(r.integer())
	}
	return h
}

func appendAmounts(b []byte, amounts quota.Amounts) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(amounts)))
	for _, meter := range sortedKeys(amounts) {
		b = msgp.AppendString(b, string(meter))
		b = msgp.AppendInt64(b, int64(amounts[meter]))
	}
	return b
}

func (r *reader) amounts() quota.Amounts {
	n := r.length(2*quota.MaxMeters + 8) // what was asked, what was reported, and the built-in meters
	amounts := make(quota.Amounts, n)
	for range n {
		meter := quota.Meter(r.text())
		amounts[meter] = quota.Amount(r.integer())
	}
	return amounts
}

// appendPrice writes a price, or an empty array for none: its names, and then the
// usual rates and those of each service, each with its tiers.
func appendPrice(b []byte, price *estimator.Price) []byte {
	if price == nil {
		return msgp.AppendArrayHeader(b, 0)
	}
	b = msgp.AppendArrayHeader(b, uint32(1+len(price.Services)))
	b = msgp.AppendString(b, price.Provider)
	b = msgp.AppendString(b, price.Model)
	b = appendTiers(b, price.Base, price.Tiers)
	for _, service := range price.Services {
		b = msgp.AppendString(b, service.Name)
		b = appendTiers(b, service.Base, service.Tiers)
	}
	return b
}

func appendTiers(b []byte, base estimator.Rates, tiers []estimator.Tier) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(tiers)))
	b = appendRates(b, base)
	for _, tier := range tiers {
		b = msgp.AppendInt64(b, int64(tier.Above))
		b = appendRates(b, tier.Rates)
	}
	return b
}

// appendRates writes which rates the shortest statement of them has, a bit each,
// and then those: classes of tokens first, units after them.
func appendRates(b []byte, rates estimator.Rates) []byte {
	stated := rates.Stated()
	var has, bit int64 = 0, 1
	for _, rate := range stated.Tokens {
		if rate != nil {
			has |= bit
		}
		bit <<= 1
	}
	for _, rate := range stated.Units {
		if rate != nil {
			has |= bit
		}
		bit <<= 1
	}
	b = msgp.AppendInt64(b, has)
	for _, rate := range stated.Tokens {
		if rate != nil {
			b = msgp.AppendInt64(b, int64(*rate))
		}
	}
	for _, rate := range stated.Units {
		if rate != nil {
			b = msgp.AppendInt64(b, *rate)
		}
	}
	return b
}

// Bounds of a pinned price; catalogues have one or two tiers and four services.
const (
	maxPriceTiers    = 16
	maxPriceServices = 16
)

func (r *reader) price(version byte) *estimator.Price {
	n := r.length(1 + max(maxPriceTiers, maxPriceServices))
	if n == 0 {
		return nil
	}
	price := &estimator.Price{Provider: r.text(), Model: r.text()}
	if version <= sixClasses {
		price.Base = r.sixRates()
		for range n - 1 {
			price.Tiers = append(price.Tiers, estimator.Tier{Above: quota.Tokens(r.integer()), Rates: r.sixRates()})
		}
		return price
	}
	price.Base, price.Tiers = r.tiers()
	for range n - 1 {
		service := estimator.Service{Name: r.text()}
		service.Base, service.Tiers = r.tiers()
		price.Services = append(price.Services, service)
	}
	return price
}

func (r *reader) tiers() (base estimator.Rates, tiers []estimator.Tier) {
	n := r.length(maxPriceTiers)
	base = r.rates()
	for range n {
		tiers = append(tiers, estimator.Tier{Above: quota.Tokens(r.integer()), Rates: r.rates()})
	}
	return base, tiers
}

func (r *reader) rates() estimator.Rates {
	var stated estimator.StatedRates
	has, bit := r.integer(), int64(1)
	for i := range stated.Tokens {
		if has&bit != 0 {
			rate := estimator.PerMillion(r.integer())
			stated.Tokens[i] = &rate
		}
		bit <<= 1
	}
	for i := range stated.Units {
		if has&bit != 0 {
			rate := r.integer()
			stated.Units[i] = &rate
		}
		bit <<= 1
	}
	return stated.Complete()
}

// sixRates reads rates as the first versions wrote them. Calls that were made
// then have no other classes.
func (r *reader) sixRates() estimator.Rates {
	var stated estimator.StatedRates
	for _, name := range []string{"input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning"} {
		rate := estimator.PerMillion(r.integer())
		stated.State(name, int64(rate))
	}
	return stated.Complete()
}

// reader reads MessagePack values one by one and remembers the first error.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) text() string {
	var s string
	if r.err == nil {
		s, r.rest, r.err = msgp.ReadStringBytes(r.rest)
	}
	return s
}

func (r *reader) integer() int64 {
	var n int64
	if r.err == nil {
		n, r.rest, r.err = msgp.ReadInt64Bytes(r.rest)
	}
	return n
}

func (r *reader) boolean() bool {
	var v bool
	if r.err == nil {
		v, r.rest, r.err = msgp.ReadBoolBytes(r.rest)
	}
	return v
}

func (r *reader) length(most int) int {
	var n uint32
	if r.err == nil {
		n, r.rest, r.err = msgp.ReadArrayHeaderBytes(r.rest)
	}
	if r.err == nil && int(n) > most {
		r.err = errBadToken
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func sortedKeys[K ~string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i] < keys[j] })
	return keys
}
