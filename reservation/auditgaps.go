package reservation

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/budgetd/budgetd/quota"
)

// gapKind says what differs.
type gapKind uint8

const (
	gapEntries  gapKind = iota // the usage row is not the sum of its entries
	gapRow                     // the engine's used is not the usage row
	gapHeld                    // the engine's held is not the sum of its records' shares
	gapUnposted                // the engine's unposted is not the sum of its records' shares
	gapKinds
)

// String returns the kind as metrics show it.
func (k gapKind) String() string {
	return [gapKinds]string{"entries", "row", "held", "unposted"}[k]
}

// auditGaps is a set of kinds.
type auditGaps uint8

func (g auditGaps) has(k gapKind) bool { return g&(1<<k) != 0 }
func (g *auditGaps) add(k gapKind)     { *g |= 1 << k }

// compare says what differs in a counter.
func (c *AuditedCounter) compare(summed bool) (gaps auditGaps) {
	if c.Entries != c.Row {
		gaps.add(gapEntries)
	}
	// Between two versions nothing can be said but which is older; that the
	// engine is behind is the usual case while closings are confirmed. An engine
	// takes over nothing more for a period that has ended.
	if c.InEngine && !c.over && (c.Version != c.EngineVersion || c.Used != countable(c.Row)) {
		gaps.add(gapRow)
	}
	if summed && c.Held != c.HeldRecords {
		gaps.add(gapHeld)
	}
	if summed && c.Unposted != c.UnpostedRecords {
		gaps.add(gapUnposted)
	}
	return gaps
}

// stillThere says which differences of a first look are there at the second.
func (c *AuditedCounter) stillThere(first *AuditedCounter) auditGaps {
	gaps := c.gaps & first.gaps
	if gaps.has(gapRow) && c.EngineVersion < c.Version && c.EngineVersion >= first.Version {
		// It has taken what the first look pushed, and is behind again.
		gaps &^= 1 << gapRow
	}
	return gaps
}

// drift is the sum of the absolute differences of the kinds.
func (c *AuditedCounter) drift(gaps auditGaps) float64 {
	sum := 0.0
	for kind, pair := range [gapKinds][2]quota.Amount{
		gapEntries: {c.Entries, c.Row}, gapRow: {c.Used, countable(c.Row)},
		gapHeld: {c.Held, c.HeldRecords}, gapUnposted: {c.Unposted, c.UnpostedRecords},
	} {
		if gaps.has(gapKind(kind)) {
			sum += math.Abs(float64(pair[0]) - float64(pair[1]))
		}
	}
	return sum
}

// describe puts what differs into words.
func (c *AuditedCounter) describe(gaps auditGaps) string {
	show := func(amount quota.Amount) string { return quota.ShowAmount(c.Meter, amount) }
	var parts []string
	if gaps.has(gapEntries) {
		parts = append(parts, fmt.Sprintf("the usage row says %s and its entries add up to %s", show(c.Row), show(c.Entries)))
	}
	if gaps.has(gapRow) {
		switch {
		case c.EngineVersion > c.Version:
			parts = append(parts, fmt.Sprintf("the engine has seen version %d of the usage row (%s used) and the ledger has version %d (%s): the ledger was rolled back", c.EngineVersion, show(c.Used), c.Version, show(c.Row)))
		case c.EngineVersion < c.Version:
			parts = append(parts, fmt.Sprintf("the engine does not take over version %d of the usage row (%s used) and stays at version %d (%s)", c.Version, show(c.Row), c.EngineVersion, show(c.Used)))
		default:
			parts = append(parts, fmt.Sprintf("the engine counts %s used and the usage row says %s, both at version %d", show(c.Used), show(c.Row), c.Version))
		}
	}
	if gaps.has(gapHeld) {
		parts = append(parts, fmt.Sprintf("the engine counts %s held and its records add up to %s", show(c.Held), show(c.HeldRecords)))
	}
	if gaps.has(gapUnposted) {
		parts = append(parts, fmt.Sprintf("the engine counts %s unposted and its records add up to %s", show(c.Unposted), show(c.UnpostedRecords)))
	}
	return strings.Join(parts, "; ")
}

// driftUnit is the unit of a difference, as metrics tell units apart: amounts of
// several can't be added up.
type driftUnit uint8

const (
	nanoUSD driftUnit = iota
	tokens
	requests
	otherUnit // of all other meters
	driftUnits
)

// String returns the unit as metrics show it.
func (u driftUnit) String() string {
	return [driftUnits]string{"nano_usd", "tokens", "requests", "other"}[u]
}

func driftUnitOf(meter quota.Meter) driftUnit {
	switch meter {
	case quota.MeterCost:
		return nanoUSD
	case quota.MeterTokens, quota.MeterInputTokens, quota.MeterOutputTokens:
		return tokens
	case quota.MeterRequests:
		return requests
	}
	return otherUnit
}

// accountGaps is what the latest look at an account found.
type accountGaps struct {
	stand [gapKinds]int                 // gaps that no repair has closed
	drift [gapKinds][driftUnits]float64 // before repairs
}

// add adds what another look found, times 1 or -1.
func (g *accountGaps) add(other *accountGaps, times int) {
	for kind := range gapKinds {
		g.stand[kind] += times * other.stand[kind]
		for unit := range driftUnits {
			g.drift[kind][unit] += float64(times) * other.drift[kind][unit]
		}
	}
}

func (g *accountGaps) empty() bool { return *g == accountGaps{} }

// maxFound bounds the accounts whose gaps are kept for the metrics.
const maxFound = 100_000

// auditFindings are what the Auditors of a broker found, for its metrics.
type auditFindings struct {
	metrics *auditMetrics

	mu    sync.Mutex
	found map[string]accountGaps // the latest look at each account with gaps
	sum   accountGaps            // of found
}

// report takes over what a look at an account found of some kinds, and exports
// the sums. It says whether that is another finding than before.
func (f *auditFindings) report(account string, seen accountGaps, kinds ...gapKind) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.found[account]
	all := before
	for _, kind := range kinds {
		all.stand[kind], all.drift[kind] = seen.stand[kind], seen.drift[kind]
	}
	if all == before {
		return false
	}
	f.set(account, &all)
	f.export()
	return true
}

// set takes over what was found of an account.
func (f *auditFindings) set(account string, all *accountGaps) {
	before, known := f.found[account]
	if known {
		f.sum.add(&before, -1)
	}
	switch {
	case all.empty():
		delete(f.found, account)
	case known || len(f.found) < maxFound:
		f.found[account] = *all
		f.sum.add(all, 1)
	}
	if len(f.found) == 0 {
		f.sum = accountGaps{} // without what rounding left
	}
}

// export shows the sums.
func (f *auditFindings) export() {
	for kind := range gapKinds {
		f.metrics.gaps.WithLabelValues(kind.String()).Set(float64(f.sum.stand[kind]))
	}
	for unit := range driftUnits {
		drift := 0.0
		for kind := range gapKinds {
			drift += f.sum.drift[kind][unit]
		}
		f.metrics.drift.WithLabelValues(unit.String()).Set(drift)
	}
}

// keep forgets accounts that are not known any more: nobody looks at them again.
func (f *auditFindings) keep(known func(account string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for account := range f.found {
		if !known(account) {
			f.set(account, &accountGaps{})
		}
	}
	f.export()
}
