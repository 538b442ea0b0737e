package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// upload is the body of a call. Each read of it has a bound, and so has the whole:
// a caller that stalls does not keep its place, or its connection, for ever.
type upload struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration // longest wait for the next bytes
	linger  time.Duration // of a body that is not read
	until   time.Time     // when all of it must have come

	whole atomic.Bool // nothing more comes
	late  atomic.Bool // it did not come in time
}

// receive bounds how a call's body comes. The bounds hold from now on.
func (p *Proxy) receive(w http.ResponseWriter, r *http.Request) *upload {
	u := &upload{
		control: http.NewResponseController(w), stall: p.bounds.stall, linger: p.bounds.linger, until: time.Now().Add(p.config.UploadTimeout),
	}
	if r.Body == nil || r.Body == http.NoBody {
		// The server's deadline is for reading the request. Left as it is, it would
		// end answers that take longer.
		u.end()
		return u
	}
	u.ReadCloser = http.MaxBytesReader(w, r.Body, int64(p.config.MaxRequestBytes)+1)
	u.extend()
	r.Body = u
	return u
}

// extend gives the caller time for the next bytes. Errors are those of a
// connection that has ended, which reading tells too.
func (u *upload) extend() {
	next := time.Now().Add(u.stall)
	if u.until.Before(next) {
		next = u.until
	}
	_ = u.control.SetReadDeadline(next)
}

// end takes the bound away: nothing more is to be read.
func (u *upload) end() {
	u.whole.Store(true)
	_ = u.control.SetReadDeadline(time.Time{})
}

// Read implements io.Reader.
func (u *upload) Read(data []byte) (int, error) {
	u.extend()
	n, err := u.ReadCloser.Read(data)
	switch {
	case err == io.EOF:
		u.end()
	case errors.Is(err, os.ErrDeadlineExceeded):
		u.late.Store(true)
	}
	return n, err
}

// leave is for the end of a call that did not read its body: net/http reads a
// little of it, so that the answer arrives, before it closes the connection.
func (u *upload) leave() {
	if !u.whole.Load() && !u.late.Load() {
		_ = u.control.SetReadDeadline(time.Now().Add(u.linger))
	}
}
