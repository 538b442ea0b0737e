package backtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/backtest"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/holdlab/traces"
	"github.com/budgetd/budgetd/reservation/memstore"
)

// equalPolicy has every kind of limit, each tight enough to refuse some calls of
// one of the traces.
const equalPolicy = `
plans:
  pro:
    limits:
      - {name: tokens, meter: tokens, rate: 400000/min, burst: 40000}
      - {name: output, meter: output_tokens, rate: 50000/min, burst: 12000, hold: forecast, tolerance: 4000}
      - {name: in-flight, meter: in_flight, max: 22}
    quotas:
      - {name: spend, meter: cost, amount: $30, period: day}
pools:
  provider: {meter: requests, rate: 240/min, burst: 20, match: {provider: openai}}
accounts:
  acme: {plan: pro, time_zone: Asia/Tokyo}
`

const (
	equalModel  = "gpt-4o"
	equalOutput = 1024
)

// published finds a published trace beside the repository, or makes one of its
// shape.
func published(t *testing.T, name string) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		path := filepath.Join(folder, "shared", "data", "azure-llm-2023", name+".csv")
		if _, err := os.Stat(path); err == nil {
			return path
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	shape, requests := traces.Code, 8819
	if name == "conv" {
		shape, requests = traces.Conv, 19366
	}
	var text bytes.Buffer
	if err := traces.Generate(&text, shape, 1, requests); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".csv")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// firstLines is a file that has no more lines of another than those.
func firstLines(t *testing.T, path string, most int) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfterN(text, []byte("\n"), most+1)
	if len(lines) <= most {
		return path
	}
	cut := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(cut, bytes.Join(lines[:most], nil), 0o600); err != nil {
		t.Fatal(err)
	}
	return cut
}

// told are the answers of a run, one a line, as both kinds of run put them.
type told struct {
	lines   []string
	granted []int64        // lines of the trace
	refused map[string]int // by limit
}

func (l *told) grant(line int64, holds []*budgetv1.Hold) {
	l.granted = append(l.granted, line)
	l.lines = append(l.lines, fmt.Sprintf("line %d: granted%s", line, showHolds(holds)))
}

func (l *told) refusal(line int64, r *budgetv1.Refusal) {
	l.refused[r.Limit]++
	l.lines = append(l.lines, fmt.Sprintf("line %d: refused, %s %s%s %s asked %d of %d, %d remain, retry %s, resets %s",
		line, r.Reason, r.Limit, r.Pool, r.Meter, r.Asked, r.LimitAmount, r.Remaining, showStamp(r.RetryAt), showStamp(r.ResetsAt)))
}

func (l *told) receipt(line int64, charged, back, over map[string]int64, late bool, holds []*budgetv1.Hold) {
	l.lines = append(l.lines, fmt.Sprintf("line %d: charged %v, back %v, over %v, late %v%s", line, charged, back, over, late, showHolds(holds)))
}

func showHolds(holds []*budgetv1.Hold) string {
	var b strings.Builder
	for _, h := range holds {
		fmt.Fprintf(&b, "; %s%s %s took %d, %d remain, resets %s", h.Limit, h.Pool, h.Meter, h.Amount, h.GetRemaining(), showStamp(h.ResetsAt))
	}
	return b.String()
}

func showStamp(at *timestamppb.Timestamp) string {
	if at == nil {
		return "-"
	}
	return at.AsTime().Format("15:04:05.000000")
}

// backtested runs the file through the product's command room.
func backtested(t *testing.T, path string) *told {
	t.Helper()
	document, err := policyfile.Parse([]byte(equalPolicy))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := document.Policy(1)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := trace.OpenFiles([]string{path}, trace.FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	return watched(t, calls, policy)
}

// watched are the answers to calls.
func watched(t *testing.T, calls trace.Calls, policy *quota.Policy) *told {
	t.Helper()
	l := &told{refused: map[string]int{}}
	_, err := backtest.Run(context.Background(), calls, backtest.Options{
		Plans:    []backtest.Plan{{Name: "equal", Policy: policy}},
		Defaults: backtest.Defaults{Account: "acme", Model: equalModel, MaxOutput: equalOutput},
		Watch: func(s backtest.Step) {
			switch {
			case s.Receipt != nil:
				r := s.Receipt
				l.receipt(s.Call.Line, amounts(r.Charged), amounts(r.GivenBack), amounts(r.Overrun), r.Late, protoHolds(r.Holds))
			case s.Decision.Grant != nil:
				l.grant(s.Call.Line, protoHolds(s.Decision.Grant.Holds))
			default:
				l.refusal(s.Call.Line, protoRefusal(s.Decision.Refusal))
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// replayed sends the file's calls to a broker, at the same instants, in an order
// that it finds by itself.
func replayed(t *testing.T, path string, r *running) *told {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l := &told{refused: map[string]int{}}
	type open struct {
		id      string
		ends    time.Time
		request trace.Request
	}
	var under []open // by end
	refund := func() {
		o := under[0]
		under = under[1:]
		r.clock.set(o.ends)
		response, err := r.Refund(context.Background(), connect.NewRequest(&budgetv1.RefundRequest{ReservationId: o.id, Usage: &budgetv1.Usage{
			Tokens: &budgetv1.TokenClasses{Input: &o.request.Context, Output: &o.request.Generated},
		}}))
		if err != nil {
			t.Fatalf("line %d: Refund: %v", o.request.Line, err)
		}
		<-r.confirmed
		m := response.Msg
		l.receipt(o.request.Line, m.Charged, m.GivenBack, m.Overrun, m.Late, m.Holds)
	}
	reader := trace.NewReader(file, path)
	for {
		request, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at := request.At.Truncate(time.Microsecond)
		for len(under) > 0 && !under[0].ends.After(at) {
			refund()
		}
		r.clock.set(at)
		takes := 500*time.Millisecond + 20*time.Millisecond*time.Duration(request.Generated)
		input, output := request.Context, int64(equalOutput)
		response, err := r.Reserve(context.Background(), connect.NewRequest(&budgetv1.ReserveRequest{
			Account: "acme", Lease: durationpb.New(max(time.Minute, takes+time.Second)),
			Llm: &budgetv1.LlmCall{Model: equalModel, InputTokens: &input, MaxOutputTokens: &output},
		}))
		if err != nil {
			l.refusal(request.Line, refusalOf(t, request.Line, err))
			continue
		}
		l.grant(request.Line, response.Msg.Holds)
		o := open{response.Msg.ReservationId, at.Add(takes), request}
		i, _ := slices.BinarySearchFunc(under, o, func(a, b open) int {
			if !a.ends.After(b.ends) {
				return -1 // of equal ends the first reserved ends first
			}
			return 1
		})
		under = slices.Insert(under, i, o)
	}
	for len(under) > 0 {
		refund()
	}
	return l
}

func refusalOf(t *testing.T, line int64, err error) *budgetv1.Refusal {
	t.Helper()
	var fault *connect.Error
	if errors.As(err, &fault) {
		for _, detail := range fault.Details() {
			value, err := detail.Value()
			if refusal, ok := value.(*budgetv1.Refusal); err == nil && ok {
				return refusal
			}
		}
	}
	t.Fatalf("line %d: Reserve: %v", line, err)
	return nil
}

// TestEqualsARunningBroker: request by request, and Refund by Refund, a backtest
// answers what a running broker does, on either engine.
func TestEqualsARunningBroker(t *testing.T) {
	engines := map[string]func(*testing.T, func() time.Time) reservation.Store{
		"memory": func(t *testing.T, clock func() time.Time) reservation.Store {
			store, err := memstore.New(memstore.Config{Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			return store
		},
		"redis": onRedis,
	}
	refused := map[string]int{}
	for _, name := range []string{"code", "conv"} {
		path := firstLines(t, published(t, name), 1+equalRequests)
		want := backtested(t, path)
		for limit, n := range want.refused {
			refused[limit] += n
		}
		t.Logf("%s: %d answers, refused by limit: %v", path, len(want.lines), want.refused)
		for engine, open := range engines {
			t.Run(name+" on "+engine, func(t *testing.T) {
				t.Parallel()
				got := replayed(t, path, runBroker(t, equalPolicy, open))
				for i := range min(len(got.lines), len(want.lines)) {
					if got.lines[i] != want.lines[i] {
						t.Fatalf("answer %d of the running broker:\n%s\nof the backtest:\n%s", i, got.lines[i], want.lines[i])
					}
				}
				if len(got.lines) != len(want.lines) {
					t.Fatalf("%d answers of the running broker, %d of the backtest", len(got.lines), len(want.lines))
				}
			})
		}
	}
	for _, limit := range []string{"tokens", "output", "in-flight", "spend", "provider"} {
		if refused[limit] == 0 && equalRequests > 20_000 {
			t.Errorf("%s refused nothing: %v; the test shows too little", limit, refused)
		}
	}
}
