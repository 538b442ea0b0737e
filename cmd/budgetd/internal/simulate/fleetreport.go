package simulate

import (
	"fmt"
	"strings"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// arrangement is how the nodes of a fleet keep one limit.
type arrangement struct {
	name      string
	run       func(seed uint64, limit aSecond) (seen, error)
	published float64 // what is known to be admitted a second, by windows
	atomic    bool    // never more
}

// apart: each node counts for itself, against a limit of its own.
func apart(name string, each quota.Amount, calls float64, reached int, published float64) arrangement {
	return arrangement{name, func(seed uint64, limit aSecond) (seen, error) {
		return runApart(seed, limit, each, calls, reached)
	}, published, false}
}

// synced: each node counts for itself and syncs every so often.
func synced(every time.Duration, published float64) arrangement {
	return arrangement{fmt.Sprintf("local, synced every %s", every), func(seed uint64, limit aSecond) (seen, error) {
		return runSync(seed, limit, every, spread)
	}, published, false}
}

var arrangements = []arrangement{
	apart("each counts alone", fleetLimit, fleetCalls, fleetNodes, 298),
	apart("limit/N", fleetLimit/fleetNodes, fleetCalls, fleetNodes, 100),
	apart("limit/N, the client reaches one node", fleetLimit/fleetNodes, fleetCalls, 1, 10),
	apart("limit/N, a client at the limit", fleetLimit/fleetNodes, fleetLimit, fleetNodes, 88),
	{"shared, atomic", runShared, fleetLimit, true},
	synced(20*time.Millisecond, 107),
	synced(100*time.Millisecond, 128),
	synced(200*time.Millisecond, 155),
	synced(500*time.Millisecond, 232),
}

// runFleet shows one limit on many nodes, and what becomes of it while the store
// is down.
func runFleet(o Options) (*Report, error) {
	r := &Report{}
	t := Table{
		Title:  fmt.Sprintf("one limit of %d a second on %d nodes, over %d s", fleetLimit, fleetNodes, fleetSeconds-1),
		Header: []string{"arrangement", "asked/s", "admitted/s: window", "most in 1 s", "admitted/s: bucket", "most in 1 s"},
	}
	chart := Chart{Title: "One limit of 100 a second on ten nodes, a client at 300: local counts, synced", X: "time between syncs", Y: "admitted a second, windows", Limit: fleetLimit}
	for _, a := range arrangements {
		cells := []any{a.name}
		for _, algorithm := range limitsASecond {
			s, err := a.run(o.Seed, algorithm.limit)
			if err != nil {
				return nil, err
			}
			if len(cells) == 1 {
				cells = append(cells, s.asked)
				r.check("fleet, "+a.name+", window: admitted a second", s.admitted, a.published, 0.03)
				if a.atomic {
					r.check("fleet, "+a.name+", window: most admitted in one second", s.most, fleetLimit, 0)
				}
				if every, is := strings.CutPrefix(a.name, "local, synced every "); is {
					chart.Bars = append(chart.Bars, Bar{every, s.admitted})
				}
			}
			cells = append(cells, s.admitted, int(s.most))
		}
		t.row(cells...)
	}
	r.Tables, r.Charts = []Table{t}, []Chart{chart}
	if err := showOrders(r, o); err != nil {
		return nil, err
	}
	return r, showOutage(r, o)
}

// showOrders adds what the order of syncs comes to.
func showOrders(r *Report, o Options) error {
	orders := []order{spread, inTurn, inRounds}
	t := Table{Title: "local, synced: admitted a second by windows, by when the nodes sync", Header: []string{"every"}}
	for _, when := range orders {
		t.Header = append(t.Header, string(when))
	}
	for _, every := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond} {
		cells := []any{every.String()}
		for _, when := range orders {
			s, err := runSync(o.Seed, limitsASecond[0].limit, every, when)
			if err != nil {
				return err
			}
			cells = append(cells, s.admitted)
		}
		t.row(cells...)
	}
	r.Tables = append(r.Tables, t)
	return nil
}
