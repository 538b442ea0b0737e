package quota

import (
	"fmt"
	"sync"
	"time"
)

// zones keeps every zone that was found, since time.LoadLocation reads and
// parses its file at each call. Only names that exist get in, which bounds it
// to the size of the time zone database.
var zones sync.Map // name -> *time.Location

// loadZone returns the time zone of an IANA name; "" is UTC. The error says
// what to write instead.
func loadZone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	// "Local" is the machine's own zone: two brokers could disagree on it.
	if name != "Local" && len(name) <= 64 {
		if location, err := time.LoadLocation(name); err == nil {
			zones.Store(name, location)
			return location, nil
		}
	}
	return nil, fmt.Errorf("time_zone: %s is not an IANA time zone; write one such as UTC, Europe/Berlin or Asia/Tokyo", quoteShort(name))
}
