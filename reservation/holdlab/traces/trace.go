package traces

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// first is when generated traces begin: with the published ones.
var first = time.Date(2023, 11, 16, 18, 15, 46, 0, time.UTC)

// Generate writes a trace of so many requests. The same seed writes the same bytes.
// Like the published files its lines end in CRLF.
func Generate(out io.Writer, shape Shape, seed uint64, requests int) error {
	rng := rand.New(rand.NewPCG(seed, 0x7472616365))
	w := bufio.NewWriter(out)
	fmt.Fprint(w, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n")
	at := first
	for range requests {
		at = at.Add(time.Duration(shape.Gap.draw(rng)) * 100)
		fmt.Fprintf(w, "%s,%d,%d\r\n", at.Format("2006-01-02 15:04:05.0000000"), shape.Context.draw(rng), shape.Generated.draw(rng))
	}
	return w.Flush() // and any error of the lines before
}

// draw picks a value by inverting the distribution function that runs straight
// from quantile to quantile.
func (q *Quantiles) draw(rng *rand.Rand) int64 {
	p := rng.Float64()
	i := 1
	for p >= levels[i] { // the last level is 1, which p never reaches
		i++
	}
	share := (p - levels[i-1]) / (levels[i] - levels[i-1])
	return q[i-1] + int64(share*float64(q[i]-q[i-1]))
}
