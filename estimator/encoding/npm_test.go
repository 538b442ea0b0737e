package encoding

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// What the npm package tiktoken counts, written by testdata/counts.mjs.
var (
	//go:embed testdata/counts.jsonl
	npmCounts []byte
	//go:embed testdata/points.json
	npmPoints []byte
)

type npmRow struct {
	Text   string
	Times  int
	Counts [4]int // as distinct
}

func npmRows(t testing.TB) (rows []npmRow) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(npmCounts))
	for lines.Scan() {
		var row npmRow
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil || len(rows) < 1500 {
		t.Fatalf("%d texts: %v", len(rows), err)
	}
	return rows
}

func TestCountsEqualNpm(t *testing.T) {
	for _, row := range npmRows(t) {
		text := strings.Repeat(row.Text, row.Times)
		for i, e := range distinct {
			if got := mustLoad(t, e).Count(text); got != row.Counts[i] {
				t.Errorf("%s: Count(%d times %+q) = %d, tiktoken says %d", e, row.Times, row.Text, got, row.Counts[i])
			}
		}
	}
}

// Every code point of the planes that are not all alike, so that every class of
// every pre-tokenizer is compared. p50k_base splits as r50k_base does.
func TestCountsEqualNpmOnEveryCharacter(t *testing.T) {
	const blockSize = 1024
	var blocks [][4]int
	if err := json.Unmarshal(npmPoints, &blocks); err != nil {
		t.Fatal(err)
	}
	if len(blocks) < 128 {
		t.Fatalf("%d blocks", len(blocks))
	}
	counters := []*Counter{mustLoad(t, O200kBase), mustLoad(t, CL100kBase), mustLoad(t, R50kBase)}
	for _, block := range blocks {
		first := block[0]
		var sums [3]int
		for i := range blockSize {
			if c := rune(first + i); c < 0xd800 || c > 0xdfff {
				text := strings.ReplaceAll("1%23 !%'s A%b%C %\n%  %'S%\u017f%!!", "%", string(c))
				for k, c := range counters {
					sums[k] += (i + 1) * c.Count(text)
				}
			}
		}
		if sums != [3]int(block[1:]) {
			t.Errorf("%s: the counts sum up to %v, tiktoken's to %v", fmt.Sprintf("%U to %U", first, first+blockSize-1), sums, block[1:])
		}
	}
}
