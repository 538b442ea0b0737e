//go:build race

package redisstore

// sequences are fewer with the race detector: the mass of them is played without,
// by make sequences.
const sequences = 500
