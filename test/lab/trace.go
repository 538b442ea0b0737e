package lab

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/budgetd/budgetd/reservation/holdlab"
	"github.com/budgetd/budgetd/reservation/holdlab/traces"
)

// published is where the published traces are, beside the repository.
const published = "shared/data/azure-llm-2023"

// Trace reads a published trace ("code" or "conv") from a folder beside the
// repository, or generates one of its shape where there is none. from says which.
func Trace(name string) (calls []holdlab.Call, from string, err error) {
	folder, err := os.Getwd()
	if err != nil {
		return nil, "", err
	}
	for ; ; folder = filepath.Dir(folder) {
		text, err := os.ReadFile(filepath.Join(folder, published, name+".csv"))
		if err == nil {
			calls, err = parse(bytes.NewReader(text))
			return calls, "published", err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, "", err
		}
		if folder == filepath.Dir(folder) {
			break
		}
	}
	shape, requests := traces.Code, 8819
	if name == "conv" {
		shape, requests = traces.Conv, 19366
	}
	var text bytes.Buffer
	if err := traces.Generate(&text, shape, 1, requests); err != nil {
		return nil, "", err
	}
	calls, err = parse(&text)
	return calls, "generated", err
}

func parse(text io.Reader) ([]holdlab.Call, error) {
	rows, err := csv.NewReader(text).ReadAll()
	if err != nil {
		return nil, err
	}
	var calls []holdlab.Call
	for i, row := range rows[min(1, len(rows)):] {
		if len(row) != 3 {
			return nil, fmt.Errorf("row %d has %d columns, not 3", i+1, len(row))
		}
		at, err := time.Parse("2006-01-02 15:04:05.0000000", row[0])
		read, err2 := strconv.ParseInt(row[1], 10, 64)
		written, err3 := strconv.ParseInt(row[2], 10, 64)
		if err := errors.Join(err, err2, err3); err != nil {
			return nil, fmt.Errorf("row %d: %w", i+1, err)
		}
		calls = append(calls, holdlab.Call{At: at, Context: read, Output: written})
	}
	if len(calls) < 2 {
		return nil, errors.New("a trace needs two calls")
	}
	return calls, nil
}
