// Package reports measures how long reports take in a large ledger on
// PostgreSQL. It generates closings with all that belongs to them in SQL, as
// many as told to, rolls up their deltas with the ledger's own Maintain, and
// asks for typical reports with the ledger's own Report:
//
//	go test ./test/bench/reports -run '^$' -bench . -benchtime 5x -args -closings 2000000 -plans
//
// docs/reports.md has the figures.
package reports
