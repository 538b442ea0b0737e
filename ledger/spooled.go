package ledger

import "context"

// MaxTokenBytes bounds what is kept beside a closing.
const MaxTokenBytes = 16 << 10

// tokenKey is the context's key of WithToken.
type tokenKey struct{}

// WithToken returns a context for an Append whose closings may have to wait on
// this node's disk: token, at most MaxTokenBytes bytes that the ledger does not
// look into, waits with each of them and comes back in [Drained]. A ledger
// without a spool has no use for it.
func WithToken(ctx context.Context, token []byte) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}

// TokenOf returns the token that WithToken put into the context, or nil.
func TokenOf(ctx context.Context) []byte {
	token, _ := ctx.Value(tokenKey{}).([]byte)
	return token
}

// Drained is a closing that was answered as Spooled and of which the ledger has
// decided since.
type Drained struct {
	Closing Closing
	Token   []byte  // what the context of its Append held
	Verdict Verdict // what the ledger holds now: this closing, or one that was there first
}
