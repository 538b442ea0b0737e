package rpc

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// Connect answers a message that is too large with resource_exhausted, which is
// kept for limits here: the bounds are enforced below it, in the body as it
// comes and in its decompressed form, with an error of our own.

// envelopeBytes is what gRPC puts before a message.
const envelopeBytes = 5

func errTooLarge(most int) *connect.Error {
	return invalid(&budgetv1.InvalidField{
		Problem: "the request is too large",
		Bound:   fmt.Sprintf("at most %d bytes (the broker's max_request_bytes)", most),
	})
}

// boundBody refuses bodies over most bytes: by their stated length before
// anything is read, else as soon as the bound is passed.
func boundBody(most int, errors *connect.ErrorWriter, next http.Handler) http.Handler {
	bound := int64(most) + envelopeBytes
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Nothing here may be kept by a cache on the way.
		w.Header().Set("Cache-Control", "no-store")
		if r.ContentLength > bound && errors.IsSupported(r) {
			// Many clients read no answer before they have sent everything:
			// take a bounded part of it off them.
			io.CopyN(io.Discard, r.Body, bound)
			errors.Write(w, r, errTooLarge(most))
			return
		}
		r.Body = &boundedReader{Reader: r.Body, Closer: r.Body, left: bound, most: most}
		next.ServeHTTP(w, r)
	})
}

// boundedReader fails once more than left bytes were read.
type boundedReader struct {
	io.Reader
	io.Closer
	left int64
	most int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, errTooLarge(b.most)
	}
	return n, err
}

// boundedGzip takes gzip requests, which may not grow over most bytes.
func boundedGzip(most int) connect.HandlerOption {
	return connect.WithCompression("gzip",
		func() connect.Decompressor { return &gunzip{most: most} },
		func() connect.Compressor { return gzip.NewWriter(io.Discard) },
	)
}

type gunzip struct {
	most int
	left int64
	gzip gzip.Reader
}

func (g *gunzip) Reset(from io.Reader) error {
	g.left = int64(g.most)
	return g.gzip.Reset(from)
}

func (g *gunzip) Read(p []byte) (int, error) {
	if g.left < 0 {
		return 0, errTooLarge(g.most)
	}
	if int64(len(p)) > g.left+1 {
		p = p[:g.left+1]
	}
	n, err := g.gzip.Read(p)
	if g.left -= int64(n); g.left < 0 {
		return n, errTooLarge(g.most)
	}
	return n, err
}

func (g *gunzip) Close() error { return g.gzip.Close() }
