package posting

import (
	"crypto/sha256"
	"fmt"
	"math"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// LabelSetID is the id under which reports keep a set of labels.
type LabelSetID [16]byte

// LabelSet is a set of labels that reports go by.
type LabelSet struct {
	ID     LabelSetID // the first 16 bytes of the SHA-256 of Text; part of the stored layout
	Text   string     // what EncodeLabels makes of Labels
	Labels map[string]string
}

// Delta is what one transaction adds to one hour of the reports, for one
// account, set of labels and meter.
type Delta struct {
	Hour    time.Time // its first instant, in UTC
	Account string
	Labels  LabelSetID
	Meter   quota.Meter
	Used    quota.Amount // difference to what was charged
	Held    quota.Amount // at least 0; stays at the largest Amount when it would pass it
	Calls   int64        // closings that count here for the first time
}

// Deltas sums up what one transaction adds to the reports. The zero value is
// ready to use.
type Deltas struct {
	sets  map[string]int // by text
	all   []LabelSet
	index map[hourKey]int
	hours []*Hour
}

type hourKey struct {
	hour    int64 // since 1970-01-01 UTC
	account string
	set     int
}

// Hour collects the deltas of one hour, account and set of labels.
type Hour struct {
	meters []Delta // few: a list beats a map
	blank  Delta
}

// In returns the hour of an instant, which must be one that the ledger keeps,
// for an account and a set of labels. The labels must not be changed any more.
func (d *Deltas) In(account string, at time.Time, labels map[string]string) (*Hour, error) {
	set, err := d.set(labels)
	if err != nil {
		return nil, err
	}
	key := hourKey{hour: at.Unix() / 3600, account: account, set: set}
	known, found := d.index[key]
	if !found {
		if d.index == nil {
			d.index = make(map[hourKey]int)
		}
		known = len(d.hours)
		d.index[key] = known
		d.hours = append(d.hours, &Hour{blank: Delta{
			Hour: time.Unix(key.hour*3600, 0).UTC(), Account: account, Labels: d.all[set].ID,
		}})
	}
	return d.hours[known], nil
}

func (d *Deltas) set(labels map[string]string) (int, error) {
	text, err := EncodeLabels(labels)
	if err != nil {
		return 0, err
	}
	at, known := d.sets[text]
	if !known {
		if d.sets == nil {
			d.sets = make(map[string]int)
		}
		at = len(d.all)
		d.sets[text] = at
		sum := sha256.Sum256([]byte(text))
		d.all = append(d.all, LabelSet{ID: LabelSetID(sum[:16]), Text: text, Labels: labels})
	}
	return at, nil
}

// Post adds the difference that was posted to a usage row. Reports are made of
// an account's totals, so that rows of limits change nothing here. The error
// wraps quota.ErrOverflow.
func (h *Hour) Post(key ledger.UsageKey, difference quota.Amount) error {
	if key.Limit != "" || difference == 0 {
		return nil
	}
	delta := h.meter(key.Meter)
	sum, err := delta.Used.Add(difference)
	if err != nil {
		return fmt.Errorf("hour %s of account %q, meter %q: %w", h.blank.Hour.Format(time.RFC3339), key.Account, key.Meter, err)
	}
	delta.Used = sum
	return nil
}

// count adds one closing that had held so much of a meter.
func (h *Hour) count(meter quota.Meter, held quota.Amount) {
	h.meter(meter).Calls++
	h.hold(meter, held)
}

func (h *Hour) hold(meter quota.Meter, held quota.Amount) {
	delta := h.meter(meter)
	// What was held is for reports alone. It must not keep spend from being
	// posted, so it stays at its end instead of failing.
	if sum, err := delta.Held.Add(held); err == nil {
		delta.Held = sum
	} else {
		delta.Held = math.MaxInt64
	}
}

func (h *Hour) meter(meter quota.Meter) *Delta {
	for i := range h.meters {
		if h.meters[i].Meter == meter {
			return &h.meters[i]
		}
	}
	delta := h.blank
	delta.Meter = meter
	h.meters = append(h.meters, delta)
	return &h.meters[len(h.meters)-1]
}

// All calls each for every delta that changes something.
func (d *Deltas) All(each func(*Delta)) {
	for _, hour := range d.hours {
		for i := range hour.meters {
			if delta := &hour.meters[i]; delta.Used != 0 || delta.Held != 0 || delta.Calls != 0 {
				each(delta)
			}
		}
	}
}

// LabelSets returns the sets that the deltas name, each once.
func (d *Deltas) LabelSets() []LabelSet { return d.all }
