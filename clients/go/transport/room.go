package transport

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"
)

// DefaultMaxUnderWay bounds the bodies that a Transport has in memory: 512 MiB.
const DefaultMaxUnderWay = 512 << 20

// roomWait is how long a call waits for room at most.
const roomWait = 10 * time.Second

var errNoRoom = errors.New("too many bytes of requests are under way: try again")

// room bounds what the calls of a Transport have in memory: bodies until they are
// sent, and as much again of their decoded forms while they are reserved for. A call
// waits for a body's room before it has any, and for a form's with a body's, and
// whoever has a form's waits for nothing more: so none waits for another for good.
type room struct {
	size          int64
	bodies, forms *semaphore.Weighted
}

func newRoom(size int64) room {
	return room{size, semaphore.NewWeighted(size), semaphore.NewWeighted(size)}
}

// place is what one call has of the room.
type place struct {
	room         *room
	bodies, form int64
}

// enter waits for the room of a body of n bytes, the room's size at most.
func (p *place) enter(ctx context.Context, n int64) error {
	if err := waitFor(ctx, p.room.bodies, n); err != nil {
		return err
	}
	p.bodies += n
	return nil
}

// more takes room for n more bytes, if there is some.
func (p *place) more(n int64) bool {
	ok := p.room.bodies.TryAcquire(n)
	if ok {
		p.bodies += n
	}
	return ok
}

// decode waits for the room of a body's decoded form.
func (p *place) decode(ctx context.Context, bytes, values int) error {
	n := min(int64(bytes)+int64(values)*valueBytes, p.room.size)
	if err := waitFor(ctx, p.room.forms, n); err != nil {
		return err
	}
	p.form = n
	return nil
}

// decoded gives back the room of the form.
func (p *place) decoded() {
	p.room.forms.Release(p.form)
	p.form = 0
}

// leave gives back all.
func (p *place) leave() {
	p.decoded()
	p.room.bodies.Release(p.bodies)
	p.bodies = 0
}

// waitFor fails with the context's error, or errNoRoom after [roomWait].
func waitFor(ctx context.Context, s *semaphore.Weighted, n int64) error {
	if s.TryAcquire(n) {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	if s.Acquire(within, n) == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errNoRoom
}
