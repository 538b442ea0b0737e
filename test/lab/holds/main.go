// Command holds prints what each way of holding lets through: see docs/holds.md.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/budgetd/budgetd/test/lab"
)

func main() {
	quantile := flag.Float64("quantile", 0, "of the forecast, above 0 and below 1; 0 is the learner's own")
	flag.Parse()
	if err := lab.Table(os.Stdout, *quantile); err != nil {
		fmt.Fprintln(os.Stderr, "holds:", err)
		os.Exit(1)
	}
}
