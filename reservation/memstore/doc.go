// Package memstore keeps reservations in the memory of one process: the engine
// of a single node, and one that needs no server. It gives the same answers as
// every other engine of the reservation.Store contract. What it keeps is lost
// when the process ends; the ledger then seeds the quotas again.
//
// One mutex guards everything: on a few cores a single lock around some hundred
// nanoseconds of work beats shards. Nothing runs in the background. State that
// says nothing any more (full buckets, counters of past periods, confirmed
// records after their retention, accounts without either) goes a little with
// every call on its account, and all of it with Sweep, which finds it by time
// and never scans.
//
// Byte slices in an answer belong to the engine and must not be modified;
// requests are copied where they are kept.
package memstore
