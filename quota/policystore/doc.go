// Package policystore keeps plans, pools, accounts and prices in the tables of
// migrations 2, 6, 10 and 12, in PostgreSQL or SQLite alike: one implementation over
// database/sql, in the SQL that both understand, so that they can't differ.
//
// [Store.Apply] brings in what a document states: it checks that the policy
// that results is valid as a whole, writes what differs in one transaction
// under a new version, and records who changed what. Writers wait for each
// other, on the row that holds the version. [Watcher] follows the version and
// hands out the newest valid policy. What grants covered of ended periods is
// kept here too ([Store.SaveGrantUses]) and comes with the policy.
package policystore
