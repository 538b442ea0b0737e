package backtest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/backtest"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota/policyfile"
)

// stream writes calls of the traces' shape as they are read: about 40 are under
// way at once.
func stream(requests int, form string) io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		w := bufio.NewWriterSize(in, 64<<10)
		if form == "csv" {
			fmt.Fprintln(w, trace.Header)
		}
		at := time.Date(2023, 11, 16, 18, 0, 0, 0, time.UTC)
		for i := range requests {
			at = at.Add(time.Duration(50+i*7919%500) * time.Millisecond)
			input, output := 100+i*6151%4000, 10+i*3571%500
			var err error
			if form == "csv" {
				_, err = fmt.Fprintf(w, "%s,%d,%d\n", at.Format(trace.TimeLayout), input, output)
			} else {
				_, err = fmt.Fprintf(w, `{"time":"%s","input":%d,"output":%d}`+"\n", at.Format(time.RFC3339Nano), input, output)
			}
			if err != nil { // nobody reads any more
				break
			}
		}
		in.CloseWithError(w.Flush())
	}()
	return out
}

func callsOf(in io.Reader, form string) trace.Calls {
	if form == "csv" {
		return trace.NewCSV(in, "calls")
	}
	return trace.NewJSONLines(in, "calls")
}

func equalOptions(tb testing.TB) backtest.Options {
	document, err := policyfile.Parse([]byte(equalPolicy))
	if err != nil {
		tb.Fatal(err)
	}
	policy, err := document.Policy(1)
	if err != nil {
		tb.Fatal(err)
	}
	return backtest.Options{
		Plans:    []backtest.Plan{{Name: "equal", Policy: policy}},
		Defaults: backtest.Defaults{Account: "acme", Model: equalModel, MaxOutput: equalOutput},
	}
}

// counted counts the bytes that were read.
type counted struct {
	io.Reader
	bytes int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += int64(n)
	return n, err
}

// BenchmarkRun is a whole backtest of one policy, on one core. It tells how much was
// read, and how much memory the process has taken from the system so far: with
// -benchtime=16300000x a gigabyte of JSON Lines is read.
func BenchmarkRun(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, form := range []string{"csv", "jsonl"} {
		b.Run(form, func(b *testing.B) {
			b.ReportAllocs()
			in := stream(b.N, form)
			defer in.Close()
			read := &counted{Reader: in}
			if _, err := backtest.Run(context.Background(), callsOf(read, form), equalOptions(b)); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			b.ReportMetric(float64(read.bytes)/1e6, "MB-read")
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/1e6, "MB-of-memory")
		})
	}
}

// BenchmarkRead reads calls and does nothing with them, on one core.
func BenchmarkRead(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, form := range []string{"csv", "jsonl"} {
		b.Run(form, func(b *testing.B) {
			b.ReportAllocs()
			in := stream(b.N, form)
			defer in.Close()
			calls := callsOf(in, form)
			for {
				if _, err := calls.Next(); err == io.EOF {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

// TestMemoryIsBounded: ten times as many calls take no more memory.
func TestMemoryIsBounded(t *testing.T) {
	most := func(requests int) uint64 {
		var peak atomic.Uint64
		o := equalOptions(t)
		steps := 0
		o.Watch = func(backtest.Step) {
			if steps++; steps%4000 != 0 {
				return
			}
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
		}
		in := stream(requests, "csv")
		defer in.Close()
		report, err := backtest.Run(context.Background(), callsOf(in, "csv"), o)
		if err != nil {
			t.Fatal(err)
		}
		if report.Offered.Requests != int64(requests) {
			t.Fatalf("%d calls were run, want %d", report.Offered.Requests, requests)
		}
		return peak.Load()
	}
	few, many := most(memoryRequests), most(10*memoryRequests)
	t.Logf("heap of %d calls: %d KiB at most; of %d: %d KiB", memoryRequests, few>>10, 10*memoryRequests, many>>10)
	if many > few+few/4+4<<20 {
		t.Errorf("%d calls take up to %d bytes, %d calls %d", memoryRequests, few, 10*memoryRequests, many)
	}
}
