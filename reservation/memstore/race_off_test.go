//go:build !race

package memstore

const idleUsers = 1_000_000
