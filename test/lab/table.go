package lab

import (
	"fmt"
	"io"

	"github.com/budgetd/budgetd/reservation/holdlab"
)

// Tolerances of the table, in buckets.
var Tolerances = []float64{0, 0.25, 0.5, 1, 2, 4}

// Table writes what every way of holding lets through, as Markdown: both traces,
// two bounds, two buckets, and a forecast at each tolerance. A nil engine is in
// memory.
func Table(out io.Writer, quantile float64, engine holdlab.Engines) error {
	fmt.Fprintln(out, "| trace | max_tokens | bucket | way | tolerance | tokens | requests | by forecast | overruns | excess |")
	fmt.Fprintln(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, name := range []string{"code", "conv"} {
		calls, from, err := Trace(name)
		if err != nil {
			return err
		}
		for _, most := range []int64{1024, 4096} {
			for _, bucket := range []float64{10, 60} {
				oracle, err := holdlab.Run(calls, holdlab.Setup{Way: holdlab.Oracle, MaxTokens: most, Bucket: bucket, Engine: engine})
				if err != nil {
					return err
				}
				setups := []holdlab.Setup{{Way: holdlab.Oracle}, {Way: holdlab.Maximum}, {Way: holdlab.After}, {Way: holdlab.Worst}}
				for _, tolerance := range Tolerances {
					setups = append(setups, holdlab.Setup{Way: holdlab.Learned, Tolerance: tolerance, Quantile: quantile})
				}
				for _, s := range setups {
					s.MaxTokens, s.Bucket, s.Engine = most, bucket, engine
					r, err := holdlab.Run(calls, s)
					if err != nil {
						return err
					}
					fmt.Fprintln(out, row(name+", "+from, s, r, oracle))
				}
			}
		}
	}
	return nil
}

// row is one line of the table: tokens and requests as shares of the oracle's.
func row(trace string, s holdlab.Setup, r, oracle holdlab.Result) string {
	tolerance, forecast := "", ""
	if s.Way == holdlab.Learned {
		tolerance, forecast = fmt.Sprint(s.Tolerance), fmt.Sprint(r.Forecast)
	}
	return fmt.Sprintf("| %s | %d | %.0f s | %s | %s | %.4f | %.4f | %s | %d | %+.3f |", trace, s.MaxTokens, s.Bucket, s.Way, tolerance,
		r.TokenShare(oracle), r.RequestShare(oracle), forecast, r.Overruns, r.Excess)
}
