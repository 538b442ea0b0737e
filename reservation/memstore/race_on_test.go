//go:build race

package memstore

// idleUsers is less with the race detector, which takes ten times as long.
const idleUsers = 100_000
