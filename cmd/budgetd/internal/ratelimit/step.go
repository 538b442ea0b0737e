package ratelimit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// kind is what is done with a descriptor's hits.
type kind int

// The kinds.
const (
	charge   kind = iota // charged unless a limit refuses
	look                 // asked whether they would pass
	useUp                // charged beyond the limits: they were used already
	giveBack             // credited
)

// step is what is asked of the broker at once.
type step struct {
	kind   kind
	spend  reservation.Spend
	covers []int // the descriptors that it answers, by index
}

// steps groups the descriptors: those of one kind, account and priority are one
// step. What
// a refusal must not keep from the ledger comes first, and looks come before
// charges. key is the request's idempotency key, "" for none.
func steps(descriptors []descriptor, key string) []step {
	var out []step
	for _, kind := range []kind{useUp, giveBack, look, charge} {
		first := len(out)
		for i := range descriptors {
			d := &descriptors[i]
			if d.kind != kind {
				continue
			}
			at := slices.IndexFunc(out[first:], func(s step) bool { return s.spend.Account == d.account && s.spend.Priority == d.priority })
			if at < 0 {
				at = len(out) - first
				out = append(out, step{kind: kind, spend: reservation.Spend{Account: d.account, Priority: d.priority, Used: kind == useUp, DryRun: kind == look}})
			}
			out[first+at].covers = append(out[first+at].covers, i)
		}
	}
	for i := range out {
		out[i].fill(descriptors)
		if key != "" && out[i].kind != look {
			out[i].spend.Key = fmt.Sprintf("%s-%d", key, i)
		}
	}
	return out
}

// fill says what the step asks for: one charge with all labels or, where the
// descriptors contradict each other, one that is seen differently by each. The
// charge as a whole then has the labels that nobody contradicts.
func (s *step) fill(descriptors []descriptor) {
	spend, contradicted, agreed := &s.spend, map[string]bool{}, true
	spend.Labels, spend.Amounts = map[string]string{}, quota.Amounts{}
	for _, i := range s.covers {
		d := &descriptors[i]
		for name, value := range d.labels {
			if before, stated := spend.Labels[name]; stated && before != value {
				contradicted[name], agreed = true, false
			}
			spend.Labels[name] = value
		}
		if before, stated := spend.Amounts[d.meter]; stated && before != d.hits {
			agreed = false
		}
		spend.Amounts[d.meter] = max(spend.Amounts[d.meter], d.hits)
	}
	if agreed && len(spend.Labels) <= quota.MaxLabels {
		for _, i := range s.covers {
			if o := descriptors[i].override; o != nil && !slices.ContainsFunc(spend.Extra, func(have quota.Applied) bool { return have.ID == o.ID && have.Scope == o.Scope }) {
				spend.Extra = append(spend.Extra, *o)
			}
		}
		return
	}
	for name := range contradicted {
		delete(spend.Labels, name)
	}
	for _, name := range slices.Sorted(maps.Keys(spend.Labels))[min(len(spend.Labels), quota.MaxLabels):] {
		delete(spend.Labels, name)
	}
	for _, i := range s.covers {
		d := &descriptors[i]
		view := reservation.View{Labels: d.labels, Amounts: quota.Amounts{d.meter: d.hits}}
		if d.override != nil {
			view.Extra = []quota.Applied{*d.override}
		}
		spend.Views = append(spend.Views, view)
	}
}

// requestKey is the idempotency key of a request, which stands for this request
// and no other: a descriptor's entry, else the gateway's request id, and the
// whole of what is asked. "" without either.
func requestKey(request *rlsv3.RateLimitRequest, descriptors []descriptor, id string) (string, error) {
	if slices.ContainsFunc(descriptors, func(d descriptor) bool { return d.keyed }) {
		id = "" // a gateway that tries again may make another
	} else if id == "" {
		return "", nil
	}
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%d %s", len(id), id)
	sum.Write(wire)
	return "gateway-" + hex.EncodeToString(sum.Sum(nil)), nil
}
