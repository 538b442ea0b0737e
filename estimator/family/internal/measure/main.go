// Command measure makes the figures of package family. It is run in that
// package's directory.
//
//	measure corpus   writes the corpus for testdata/truth/count.mjs to read
//	measure table    makes measured.json from testdata/counts.tsv
//
// After a change of the corpus or of a tokenizer's version:
//
//	(cd testdata/truth && npm ci)
//	go run ./internal/measure corpus | node testdata/truth/count.mjs > testdata/counts.tsv
//	go generate
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

const (
	countsFile   = "testdata/counts.tsv"
	measuredFile = "measured.json"
)

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("want one of corpus and table")
	}
	switch args[0] {
	case "corpus":
		return writeCorpus(out)
	case "table":
		counts, err := readCounts(countsFile)
		if err != nil {
			return err
		}
		data, err := table(counts)
		if err != nil {
			return err
		}
		return os.WriteFile(measuredFile, data, 0o644)
	default:
		return fmt.Errorf("%q: want one of corpus and table", args[0])
	}
}

// table measures all rules.
func table(c counts) ([]byte, error) {
	rows, err := measure(c)
	if err != nil {
		return nil, err
	}
	// One row a line: the file is read by people in reviews.
	var b bytes.Buffer
	for i, row := range rows {
		line, err := json.Marshal(row)
		if err != nil {
			return nil, err
		}
		b.WriteString(map[bool]string{true: "[\n", false: ",\n"}[i == 0])
		b.Write(line)
	}
	b.WriteString("\n]\n")
	return b.Bytes(), nil
}
