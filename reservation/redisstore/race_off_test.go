//go:build !race

package redisstore

const sequences = 2000 // of the property suite, unless the flag says more
