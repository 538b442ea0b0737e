// Package replay drives a running broker with a trace of real LLM requests and
// then checks that nothing was lost: that the trace's own sums, the ledger and
// the broker's counters agree to the token, and that nothing is held any more.
//
// A trace says when a request came and how many tokens it read and generated
// ([trace.Reader]). A [Schedule] shrinks its time by a factor. Each request reserves
// what it might use, holds that for as long as its answer would have taken, and
// refunds with what it did use ([Run]). Some requests may be given to worker
// processes that are killed while they hold a reservation, or while a call of
// theirs is on its way: what became of those is learned from the broker.
// What was seen is [Evidence], and [Check] lists its gaps.
package replay
