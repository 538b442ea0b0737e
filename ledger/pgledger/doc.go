// Package pgledger keeps the ledger in PostgreSQL 14 or later, in the tables of
// migrations/postgres/0001_ledger.sql.
//
// An Append is one READ COMMITTED transaction of a few multi-row statements:
//
//  1. BEGIN; closings are written by rank (upsert_closings.sql)
//  2. entries are inserted, usage rows are updated by the summed differences,
//     and what the verdicts need is read; COMMIT
//
// Each step is one round trip, whatever the number of closings. A third one in
// between reads what was charged before when a closing of a higher rank
// replaced another, or when one Append has two ranks of one reservation.
//
// Why concurrent Appends, of any number of nodes, can't deadlock: all take
// locks on closings first and on usage rows last, the former in the order of
// account, reservation and month, the latter in the order of their ids.
//
// Why a difference is never posted twice: the closing row of the reservation is
// written, and so locked, before its entries are read, and entries are unique
// by reservation and sequence.
package pgledger
