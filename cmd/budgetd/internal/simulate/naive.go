package simulate

import (
	"strconv"
	"time"
)

// naiveLimiter is the limiter that people write first: a count for each client
// in each span of ten seconds.
type naiveLimiter struct {
	clock  *clock
	counts map[naiveKey]int
}

type naiveKey struct {
	client string
	span   time.Duration
}

const (
	naiveLimit = 10
	naiveSpan  = 10 * time.Second
)

func newNaiveLimiter(c *clock) *naiveLimiter {
	return &naiveLimiter{clock: c, counts: map[naiveKey]int{}}
}

func (n *naiveLimiter) key(client string) naiveKey {
	return naiveKey{client, n.clock.elapsed().Truncate(naiveSpan)}
}

// take is right for one server, as long as nobody else counts with it.
func (n *naiveLimiter) take(client string) bool {
	key := n.key(client)
	if n.counts[key] >= naiveLimit {
		return false
	}
	n.counts[key]++
	return true
}

// takeSlowly reads the count, as from a store on the network, and writes what it
// makes of it a round trip later: another server's count of meanwhile is lost.
func (n *naiveLimiter) takeSlowly(client string, roundTrip time.Duration, admitted func()) {
	key := n.key(client)
	read := n.counts[key]
	if read >= naiveLimit {
		return
	}
	n.clock.after(roundTrip, func() error {
		n.counts[key] = read + 1
		admitted()
		return nil
	})
}

// runNaive shows the failures of a naive limiter of ten in ten seconds, and
// what the product's engine admits of the same calls.
func runNaive(Options) (*Report, error) {
	r := &Report{}
	t := Table{
		Title:  "a naive limiter, 10 in 10 s, and a token bucket of 10, one a second",
		Header: []string{"failure", "calls", "naive", "engine"},
	}
	for _, show := range []func(*Report, *Table) error{showBoundary, showServers, showProxy, showForwarded, showReadThenWritten} {
		if err := show(r, &t); err != nil {
			return nil, err
		}
	}
	r.Tables = []Table{t}
	return r, nil
}

// showBoundary: ten calls just before a span ends, and ten just after.
func showBoundary(r *Report, t *Table) error {
	c := newClock()
	naive := newNaiveLimiter(c)
	engine, err := newLimiter(c, bucketOf(naiveLimit, naiveSpan))
	if err != nil {
		return err
	}
	var counted tally
	for _, at := range []time.Duration{naiveSpan - 100*time.Millisecond, naiveSpan} {
		c.each(burst(at, 10), func() error {
			return counted.both(naive, engine, "client", "")
		})
	}
	if err := c.run(); err != nil {
		return err
	}
	t.row("boundary: ten at 9.9 s and ten at 10.0 s", counted.calls, counted.naive, counted.engine)
	r.check("naive, boundary: admitted of 20", float64(counted.naive), 20, 0)
	r.check("engine, boundary: admitted of 20", float64(counted.engine), 10, 0)
	return nil
}

// showServers: forty calls over four servers, each of which counts alone.
func showServers(r *Report, t *Table) error {
	c := newClock()
	shared, err := newLimiter(c, bucketOf(naiveLimit, naiveSpan))
	if err != nil {
		return err
	}
	servers := []*naiveLimiter{newNaiveLimiter(c), newNaiveLimiter(c), newNaiveLimiter(c), newNaiveLimiter(c)}
	var counted tally
	c.each(burst(0, 40), func() error {
		return counted.both(servers[counted.calls%len(servers)], shared, "client", "")
	})
	if err := c.run(); err != nil {
		return err
	}
	t.row("four servers, each counts alone", counted.calls, counted.naive, counted.engine)
	r.check("naive, four servers: admitted of 40", float64(counted.naive), 40, 0)
	r.check("engine, four servers: admitted of 40", float64(counted.engine), 10, 0)
	return nil
}

// showProxy: three clients behind one proxy, whose address is all that a naive
// limiter sees. The engine counts by the key that each client shows.
func showProxy(r *Report, t *Table) error {
	c := newClock()
	naive := newNaiveLimiter(c)
	engine, err := newLimiter(c, bucketOf(naiveLimit, naiveSpan))
	if err != nil {
		return err
	}
	for i, client := range []string{"first", "second", "third"} {
		var counted tally
		for range 5 {
			if err := counted.both(naive, engine, "the proxy's address", client); err != nil {
				return err
			}
		}
		t.row("behind a proxy: the "+client+" client", counted.calls, counted.naive, counted.engine)
		r.check("naive, behind a proxy: admitted of 5 of the "+client+" client", float64(counted.naive), []float64{5, 5, 0}[i], 0)
		r.check("engine, behind a proxy: admitted of 5 of the "+client+" client", float64(counted.engine), 5, 0)
	}
	return nil
}

// showForwarded: a limiter that believes the first address of X-Forwarded-For
// counts by what the client wrote there, which is another one each time.
func showForwarded(r *Report, t *Table) error {
	c := newClock()
	naive := newNaiveLimiter(c)
	engine, err := newLimiter(c, bucketOf(naiveLimit, naiveSpan))
	if err != nil {
		return err
	}
	var counted tally
	for i := range 20 {
		if err := counted.both(naive, engine, "192.0.2."+strconv.Itoa(i), "client"); err != nil {
			return err
		}
	}
	t.row("a client that writes X-Forwarded-For itself", counted.calls, counted.naive, counted.engine)
	r.check("naive, X-Forwarded-For believed: admitted of 20", float64(counted.naive), 20, 0)
	r.check("engine, by the client's key: admitted of 20", float64(counted.engine), 10, 0)
	return nil
}

// showReadThenWritten: twenty servers at once read a shared count and write one
// more.
func showReadThenWritten(r *Report, t *Table) error {
	c := newClock()
	shared := newNaiveLimiter(c)
	engine, err := newLimiter(c, bucketOf(naiveLimit, naiveSpan))
	if err != nil {
		return err
	}
	var counted tally
	c.each(burst(0, 20), func() error {
		counted.calls++
		shared.takeSlowly("client", time.Millisecond, func() { counted.naive++ })
		granted, err := engine.take()
		if granted {
			counted.engine++
		}
		return err
	})
	if err := c.run(); err != nil {
		return err
	}
	stored := shared.counts[shared.key("client")]
	left, err := engine.remaining()
	if err != nil {
		return err
	}
	t.row("shared store, read, then written", counted.calls, counted.naive, counted.engine)
	t.row("  stored", "", stored, naiveLimit-int(left))
	r.check("naive, read then written: admitted of 20", float64(counted.naive), 20, 0)
	r.check("naive, read then written: stored", float64(stored), 1, 0)
	r.check("engine: admitted of 20", float64(counted.engine), 10, 0)
	r.check("engine: stored", float64(naiveLimit)-float64(left), 10, 0)
	return nil
}

// tally is how many calls were admitted by whom.
type tally struct{ calls, naive, engine int }

// both asks both about one call: the naive limiter by what it takes for the
// client, the engine by the scope of its counter.
func (t *tally) both(naive *naiveLimiter, engine *limiter, client, scope string) error {
	t.calls++
	if naive.take(client) {
		t.naive++
	}
	granted, err := engine.takeFor(scope)
	if granted {
		t.engine++
	}
	return err
}
