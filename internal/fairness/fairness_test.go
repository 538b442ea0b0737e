package fairness_test

import (
	"slices"
	"testing"

	"github.com/budgetd/budgetd/internal/fairness"
)

// Who asks for little gets it, and the others share what is left.
func TestMaxMin(t *testing.T) {
	for _, c := range []struct {
		asked []float64
		there float64
		want  []float64
	}{
		{[]float64{9, 1, 2}, 6, []float64{3, 1, 2}}, // what two leave goes to the third
		{[]float64{5, 5, 5}, 6, []float64{2, 2, 2}},
		{[]float64{1, 2}, 6, []float64{1, 2}}, // there is more than is asked for
		{nil, 6, nil},
		{[]float64{9000, 100, 300, 200}, 1000, []float64{400, 100, 300, 200}},
		{[]float64{9000, 900, 100}, 1000, []float64{450, 450, 100}},
		{[]float64{10, 20}, 1000, []float64{10, 20}},
	} {
		if got := fairness.MaxMin(c.asked, c.there); !slices.Equal(got, c.want) {
			t.Errorf("of %v that ask for %v: %v, want %v", c.there, c.asked, got, c.want)
		}
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		got, shares []float64
		want        float64
	}{
		{[]float64{2, 4}, []float64{1, 2}, 1},
		{[]float64{3, 0, 0, 0}, []float64{1, 1, 1, 1}, 0.25},
		{[]float64{1, 3}, []float64{1, 1}, 0.8},
		{[]float64{1, 0, 0, 0}, []float64{1, 1, 1, 1}, 0.25},
		{[]float64{2, 2, 2}, []float64{1, 1, 1}, 1},
	} {
		if got := fairness.Jain(c.got, c.shares); got != c.want {
			t.Errorf("%v of %v: %v, want %v", c.got, c.shares, got, c.want)
		}
	}
}
