package simulate

import (
	"time"

	"github.com/budgetd/budgetd/quota"
)

// syncing is a node that counts for itself, and every so often adds what it has
// admitted to a shared count and takes over the total.
type syncing struct {
	own      *limiter // what the node knows: the total of last time, and its own since
	shared   *limiter
	admitted quota.Amount  // since last time
	of       time.Duration // the second in which that was
}

func (s *syncing) take() (bool, error) {
	granted, err := s.own.take()
	if granted {
		s.forget()
		s.admitted++
	}
	return granted, err
}

// forget drops what was admitted in a window that is over: it has no place in the
// shared count any more. What a bucket admitted counts until it is refilled.
func (s *syncing) forget() {
	if second := s.own.clock.elapsed().Truncate(time.Second); second != s.of {
		s.of = second
		if s.own.hold.Kind.IsWindow() {
			s.admitted = 0
		}
	}
}

// tell adds what was admitted to the shared count, whether it fits or not.
func (s *syncing) tell() error {
	s.forget()
	if s.admitted == 0 {
		return nil
	}
	err := s.shared.charge(s.admitted)
	s.admitted = 0
	return err
}

// learn takes over the total.
func (s *syncing) learn() error {
	total, err := s.shared.remaining()
	if err != nil {
		return err
	}
	known, err := s.own.remaining()
	if err != nil || known <= total {
		return err
	}
	return s.own.charge(known - total)
}

func (s *syncing) sync() error {
	if err := s.tell(); err != nil {
		return err
	}
	return s.learn()
}

// order is when the nodes of a fleet sync.
type order string

const (
	spread   order = "spread evenly"               // each at its own instant
	inTurn   order = "at once, in turn"            // one after the other: the last knows most
	inRounds order = "at once, all add, then read" // nobody reads before everybody has added
)

// schedule has nodes sync, every so often.
func (o order) schedule(c *clock, nodes []*syncing, every time.Duration) {
	const span = fleetSeconds * time.Second
	if o == inRounds {
		for _, step := range []func(*syncing) error{(*syncing).tell, (*syncing).learn} {
			c.each(regular(0, every, span), func() error {
				for _, node := range nodes {
					if err := step(node); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return
	}
	for i, node := range nodes {
		first := time.Duration(0)
		if o == spread {
			first = every * time.Duration(i) / fleetNodes
		}
		c.each(regular(first, every, span), node.sync)
	}
}

// runSync: each node counts for itself and syncs every so often.
func runSync(seed uint64, limit aSecond, every time.Duration, when order) (seen, error) {
	f := newFleet(seed, limit)
	shared, err := newLimiter(f.clock, limit(fleetLimit))
	if err != nil {
		return seen{}, err
	}
	own, err := f.limiters(fleetLimit)
	if err != nil {
		return seen{}, err
	}
	nodes := make([]*syncing, fleetNodes)
	for i := range nodes {
		nodes[i] = &syncing{own: own[i], shared: shared}
	}
	when.schedule(f.clock, nodes, every)
	return f.run(fleetCalls, fleetNodes, func(node int) (bool, error) { return nodes[node].take() })
}
