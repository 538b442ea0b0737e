package proxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

const (
	// vouchedFor is how long the broker's word for a key holds, before the body of
	// one of its calls is read. Each Reserve renews it, and one that refuses the key
	// ends it at once.
	vouchedFor = time.Minute
	// strangerFor is how long a key is refused that the broker did not know, without
	// asking again. As soon is asked again about one for which it did not answer.
	strangerFor = 3 * time.Second
	// maxStrangers bounds how many of those are remembered.
	maxStrangers = 4096
)

var (
	errUnknownKey = errors.New("the broker does not know the key")
	errAway       = errors.New("the broker is away")
)

// vouched returns the client of a key that the broker knows. It asks where the
// broker has not said so for long, or always. It fails with errUnknownKey, or
// because the broker does not answer: for a key that it has known, only if always is
// set and when_down refuses, since else the Reserve decides.
func (c *clients) vouched(ctx context.Context, key string, always bool) (*budget.Client, error) {
	hash := sha256.Sum256([]byte(key))
	c.mu.Lock()
	now := c.now()
	p := c.byKey[hash]
	if now.Before(c.strangers[hash]) {
		c.mu.Unlock()
		return nil, errUnknownKey
	}
	known := p != nil && p.known || key == c.own
	if p != nil && known && !always && now.Before(p.vouchedUntil) {
		defer c.mu.Unlock()
		p.last = now
		return p.client(), nil
	}
	c.mu.Unlock()
	if !known && c.hopeless() {
		return nil, errAway
	}
	if p == nil {
		var err error
		if p, err = c.newPayer(key); err != nil {
			return nil, err
		}
		p.hash = hash
	}
	isOne, err := c.ask(ctx, p.strict)

	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && (!known || always && c.whenDown == nil) {
		return nil, err
	}
	now = c.now()
	if already := c.byKey[hash]; already != nil {
		p = already
	}
	switch {
	case err != nil:
		p.vouchedUntil = now.Add(strangerFor)
	case !isOne:
		p.known = false
		c.estrange(hash, now)
		return nil, errUnknownKey
	default:
		p.known, p.vouchedUntil = true, now.Add(vouchedFor)
		delete(c.strangers, hash)
	}
	c.remember(p)
	p.last = now
	return p.client(), nil
}

// ask asks the broker whether it knows the key of a client, by a question that needs
// nothing but the key: about a reservation that is none.
func (c *clients) ask(ctx context.Context, client *budget.Client) (isOne bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	_, err = client.Service().GetReservation(ctx, connect.NewRequest(&budgetv1.GetReservationRequest{}))
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated:
		return false, nil
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodePermissionDenied:
		return true, nil
	}
	return err == nil, err
}

// estrange remembers that a key is none. c.mu is held.
func (c *clients) estrange(hash [sha256.Size]byte, now time.Time) {
	looked := 0
	for other, until := range c.strangers { // in no order
		if len(c.strangers) < maxStrangers && now.Before(until) {
			break
		}
		delete(c.strangers, other)
		if looked++; looked == leavers {
			break
		}
	}
	c.strangers[hash] = now.Add(strangerFor)
}

// learn keeps what a Reserve's answer said of the key of a client.
func (c *clients) learn(client *budget.Client, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.payers[client]
	if p == nil {
		return
	}
	now := c.now()
	if p.known = known; known {
		p.vouchedUntil = now.Add(vouchedFor)
	} else {
		c.estrange(p.hash, now)
	}
}
