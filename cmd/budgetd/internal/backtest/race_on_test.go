//go:build race

package backtest_test

// equalRequests is how many requests of each trace are compared. The race
// detector takes ten times as long: the whole of them is for a run without it.
const equalRequests = 600

// memoryRequests is how many calls take as much memory as ten times as many.
const memoryRequests = 1000
