package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/reservation/holdlab"
	"github.com/budgetd/budgetd/reservation/holdlab/traces"
)

// holdTraces are the two published traces, their lengths as published.
var holdTraces = []struct {
	name     string
	shape    traces.Shape
	requests int
}{{"code", traces.Code, 8819}, {"conv", traces.Conv, 19366}}

// maxHoldRequests bounds a trace, which is held in memory.
const maxHoldRequests = 1_000_000

const (
	holdMaxTokens = 1024
	holdBucket    = 60.0 // seconds of the rate
	holdTolerance = 0.5  // buckets
)

// holdTrace reads a trace of a folder, or generates one where there is none.
func holdTrace(o Options, i int) ([]holdlab.Call, error) {
	trace := holdTraces[i]
	if o.Traces == "" {
		var text bytes.Buffer
		if err := traces.Generate(&text, trace.shape, o.Seed, trace.requests); err != nil {
			return nil, err
		}
		return holdCalls(&text, trace.name)
	}
	path := filepath.Join(o.Traces, trace.name+".csv")
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return holdCalls(file, path)
}

func holdCalls(in io.Reader, name string) ([]holdlab.Call, error) {
	var calls []holdlab.Call
	for reader := trace.NewReader(in, name); ; {
		request, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(calls) == maxHoldRequests {
			return nil, fmt.Errorf("%s has more than %d requests: cut it", name, maxHoldRequests)
		}
		calls = append(calls, holdlab.Call{At: request.At, Context: request.Context, Output: request.Generated})
	}
	if len(calls) < 2 || !calls[0].At.Before(calls[len(calls)-1].At) {
		return nil, fmt.Errorf("%s has no two requests at different instants", name)
	}
	return calls, nil
}

// runHolds replays both traces with each way of holding.
func runHolds(o Options) (*Report, error) {
	from := "generated in the shape of the published ones"
	if o.Traces != "" {
		from = "of " + o.Traces
	}
	r := &Report{Notes: []string{"The traces are " + from + "."}}
	for i, trace := range holdTraces {
		calls, err := holdTrace(o, i)
		if err != nil {
			return nil, err
		}
		if err := showHolds(r, trace.name, calls); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// showHolds adds what each way lets through of one trace, beside an oracle that
// holds exactly what a call will use.
func showHolds(r *Report, name string, calls []holdlab.Call) error {
	t := Table{
		Title: fmt.Sprintf("trace %s: %d calls, max_tokens %d, a bucket of %.0f s at half of what is offered; shares of what the oracle lets through, in %%",
			name, len(calls), holdMaxTokens, holdBucket),
		Header: []string{"way", "tokens", "requests", "overruns", "worst span over C + rT, % of C"},
	}
	chart := Chart{Title: "Trace " + name + ": requests that each way of holding lets through", X: "way", Y: "% of the oracle's"}
	var oracle holdlab.Result
	for _, way := range []holdlab.Way{holdlab.Oracle, holdlab.Maximum, holdlab.After, holdlab.Worst, holdlab.Learned} {
		setup := holdlab.Setup{Way: way, MaxTokens: holdMaxTokens, Bucket: holdBucket}
		if way == holdlab.Learned {
			setup.Tolerance = holdTolerance
		}
		result, err := holdlab.Run(calls, setup)
		if err != nil {
			return err
		}
		if way == holdlab.Oracle {
			oracle = result
		}
		tokens, requests := result.TokenShare(oracle), result.RequestShare(oracle)
		t.row(string(way), 100*tokens, 100*requests, result.Overruns, 100*result.Excess)
		chart.Bars = append(chart.Bars, Bar{string(way), 100 * requests})
		what := fmt.Sprintf("holds, %s, %s: ", name, way)
		switch way {
		case holdlab.After:
			r.checkAtLeast(what+"worst span over C + rT, % of C", 100*result.Excess, 1)
			continue
		case holdlab.Learned:
			r.checkAtLeast(what+"tokens, % of the oracle's", 100*tokens, 99.9)
			r.checkAtLeast(what+"requests, % of the oracle's", 100*requests, 99)
		}
		// Rates and levels are whole tokens: both round a little.
		r.checkAtMost(what+"worst span over C + rT, % of C", 100*result.Excess, 100*setup.Tolerance+0.01)
	}
	r.Tables, r.Charts = append(r.Tables, t), append(r.Charts, chart)
	return nil
}
