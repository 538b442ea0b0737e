// Package faults breaks running servers in turn while traffic goes on, and then
// looks at the books. Three brokers share one Redis and one PostgreSQL. Redis is
// killed, flushed and set back to an older dump, PostgreSQL is stopped and
// started, brokers are ended with SIGKILL, in an order that a seed decides:
//
//	go test ./test/faults -run Quotas -args -seed 7 -span 2m
//
// A run prints its seed. What the processes make of a seed differs from run to
// run; which faults come, in which order and for how long, does not.
package faults
