//go:build !race

package backtest_test

const (
	equalRequests  = 1_000_000
	memoryRequests = 10_000
)
