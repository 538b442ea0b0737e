package proxy

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

const (
	// maxPayers bounds how many keys are remembered.
	maxPayers = 4096
	// leavers are how many are looked at to find one that goes.
	leavers = 16
)

// clients has the clients of the broker for each budget key that calls, all on
// the same connections.
type clients struct {
	broker   string
	deadline time.Duration // of one question
	whenDown *budget.WhenDown
	own      string // the proxy's own key, which needs no broker to be known
	http     *http.Client
	lost     func(budget.LostRefund)
	hopeless func() bool // says that there is no sense in asking now
	now      func() time.Time

	losses    atomic.Int64
	mu        sync.Mutex
	byKey     map[[sha256.Size]byte]*payer    // by the key's hash
	payers    map[*budget.Client]*payer       // by its clients
	strangers map[[sha256.Size]byte]time.Time // keys that are none, and until when that holds

	gone    sync.WaitGroup // payers that are not remembered, whose Refunds still wait
	waiting context.Context
	endWait context.CancelFunc
}

// payer is a budget key that calls. What becomes of its calls while no broker
// answers is a property of a client: a key that the broker has not shown to be
// one is refused then, whatever the rule, or any word would open the proxy.
type payer struct {
	hash   [sha256.Size]byte
	strict *budget.Client
	ruled  *budget.Client // follows when_down; strict where that refuses
	known  bool           // the broker has answered a call of this key as one it knows
	last   time.Time      // of its calls

	vouchedUntil time.Time // until when that holds for a call whose body was not read
}

// client is the one for the next call.
func (p *payer) client() *budget.Client {
	if p.known {
		return p.ruled
	}
	return p.strict
}

// ruleOf is what becomes of calls while no broker answers; nil: they are refused.
func ruleOf(c config.Proxy) (*budget.WhenDown, error) {
	switch c.WhenDown {
	case "open":
		rule := budget.Open()
		return &rule, nil
	case "local":
		rule, err := budget.Local(float64(c.LocalRate), c.LocalBurst)
		return &rule, err
	}
	return nil, nil
}

// open makes the clients ready.
func (c *clients) open() {
	c.byKey, c.payers, c.strangers = map[[sha256.Size]byte]*payer{}, map[*budget.Client]*payer{}, map[[sha256.Size]byte]time.Time{}
	c.waiting, c.endWait = context.WithCancel(context.Background())
}

// remember keeps a payer, in the place of another where there are too many. c.mu is
// held.
func (c *clients) remember(p *payer) {
	if c.byKey[p.hash] == p {
		return
	}
	if len(c.byKey) >= maxPayers {
		c.forget(c.leaver())
	}
	c.byKey[p.hash], c.payers[p.strict], c.payers[p.ruled] = p, p, p
}

func (c *clients) newPayer(key string) (p *payer, err error) {
	p = &payer{known: key == c.own}
	client := func(more ...budget.Option) (*budget.Client, error) {
		return budget.New(c.broker, key, append(more, budget.WithHTTPClient(c.http), budget.WithDeadline(c.deadline), budget.WithOnLost(c.lose))...)
	}
	if p.strict, err = client(); err != nil {
		return nil, err
	}
	if p.ruled = p.strict; c.whenDown != nil {
		p.ruled, err = client(budget.WithWhenDown(*c.whenDown))
	}
	return p, err
}

// leaver is who is forgotten when there are too many, of a few that are looked at:
// one that the broker does not know, else the one that has not called for longest.
func (c *clients) leaver() *payer {
	var leaver *payer
	looked := 0
	for _, p := range c.byKey { // in no order
		if leaver == nil || leaver.known && !p.known || leaver.known == p.known && p.last.Before(leaver.last) {
			leaver = p
		}
		if looked++; looked == leavers {
			break
		}
	}
	return leaver
}

// forget lets a payer go. Calls under way keep its clients; what waits for the
// broker goes on, but nothing is added to it.
func (c *clients) forget(p *payer) {
	delete(c.byKey, p.hash)
	for _, client := range p.clients() {
		delete(c.payers, client)
		c.gone.Go(func() { _ = client.Close(c.waiting) }) // what is lost, lose hears
	}
}

func (p *payer) clients() []*budget.Client {
	if p.ruled == p.strict {
		return []*budget.Client{p.strict}
	}
	return []*budget.Client{p.strict, p.ruled}
}

// lose hears of Refunds that are not tried any more.
func (c *clients) lose(l budget.LostRefund) {
	c.losses.Add(1)
	c.lost(l)
}

// close delivers what waits for the broker until ctx ends, and returns how many
// Refunds were lost meanwhile.
func (c *clients) close(ctx context.Context) int64 {
	before := c.losses.Load()
	context.AfterFunc(ctx, c.endWait)
	c.mu.Lock()
	for client := range c.payers {
		c.gone.Go(func() { _ = client.Close(ctx) }) // what is lost, lose hears
	}
	c.mu.Unlock()
	c.gone.Wait()
	c.endWait()
	return c.losses.Load() - before
}
