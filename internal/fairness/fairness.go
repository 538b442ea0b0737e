// Package fairness measures how alike those who share a limit are served.
package fairness

import (
	"cmp"
	"slices"
)

// MaxMin returns the max-min share of each of what there is, in the unit of both: who
// asks for less than an equal part of what is left gets that, and leaves the rest to
// the others.
func MaxMin(asked []float64, there float64) []float64 {
	order := make([]int, len(asked))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(asked[a], asked[b]) })
	shares := make([]float64, len(asked))
	for i, one := range order {
		shares[one] = min(asked[one], there/float64(len(order)-i))
		there -= shares[one]
	}
	return shares
}

// Jain returns Jain's index of what each got of its share (R. Jain, D. Chiu and W. Hawe,
// "A quantitative measure of fairness and discrimination", 1984): 1 where all got the
// same part, 1/n where one of n got all. Shares are above 0.
func Jain(got, shares []float64) float64 {
	var sum, squares float64
	for i := range got {
		part := got[i] / shares[i]
		sum += part
		squares += part * part
	}
	return sum * sum / (float64(len(got)) * squares)
}
