// Package auth turns a credential into a principal, and keeps the secrets that
// the broker itself needs.
//
// [Keys] keeps API keys: made once, shown once, stored as a hash, revoked
// within a second on every node. [Authenticator] reads the Authorization header
// of a call and puts the [Principal] into its context; what a principal may do
// is the handlers' question. [SigningKeys] keeps the keys with which
// reservation ids are authenticated.
//
// No secret appears in an error, a log line, a metric or a formatted value of
// this package's types. The only way to one is [Secret.Reveal].
package auth
