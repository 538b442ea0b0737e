package estimator

import (
	"strings"

	"github.com/budgetd/budgetd/estimator/catalogue"
	"github.com/budgetd/budgetd/quota"
)

// Quantity is a number of things that are billed one by one, 0 to quota.MaxAmount.
type Quantity int64

// Milliseconds is a duration that is billed by the second, in thousandths, so
// that no fraction of a second is lost: 0 to quota.MaxAmount.
type Milliseconds int64

// Units is what one call used that is billed by other things than tokens.
type Units struct {
	Images   Quantity     // pictures made or read
	Seconds  Milliseconds // of sound or video, made or read
	Pages    Quantity     // of documents read
	Searches Quantity     // of the web, or a ranking, that the provider ran
	Requests Quantity     // where the provider has a price for the call itself
}

// numberOfUnits is how many kinds of units there are.
const numberOfUnits = 5

// unitSecond is the place of the seconds, which have a price per hour.
const unitSecond = 1

// unitNames are the names that messages, files and policies use for one unit,
// in the order of the fields.
var unitNames [numberOfUnits]string = catalogue.Units

// List returns the counts in the order of the fields.
func (u *Units) List() [numberOfUnits]int64 {
	return [...]int64{int64(u.Images), int64(u.Seconds), int64(u.Pages), int64(u.Searches), int64(u.Requests)}
}

// UnitsOf is the opposite of [Units.List].
func UnitsOf(counts [numberOfUnits]int64) Units {
	return Units{
		Images: Quantity(counts[0]), Seconds: Milliseconds(counts[1]), Pages: Quantity(counts[2]),
		Searches: Quantity(counts[3]), Requests: Quantity(counts[4]),
	}
}

// Check returns a [CallError] that names the unit unless every count is 0 to
// quota.MaxAmount.
func (u Units) Check() error {
	for i, n := range u.List() {
		if quota.Amount(n).Check() != nil {
			return invalid("usage.units."+unitNames[i]+"s", "%d is not between 0 and %d", n, int64(quota.MaxAmount))
		}
	}
	return nil
}

// Use is all that decides what a call costs.
type Use struct {
	Tokens TokenClasses
	Units  Units
	Tier   string // service tier by the provider's name ("batch", "flex", "priority"); "" for the usual one
	Speed  string // speed by the provider's name ("fast"); "" for the usual one
}

// MaxServiceBytes bounds the names of a tier and of a speed.
const MaxServiceBytes = 32

// Check returns a [CallError] that names the field at fault: a count out of
// range, or a tier or speed that is not made of at most MaxServiceBytes
// letters, digits, "_" and "-".
func (u Use) Check() error {
	if err := u.Tokens.Check(); err != nil {
		return err
	}
	if err := u.Units.Check(); err != nil {
		return err
	}
	if !isServiceName(u.Tier) {
		return invalid("usage.tier", "%.64q is not a name of at most %d letters, digits, _ and -", u.Tier, MaxServiceBytes)
	}
	if !isServiceName(u.Speed) {
		return invalid("usage.speed", "%.64q is not a name of at most %d letters, digits, _ and -", u.Speed, MaxServiceBytes)
	}
	return nil
}

func isServiceName(name string) bool {
	if len(name) > MaxServiceBytes {
		return false
	}
	for i := range len(name) {
		b := name[i]
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
		if !letter && (b < '0' || b > '9') && b != '_' && b != '-' {
			return false
		}
	}
	return true
}

// usual says whether a tier or speed is the one that a model's own prices are
// for: OpenAI answers "default" or "auto", Anthropic and Google "standard".
func usual(name string) bool {
	switch {
	case name == "", strings.EqualFold(name, "default"), strings.EqualFold(name, "auto"),
		strings.EqualFold(name, "standard"), strings.EqualFold(name, "on_demand"):
		return true
	}
	return false
}
