// Package redisstore is the Redis engine of reservation.Store: Lua scripts
// over a single Redis, the master that Sentinels name, or a Cluster, 7.0 or
// newer, without eviction.
package redisstore
