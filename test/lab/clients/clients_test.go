package clients

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
)

// TestTable prints what make clients-table shows, and holds docs/pacing.md to it.
func TestTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table bytes.Buffer
		Head(&table)
		results := map[string]Result{}
		for _, way := range Ways {
			result, err := Run(t.Context(), way, 1)
			if err != nil {
				t.Fatal(err)
			}
			results[way] = result
			fmt.Fprintln(&table, result.Row(way))
		}
		fmt.Print(table.String())
		page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "pacing.md"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(page, table.Bytes()) {
			t.Error("docs/pacing.md has another table")
		}
		atOnce, polite, paced, throttled := results[Ways[0]], results[Ways[1]], results[Ways[2]], results[Ways[3]]
		if atOnce.Sent != 155 || atOnce.Refused != 150 || atOnce.Done != 5 {
			t.Errorf("at once: %+v", atOnce)
		}
		if polite.Sent != 35 || polite.Done != Requests {
			t.Errorf("with Retry-After: %+v", polite)
		}
		if paced.Sent != Requests || paced.Refused != 0 || paced.Done != Requests || paced.Took >= polite.Took {
			t.Errorf("paced: %+v, with Retry-After %v", paced, polite.Took)
		}
		if throttled.Sent >= atOnce.Sent/2 {
			t.Errorf("throttled: %+v", throttled)
		}
	})
}
