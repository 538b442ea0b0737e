// Package ledgertest is the suite that every engine of the ledger must pass:
// what ledger.Ledger promises, one case a promise.
//
// An engine's own test calls [Run] with a function that makes a fresh database
// with the schema in it. The suite opens as many engines on that database as a
// case needs, as several nodes would.
package ledgertest
