// Package ledger says what was really spent. Its words:
//
//   - a closing ends one reservation: its lease expired (rank 1) or its Refund
//     arrived (rank 2). There is one closing row per reservation; only a higher
//     rank replaces it.
//   - an entry is one immutable line: the difference that a closing made to one
//     meter of one limit and period. Entries are never edited; a closing that is
//     replaced, or a price that is corrected, posts adjusting entries.
//   - a usage row is the running sum of the entries of one account, limit, scope,
//     period and meter, with a version that grows by one at every change.
//
// A GroupCommitter in front of an engine turns concurrent Appends into few
// transactions.
//
// The engines are in the subpackages pgledger and sqliteledger; ledgertest is
// the suite that both must pass.
package ledger
