package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
)

// call is one reservation that a caller was granted.
type call struct {
	account  string
	id       string
	held     int64     // tokens
	asked    time.Time // first: the lease did not begin before
	answered time.Time
	lease    time.Duration

	crashes bool  // its caller never comes back
	used    int64 // what the caller reports
	unused  bool

	refunding time.Time // when the first Refund was sent; zero: it was not
	acked     time.Time // when a Refund was answered; zero: none was
	late      bool      // as the answer says
	expired   bool      // its lease had ended by our clock before the first Refund was sent
}

// traffic is callers that go on whatever happens.
type traffic struct {
	fleet   *fleet
	names   []string
	began   time.Time
	workers sync.WaitGroup
	stop    atomic.Bool

	mu    sync.Mutex
	calls []*call

	// Of the one who breaks things:
	losses  []time.Time // when Redis forgot something
	outages []outage

	refused, unanswered atomic.Int64
}

// Amounts and times of the calls. Leases are short, so that many end while
// servers are down; a tenth of the callers never come back.
const (
	callers     = 24
	mostHeld    = 400
	shortLease  = 2 * time.Second
	longLease   = 8 * time.Second
	callTimeout = 10 * time.Second
)

func startTraffic(f *fleet, names []string, seed uint64) *traffic {
	t := &traffic{fleet: f, names: names, began: time.Now()}
	for worker := range callers {
		random := rand.New(rand.NewPCG(seed, uint64(worker)+1))
		t.workers.Go(func() {
			for n := 0; !t.stop.Load(); n++ {
				t.one(random, fmt.Sprintf("%d-%d", worker, n), worker)
			}
		})
	}
	return t
}

// finish lets the callers end what they have begun.
func (t *traffic) finish() {
	t.stop.Store(true)
	t.workers.Wait()
}

// one reserves, works and refunds.
func (t *traffic) one(random *rand.Rand, key string, node int) {
	c := &call{
		account: t.names[random.IntN(len(t.names))],
		held:    1 + random.Int64N(mostHeld),
		lease:   shortLease,
		crashes: random.IntN(10) == 0,
		unused:  random.IntN(12) == 0,
	}
	if random.IntN(3) == 0 {
		c.lease = longLease
	}
	c.used = random.Int64N(c.held + 1)
	if random.IntN(20) == 0 {
		c.used = c.held + random.Int64N(50) // an overrun
	}
	work := time.Duration(random.Int64N(int64(300 * time.Millisecond)))
	if random.IntN(15) == 0 {
		work += c.lease // too long: the lease ends meanwhile
	}
	if !t.reserve(c, key, node, random) {
		time.Sleep(20 * time.Millisecond) // a caller that is refused does something else
		return
	}
	t.mu.Lock()
	t.calls = append(t.calls, c)
	t.mu.Unlock()
	if c.crashes {
		return
	}
	time.Sleep(work)
	t.refund(c, random)
}

func (t *traffic) reserve(c *call, key string, node int, random *rand.Rand) bool {
	request := budget.Request{
		Account: c.account, Key: key, Lease: c.lease,
		Labels:  map[string]string{"team": string(rune('a' + random.IntN(3)))},
		Amounts: map[string]int64{"tokens": c.held},
	}
	c.asked = time.Now()
	for try := range 20 {
		client := t.fleet.client(node + try)
		if client == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		r, err := client.Reserve(ctx, request)
		cancel()
		var no *budget.RefusedError
		switch {
		case err == nil:
			c.id, c.answered = r.ID, time.Now()
			return true
		case errors.As(err, &no):
			t.refused.Add(1)
			return false
		case errors.Is(err, budget.ErrEnded):
			return false // an earlier try was granted, and has ended meanwhile
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.unanswered.Add(1)
	return false
}

// refund repeats a Refund, over whatever broker is there, until it is answered.
func (t *traffic) refund(c *call, random *rand.Rand) {
	usage := budget.Amounts(map[string]int64{"tokens": c.used})
	if c.unused {
		c.used, usage = 0, budget.Unused()
	}
	c.refunding = time.Now()
	c.expired = c.refunding.After(c.asked.Add(c.lease))
	for giveUp := time.Now().Add(2 * time.Minute); time.Now().Before(giveUp); {
		if client := t.fleet.client(random.IntN(fleetSize)); client != nil {
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			answer, err := client.Refund(ctx, c.id, usage)
			cancel()
			if err == nil {
				c.acked, c.late = time.Now(), answer.Late
				if got := answer.Charged["tokens"]; got != c.used {
					t.fleet.tb.Errorf("a Refund of %d tokens was answered with %d charged", c.used, got)
				}
				return
			}
			if code := connect.CodeOf(err); code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded && code != connect.CodeUnknown {
				t.fleet.tb.Errorf("a Refund of %s was answered with %v", c.account, err)
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.fleet.tb.Errorf("a Refund of %s was not answered within two minutes", c.account)
}
