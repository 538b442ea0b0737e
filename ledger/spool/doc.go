// Package spool keeps closings on this node's disk while the ledger's server is
// away, so that a Refund can be acknowledged all the same.
//
// A [Spool] is a ledger.Ledger in front of another. An Append that the ledger
// does not answer within the patience is written to a SQLite file, flushed to
// the disk and answered with ledger.Verdict.Spooled. From then on the ledger
// counts as away: no call waits for it, closings go to the file at once, and a
// look every 100 ms to 1 s finds out whether it is back. Then the file is
// drained, in the order in which it was filled: a batch is posted, removed
// after its commit, and its verdicts are handed to Config.Drained. Posting is
// safe to repeat, so a crash between two steps posts nothing twice.
//
// What the spool acknowledges is decided by what this node knows. Closings of a
// reservation that is in the file go to the file, by the ledger's own rule: the
// higher rank stays, and of equal ranks the first. If the ledger turns out to
// hold another closing of the reservation, or refuses one, the spooled closing
// is filed in a table of its own, logged as an error and counted: it blocks
// nothing behind it.
//
// When the file can't take a closing (its bound, the disk), nothing is
// acknowledged: the Append fails with ledger.ErrUnavailable.
package spool
