package ratelimit

import (
	"fmt"
	"maps"
	"slices"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/quota"
)

// Bounds of a request, beside those on labels and amounts.
const (
	MaxDescriptors = 16
	MaxDomainBytes = quota.MaxLabelValueBytes
	// Two entries may name no label: account and meter.
	maxEntries = quota.MaxLabels + 2
)

// Entries that name no label.
const (
	entryAccount = "account" // with Naming entry
	entryMeter   = "meter"
	labelDomain  = "domain" // of what the domain names, unless it names the account
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
	labels   map[string]string
	meter    quota.Meter
	hits     quota.Amount // 0: look, and take nothing
	override *quota.Applied
}

// step is what is asked of the broker at once.
type step struct {
	account   string
	labels    map[string]string
	amounts   quota.Amounts
	overrides []quota.Applied
	covers    []int // the descriptors that it answers, by index
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
		name, value := entry.GetKey(), rpc.LabelValue(entry.GetValue())
		if before, twice := stated[name]; twice && before != value {
			return d, rpc.Invalid(fmt.Sprintf("%s.entries[%d]", at, i), fmt.Sprintf("%.80q has another value in the same descriptor", name), "one value for each key; give the action a descriptor_key of its own")
		}
		stated[name] = value
	}
	if meter, ok := stated[entryMeter]; ok {
		d.meter = quota.Meter(meter)
		delete(stated, entryMeter)
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
	if from.GetIsNegativeHits() {
		return 0, rpc.Invalid(at+".is_negative_hits", "hits can't be given back: what was charged is settled, and a rate limit request does not say which charge it is about", "reserve what is given back in part with Reserve and Refund")
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

// steps groups what is charged: all descriptors in one step, unless they
// contradict each other, else one step each in their order. Descriptors without
// hits are in none.
func steps(descriptors []descriptor) []step {
	var charged []int
	for i, d := range descriptors {
		if d.hits > 0 {
			charged = append(charged, i)
		}
	}
	return group(descriptors, charged, func(d *descriptor) quota.Amount { return d.hits })
}

// looks is what is looked at before anything is charged: the descriptors
// without hits. Each asks for the least there is.
func looks(descriptors []descriptor) []step {
	var looked []int
	for i, d := range descriptors {
		if d.hits == 0 {
			looked = append(looked, i)
		}
	}
	return group(descriptors, looked, func(*descriptor) quota.Amount { return 1 })
}

func group(descriptors []descriptor, members []int, amount func(*descriptor) quota.Amount) []step {
	if len(members) == 0 {
		return nil
	}
	together := step{}
	var each []step
	agree := true
	for _, i := range members {
		d := &descriptors[i]
		own := step{account: d.account, labels: d.labels, amounts: quota.Amounts{d.meter: amount(d)}, covers: []int{i}}
		if d.override != nil {
			own.overrides = []quota.Applied{*d.override}
		}
		each = append(each, own)
		agree = agree && together.add(&own)
	}
	if agree {
		return []step{together}
	}
	return each
}

// add takes another step into this one, and says whether the two agree: in the
// account, in the labels that both have, and in the amount of a meter that both
// count.
func (s *step) add(other *step) bool {
	if s.covers == nil {
		*s = step{account: other.account, labels: maps.Clone(other.labels), amounts: maps.Clone(other.amounts), overrides: slices.Clone(other.overrides), covers: slices.Clone(other.covers)}
		return true
	}
	if s.account != other.account || !agree(s.labels, other.labels) || !agree(s.amounts, other.amounts) {
		return false
	}
	maps.Copy(s.labels, other.labels)
	maps.Copy(s.amounts, other.amounts)
	for _, o := range other.overrides {
		if !slices.ContainsFunc(s.overrides, func(have quota.Applied) bool { return have.ID == o.ID && have.Scope == o.Scope }) {
			s.overrides = append(s.overrides, o)
		}
	}
	s.covers = append(s.covers, other.covers...)
	return len(s.labels) <= quota.MaxLabels
}

// agree says whether two maps have the same value wherever both have one.
func agree[K, V comparable](a, b map[K]V) bool {
	for key, value := range a {
		if other, ok := b[key]; ok && other != value {
			return false
		}
	}
	return true
}
