// Package pgledger keeps the ledger in PostgreSQL 14 or later, in the tables of
// migrations/postgres (ledger, reports, adjustments).
//
// An Append is one READ COMMITTED transaction of a few multi-row statements,
// sent in as few round trips, whatever the number of closings:
//
//   - Most closings are the first of their reservation. So an Append first
//     tries to insert them as such, together with their entries and the
//     differences of the usage rows: one round trip.
//   - If a reservation has a closing already, that transaction has failed and
//     left nothing. The Append begins anew, and the next ones begin so: closings
//     are written by rank, then entries and usage rows as it turned out: two
//     round trips. A third one in between reads what was charged before when a
//     closing of a higher rank replaced another.
//
// Why concurrent Appends, of any number of nodes, can't deadlock: all take
// locks on closings first and on usage rows last, the former in the order of
// account, reservation and month, the latter in the order of their ids.
//
// Why a difference is never posted twice: the closing row of the reservation is
// written, and so locked, before its entries are read, and entries are unique
// by reservation and sequence.
//
// How a reader of changes skips nothing: each transaction notes in a log which
// usage rows it changed, under its own transaction id. A reader remembers a
// snapshot, and reads what a later snapshot shows beyond it. A transaction that
// was under way at the first is not in it, however early it began.
package pgledger
