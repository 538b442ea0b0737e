package traces

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// columns reads a trace's three columns, the first as gaps in units of 100 ns.
func columns(t *testing.T, text string) (gaps, context, generated []int64) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(rows[0], ",") != "TIMESTAMP,ContextTokens,GeneratedTokens" {
		t.Fatalf("header %q", rows[0])
	}
	var before time.Time
	for i, row := range rows[1:] {
		at, err := time.Parse("2006-01-02 15:04:05.0000000", row[0])
		if err != nil || len(row[0]) != 27 {
			t.Fatalf("row %d: instant %q: %v", i, row[0], err)
		}
		if i > 0 {
			gaps = append(gaps, int64(at.Sub(before)/100))
		}
		before = at
		for j, to := range []*[]int64{&context, &generated} {
			n, err := strconv.ParseInt(row[j+1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			*to = append(*to, n)
		}
	}
	return gaps, context, generated
}

func quantilesOf(values []int64) Quantiles {
	sorted := slices.Sorted(slices.Values(values))
	var q Quantiles
	for i, p := range levels {
		q[i] = sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
	}
	return q
}

func generate(t *testing.T, shape Shape, seed uint64, requests int) string {
	t.Helper()
	var b bytes.Buffer
	if err := Generate(&b, shape, seed, requests); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTraceIsRepeatable(t *testing.T) {
	once := generate(t, Conv, 7, 100)
	if again := generate(t, Conv, 7, 100); again != once {
		t.Error("the same seed wrote two traces")
	}
	if other := generate(t, Conv, 8, 100); other == once {
		t.Error("two seeds wrote the same trace")
	}
}

// A generated trace must have the distribution that it says. With 50,000 draws
// the share below a quantile is off by more than 0.01 with a probability below
// 1e-5 at any level (four standard deviations are 0.009 at the median).
func TestTraceHasItsShape(t *testing.T) {
	for name, shape := range map[string]Shape{"code": Code, "conv": Conv} {
		gaps, context, generated := columns(t, generate(t, shape, 1, 50_000))
		for column, c := range map[string]struct {
			values []int64
			want   Quantiles
		}{"gap": {gaps, shape.Gap}, "context": {context, shape.Context}, "generated": {generated, shape.Generated}} {
			for i, p := range levels[1 : len(levels)-1] {
				below, upTo := 0, 0
				for _, v := range c.values {
					if v < c.want[i+1] {
						below++
					}
					if v <= c.want[i+1] {
						upTo++
					}
				}
				n := float64(len(c.values))
				if float64(below)/n > p+0.01 || float64(upTo)/n < p-0.01 {
					t.Errorf("%s: %s: %.4f to %.4f of the values are below or at the quantile of %v", name, column, float64(below)/n, float64(upTo)/n, p)
				}
			}
			if lowest, highest := slices.Min(c.values), slices.Max(c.values); lowest < c.want[0] || highest > c.want[len(levels)-1] {
				t.Errorf("%s: %s: from %d to %d, want within %d to %d", name, column, lowest, highest, c.want[0], c.want[len(levels)-1])
			}
		}
	}
}

// Where the published traces lie beside the repository, the quantiles are
// checked against them; elsewhere against what a generated trace comes to.
func TestQuantilesAreThoseOfTheTraces(t *testing.T) {
	for name, shape := range map[string]Shape{"code": Code, "conv": Conv} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "data", "azure-llm-2023", name+".csv"))
		if errors.Is(err, fs.ErrNotExist) {
			for _, q := range []Quantiles{shape.Gap, shape.Context, shape.Generated} {
				if !slices.IsSorted(q[:]) || q[0] < 0 {
					t.Errorf("%s: quantiles %v go down or below zero", name, q)
				}
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		gaps, context, generated := columns(t, string(text))
		got := Shape{Gap: quantilesOf(gaps), Context: quantilesOf(context), Generated: quantilesOf(generated)}
		if got != shape {
			t.Errorf("%s: the published trace has %v, the table %v", name, got, shape)
		}
	}
}
