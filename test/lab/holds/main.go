// Command holds prints what each way of holding lets through: see docs/holds.md.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/budgetd/budgetd/reservation/holdlab"
	"github.com/budgetd/budgetd/test/lab"
)

func main() {
	quantile := flag.Float64("quantile", 0, "of the forecast, above 0 and below 1; 0 is the learner's own")
	url := flag.String("redis", "", "address of a Redis to run on, redis://HOST:PORT/DB; without it the engine is in memory")
	flag.Parse()
	if err := run(*quantile, *url); err != nil {
		fmt.Fprintln(os.Stderr, "holds:", err)
		os.Exit(1)
	}
}

func run(quantile float64, url string) error {
	var engine holdlab.Engines
	if url != "" {
		var err error
		if engine, err = lab.OnRedis(url); err != nil {
			return err
		}
	}
	return lab.Table(os.Stdout, quantile, engine)
}
