package policystore

import (
	"fmt"
	"strings"
	"time"
)

// Kind is what a stored object is.
type Kind string

// The kinds of objects, in the order in which changes list them. Their names
// are stored.
const (
	KindPlan    Kind = "plan"
	KindPool    Kind = "pool"
	KindAccount Kind = "account"
	KindPrice   Kind = "price" // the prices of one model, named provider/model
	KindPin     Kind = "pin"   // a pin, named by quota.Pin.Name
)

var kinds = [...]Kind{KindPlan, KindPool, KindAccount, KindPrice, KindPin}

// Action is what a change does to an object.
type Action string

// The actions.
const (
	Added     Action = "added"
	Changed   Action = "changed"
	Removed   Action = "removed"
	Unchanged Action = "unchanged"
)

// Change is what one Apply did, or would do, to the policy.
type Change struct {
	From    int64     // version of the policy before
	Version int64     // version after; From when nothing changes
	At      time.Time // UTC, to the microsecond; zero for a Diff or when nothing changed
	By      string    // who asked for it; "" for a Diff
	// Objects are those that the document states and those that go, by kind
	// and name.
	Objects []ObjectChange
	// Warnings are for people: limits that are enforced and were not in shadow
	// before, and limits whose modes do not count because they are pinned. Not kept
	// in the history.
	Warnings []string
}

// ObjectChange is what a change does to one object.
type ObjectChange struct {
	Kind   Kind
	Name   string
	Action Action
	// Fields are what differs, by path; all fields of an object that is added,
	// none of one that is removed or unchanged.
	Fields []FieldChange
}

// FieldChange is one field of an object before and after, as people write it:
// "200000/min", "$500.00", "[model user]". Old is "" where there was no such
// field, New where there is none any more.
type FieldChange struct {
	Path string // "time_zone", "limits.tokens.rate", "grants.welcome.amount"
	Old  string
	New  string
}

// Changes says whether anything changes.
func (c Change) Changes() bool {
	for _, object := range c.Objects {
		if object.Action != Unchanged {
			return true
		}
	}
	return false
}

// Count returns how many objects have that action.
func (c Change) Count(action Action) int {
	n := 0
	for _, object := range c.Objects {
		if object.Action == action {
			n++
		}
	}
	return n
}

// String returns the change for people to read, a line an object and a line a
// field, and a last line that sums up:
//
//	~ plan pro
//	    limits.tokens.rate: 100000/min -> 200000/min
//	+ account acme
//	    plan: pro
//	- account old
//	1 added, 1 changed, 1 removed, 4 unchanged
func (c Change) String() string {
	marks := map[Action]string{Added: "+", Changed: "~", Removed: "-"}
	var text strings.Builder
	for _, object := range c.Objects {
		if object.Action == Unchanged {
			continue
		}
		fmt.Fprintf(&text, "%s %s %s\n", marks[object.Action], object.Kind, object.Name)
		for _, field := range object.Fields {
			switch {
			case object.Action == Added || field.Old == "":
				fmt.Fprintf(&text, "    %s: %s\n", field.Path, field.New)
			case field.New == "":
				fmt.Fprintf(&text, "    %s: %s -> (gone)\n", field.Path, field.Old)
			default:
				fmt.Fprintf(&text, "    %s: %s -> %s\n", field.Path, field.Old, field.New)
			}
		}
	}
	fmt.Fprintf(&text, "%d added, %d changed, %d removed, %d unchanged\n",
		c.Count(Added), c.Count(Changed), c.Count(Removed), c.Count(Unchanged))
	return text.String()
}
