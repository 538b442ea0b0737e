package ratelimit

import (
	"fmt"
	"strconv"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/quota"
)

// Bounds of a request, beside those on labels and amounts.
const (
	MaxDescriptors = 16
	MaxDomainBytes = quota.MaxLabelValueBytes
	// These entries name no label.
	maxEntries = quota.MaxLabels + 4
)

// Entries that name no label.
const (
	entryAccount = "account" // with Naming entry

	entryPriority = "x-budget-priority" // as quota.ParsePriority
	entryMaxWait  = "x-budget-max-wait" // refused
	entryMeter    = "meter"
	entryUsed     = "already_used"
	entryKey      = "idempotency_key"
	labelDomain   = "domain" // of what the domain names, unless it names the account
)

// Naming is what names the account of a request.
type Naming string

// The namings.
const (
	NameByDomain Naming = "domain" // the domain
	NameByEntry  Naming = "entry"  // the entry "account" of each descriptor
	NameByKey    Naming = "key"    // the API key, which is for one account
)

// Namings are all of them.
var Namings = []Naming{NameByDomain, NameByEntry, NameByKey}

// descriptor is one descriptor in the broker's words.
type descriptor struct {
	account  string // "": the key's only one
	priority quota.Priority
	labels   map[string]string
	meter    quota.Meter
	kind     kind
	hits     quota.Amount // of a look 1, the least there is; else above 0
	keyed    bool         // it has an entry idempotency_key
	override *quota.Applied
}

// read turns a request into descriptors.
func read(request *rlsv3.RateLimitRequest, naming Naming) ([]descriptor, error) {
	switch n := len(request.GetDescriptors()); {
	case request.GetDomain() == "" || len(request.GetDomain()) > MaxDomainBytes:
		return nil, rpc.Invalid("domain", fmt.Sprintf("has %d bytes", len(request.GetDomain())), fmt.Sprintf("1 to %d bytes", MaxDomainBytes))
	case n == 0 || n > MaxDescriptors:
		return nil, rpc.Invalid("descriptors", fmt.Sprintf("has %d descriptors", n), fmt.Sprintf("1 to %d", MaxDescriptors))
	}
	descriptors := make([]descriptor, len(request.GetDescriptors()))
	for i, from := range request.GetDescriptors() {
		d, err := readDescriptor(fmt.Sprintf("descriptors[%d]", i), request, from, naming)
		if err != nil {
			return nil, err
		}
		descriptors[i] = d
	}
	return descriptors, nil
}

func readDescriptor(at string, request *rlsv3.RateLimitRequest, from *ratelimitv3.RateLimitDescriptor, naming Naming) (descriptor, error) {
	d := descriptor{labels: map[string]string{}, meter: quota.MeterRequests}
	if n := len(from.GetEntries()); n > maxEntries {
		return d, rpc.Invalid(at+".entries", fmt.Sprintf("has %d entries", n), fmt.Sprintf("at most %d", maxEntries))
	}
	stated := map[string]string{}
	for i, entry := range from.GetEntries() {
		name, value := entry.GetKey(), rpc.LabelValue(entry.GetKey(), entry.GetValue())
		if before, twice := stated[name]; twice && before != value {
			return d, rpc.Invalid(fmt.Sprintf("%s.entries[%d]", at, i), fmt.Sprintf("%.80q has another value in the same descriptor", name), "one value for each key; give the action a descriptor_key of its own")
		}
		stated[name] = value
	}
	if meter, ok := stated[entryMeter]; ok {
		d.meter = quota.Meter(meter)
		delete(stated, entryMeter)
	}
	if key, ok := stated[entryKey]; ok {
		d.keyed = key != ""
		delete(stated, entryKey)
	}
	if word, ok := stated[entryPriority]; ok {
		var err error
		if d.priority, err = rpc.Priority(at+".entries", word); err != nil {
			return d, err
		}
		delete(stated, entryPriority)
	}
	if _, ok := stated[entryMaxWait]; ok {
		return d, rpc.Invalid(at+".entries", entryMaxWait+" is stated, and a Charge never waits", "no such entry; calls that wait are for Reserve, the Go client and the proxy")
	}
	used := false
	if text, ok := stated[entryUsed]; ok {
		var err error
		if used, err = strconv.ParseBool(text); err != nil {
			return d, rpc.Invalid(at+".entries", fmt.Sprintf("already_used is %.80q", text), "true or false")
		}
		delete(stated, entryUsed)
	}
	switch naming {
	case NameByDomain:
		d.account = request.GetDomain()
	case NameByEntry:
		account, ok := stated[entryAccount]
		if !ok {
			return d, rpc.Invalid(at+".entries", `has no entry "account"`, "an entry that names the account (setting ratelimit_account: entry)")
		}
		d.account = account
		delete(stated, entryAccount)
	}
	if _, ok := stated[labelDomain]; !ok && naming != NameByDomain {
		stated[labelDomain] = request.GetDomain()
	}
	d.labels = stated
	if err := quota.ValidateLabels(d.labels); err != nil {
		return d, rpc.Invalid(at+".entries", err.Error(), "")
	}
	var err error
	if d.hits, err = readHits(at, request, from, d.meter); err != nil {
		return d, err
	}
	switch {
	case from.GetIsNegativeHits() && used:
		return d, rpc.Invalid(at+".is_negative_hits", "is set beside already_used", "one of them")
	case from.GetIsNegativeHits() && d.hits == 0:
		return d, rpc.Invalid(at+".hits_addend", "0 gives nothing back", "at least 1")
	case from.GetIsNegativeHits():
		d.kind = giveBack
	case used && d.hits == 0:
		return d, rpc.Invalid(at+".hits_addend", "0 is nothing that was used already", "at least 1")
	case used:
		d.kind = useUp
	case d.hits == 0:
		d.kind, d.hits = look, 1
	}
	d.override, err = readOverride(at, from, &d)
	return d, err
}

func readHits(at string, request *rlsv3.RateLimitRequest, from *ratelimitv3.RateLimitDescriptor, meter quota.Meter) (quota.Amount, error) {
	if meter == quota.MeterInFlight {
		return 0, rpc.Invalid(at+".entries", "the meter in_flight counts slots, which are given back when a call ends, and a gateway does not tell when", "another meter; guard slots with Reserve and Refund")
	}
	if err := (quota.Amounts{meter: 1}).Validate(); err != nil {
		return 0, rpc.Invalid(at+".entries", "the meter is none: "+err.Error(), "")
	}
	hits := uint64(request.GetHitsAddend())
	if hits == 0 {
		hits = 1 // the protocol's default
	}
	if own := from.GetHitsAddend(); own != nil {
		hits = own.GetValue()
	}
	if hits > uint64(quota.MaxAmount) {
		return 0, rpc.Invalid(at+".hits_addend", fmt.Sprintf("%d is too much", hits), fmt.Sprintf("at most %d", quota.MaxAmount))
	}
	return quota.Amount(hits), nil
}
