package simulate

import (
	"math/rand/v2"
	"time"

	"github.com/budgetd/budgetd/quota"
)

const (
	fleetNodes   = 10
	fleetLimit   = 100 // calls a second, of the whole fleet
	fleetCalls   = 300 // a second, of one client
	fleetSeconds = 60
)

// fleet is nodes that all see a part of one client's calls.
type fleet struct {
	clock  *clock
	seed   uint64
	limit  aSecond
	random *rand.Rand // decides which node a call reaches
}

func newFleet(seed uint64, limit aSecond) *fleet {
	return &fleet{clock: newClock(), seed: seed, limit: limit, random: seeded(seed, 2)}
}

// limiters are engines, one a node, each with a limit of its own.
func (f *fleet) limiters(calls quota.Amount) ([]*limiter, error) {
	nodes := make([]*limiter, fleetNodes)
	for i := range nodes {
		var err error
		if nodes[i], err = newLimiter(f.clock, f.limit(calls)); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// seen is what became of a client's calls. The first second is left out of it: a
// bucket begins full.
type seen struct {
	asked    float64 // a second
	admitted float64 // a second
	most     float64 // admitted in one second
}

// run lets a client call, so often a second, whichever of some nodes it reaches.
func (f *fleet) run(calls float64, reached int, take func(node int) (bool, error)) (seen, error) {
	asked, admitted := make(perSecond, fleetSeconds), make(perSecond, fleetSeconds)
	f.clock.each(poisson(seeded(f.seed, 1), calls, fleetSeconds*time.Second), func() error {
		asked.count(f.clock)
		granted, err := take(f.random.IntN(reached))
		if granted {
			admitted.count(f.clock)
		}
		return err
	})
	err := f.clock.run()
	return seen{asked.mean(1, fleetSeconds), admitted.mean(1, fleetSeconds), admitted.most(1)}, err
}

// runApart: each node counts for itself, against a limit of its own.
func runApart(seed uint64, limit aSecond, each quota.Amount, calls float64, reached int) (seen, error) {
	f := newFleet(seed, limit)
	nodes, err := f.limiters(each)
	if err != nil {
		return seen{}, err
	}
	return f.run(calls, reached, func(node int) (bool, error) { return nodes[node].take() })
}

// runShared: all nodes ask one engine.
func runShared(seed uint64, limit aSecond) (seen, error) {
	f := newFleet(seed, limit)
	shared, err := newLimiter(f.clock, limit(fleetLimit))
	if err != nil {
		return seen{}, err
	}
	return f.run(fleetCalls, fleetNodes, func(int) (bool, error) { return shared.take() })
}
