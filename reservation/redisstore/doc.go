// Package redisstore is the Redis engine of reservation.Store: Lua scripts
// over a single Redis, the master that Sentinels name, or a Cluster; 7.0 or
// newer, without eviction.
//
// # Keys
//
// Accounts are spread over 256 shards, each with a hash tag {s00} to {sff}. All
// keys of an account carry its shard's tag, and so does the shard's index of
// accounts, so that one script keeps them together, and the index can't miss an
// account:
//
//	{sXX}:a:<account>            hash: m (meta), b<limit> and q<limit> (counters of
//	                             the whole account), r<id> (a record that is open,
//	                             or that the ledger has not confirmed)
//	{sXX}:d:<account>            sorted set of the ids by the instant at which each
//	                             is due: its lease's end (above 0) or, for those
//	                             that wait for the ledger, minus it
//	{sXX}:z:<account>:<limit>    sorted set of a slot counter's holders by lease end
//	{sXX}:b: q: z:<account>:<limit>:<scope>  counters of a scope
//	<slot counter>::l and ::k    sorted sets: who waits for a slot, in order, and until
//	                             when the place stands; both only while somebody waits
//	{sXX}:k:<account>:<hash>     an idempotency key
//	{sXX}:c:<account>:<minute>   hash: confirmed closings, by the minute of minting
//	{sXX}:due                    sorted set: accounts by their earliest due instant
//	{sXX}:epoch                  a primary's marker, in the lowest shard that it serves
//	{pXX}:b: z:<pool>:...        a pool's counters; on a Cluster also a: d: c: due
//	                             of the pool's legs, see below
//
// Names are escaped, and hashed where they are long. Every key has an expiry that
// outlives its debt, its leases and (by 25 hours, extended by each sweep) what
// waits for the ledger; the marker lives as long as somebody sweeps. A sweep of an account that has nothing open drops its
// full buckets and past periods and shortens the rest to what it still says.
//
// The closings' minutes and the band below 0 are what keeps cost apart from the
// number of reservations: nothing is ever scanned.
//
// # Values
//
// Values are MessagePack with the layout's number first. A script reads and
// decides before it writes anything; one that meets another layout stops with an
// error (reservation.ErrNewerLayout) and has changed nothing. lua/layout.lua
// alone knows layout 1 (with the two files below).
//
// # Scripts
//
// Each script is composed of the files in lua/. The two on the path of every
// call, reserve and refund, first try their usual case in one piece
// (reserve_hot.lua, refund_hot.lua): defining the 45 functions of the modules
// costs more than what they do, as Redis runs a script's whole text at each
// call. In BenchmarkScripts, 4 buckets, a slot and a quota took 7.6 times the time of
// a classic single token bucket without them and 3.7 times with them.
// Numbers are integers below 2^53 throughout; lua/arithmetic.lua says how
// products beyond are divided exactly.
//
// A script that frees a slot for which somebody waits publishes the counter's key on
// <prefix>freed (lua/line.lua); a broker listens while it holds a call.
//
// # Incarnations
//
// 52 bits of a hash of the server's run_id and master_replid are a literal of
// every script's text. A server that restarted has no such script and answers
// NOSCRIPT; the broker then reads who it is and loads the scripts anew, on one
// connection. Quota counters of another incarnation count as missing. A process
// that was demoted and promoted again keeps its scripts and connections: each
// new connection, every READONLY answer, and a look in the background once a
// second notice it. What is left is a demotion and promotion within that second
// that this broker met with no call. On a Cluster each primary is an incarnation
// of its own.
//
// The sweep tells brokers of it: its epoch is made of a marker on every primary,
// which is gone or of another incarnation when data was lost (epoch.go). They
// then bring back the holds that they know, by Restore.
//
// # Failures
//
// A reply that says that nothing was run (NOSCRIPT, MOVED, ASK, READONLY, LOADING,
// TRYAGAIN, CLUSTERDOWN), or a connection that could not be made, is retried once
// within the caller's deadline. Everything else leaves the outcome unknown and is
// reservation.ErrUnavailable; the same call again is safe.
//
// # Pools on a Cluster
//
// No script sees an account and a pool on different nodes. pools.go has the
// steps: the pool takes first, the account is the single commit point, and a leg
// that nobody settles charges when its lease ends. A pool may for a round trip
// hold what is then refused, and refuse others meanwhile; it never admits more
// than it has. A leg whose node can't be reached when its reservation is settled
// stays charged in full.
package redisstore
