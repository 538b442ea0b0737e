// Package migrations holds the schema of the stores as numbered SQL files, one
// folder for each dialect, and applies them. The files are embedded in the
// binary.
//
// The schema only moves forward: a file that was released is never edited, and
// there is no way back down. A database whose schema is newer than this binary
// is refused with [ErrNewerSchema], before anything is read or written. Which
// files were applied, and when, is kept in the table budgetd_schema.
//
// Both folders have the same numbers with the same meaning, so that one number
// says what a store can do whatever its engine is.
package migrations
