// Package backtest runs recorded calls through a plan that is not in force, to
// tell whom it would have refused, when, and what that would have saved.
//
// It is the product's own Broker, on the engine in memory, under a clock that
// each call moves: every Reserve comes at its recorded instant, every Refund
// when the call ended, in the order of time. So its answers are those that a
// running broker would have given to the same calls at the same instants, and
// the same in every run. A call that is refused is gone: what its caller would
// have done then is not in a record.
package backtest
