// Package sqliteledger keeps the ledger in one SQLite file, in the tables of
// migrations/sqlite/0001_ledger.sql. It is the embedded default: pure Go,
// nothing to install.
//
// The file is in WAL mode with synchronous=FULL: a commit has been flushed to
// the disk when Append returns. One transaction writes at a time. Within the
// process Appends queue for it, and so do those of other processes that have
// the file open (a command line beside a server), each waiting up to
// Config.BusyTimeout.
//
// The file must be on a local disk: SQLite's locks and its shared memory do
// not work over a network, so it can't be shared by nodes.
package sqliteledger
