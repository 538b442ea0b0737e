package transport

import (
	"errors"
	"io"
	"sync/atomic"
)

// payload is a body that is sent, until it can be let go: net/http keeps a request
// until its answer was read, which of a stream may take minutes.
type payload struct{ raw atomic.Pointer[[]byte] }

var errLetGo = errors.New("the body was sent and is not kept")

func newPayload(raw []byte) *payload {
	p := &payload{}
	p.raw.Store(&raw)
	return p
}

// letGo drops the bytes.
func (p *payload) letGo() { p.raw.Store(nil) }

func (p *payload) open() (io.ReadCloser, error) {
	if p.raw.Load() == nil {
		return nil, errLetGo
	}
	return &payloadReader{payload: p}, nil
}

type payloadReader struct {
	payload *payload
	at      int
}

// Read implements io.Reader.
func (r *payloadReader) Read(p []byte) (int, error) {
	raw := r.payload.raw.Load()
	if raw == nil || r.at == len(*raw) {
		return 0, io.EOF
	}
	n := copy(p, (*raw)[r.at:])
	r.at += n
	return n, nil
}

// Close implements io.Closer.
func (r *payloadReader) Close() error { return nil }
