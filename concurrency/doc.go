// Package concurrency holds the rules of slots: who holds one, how many there
// are, and how long a lease keeps it.
//
// A reservation that meets a limit on in_flight holds one slot of it. The slot
// is kept by the reservation's lease and by nothing else: every lease ends on
// its own, so a caller that crashed gives its slot back, and traffic never
// keeps another's alive. The rules are pure; engines keep the state.
//
// Instants are microseconds since the Unix epoch, by the engine's clock.
package concurrency
