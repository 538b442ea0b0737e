package trace

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"strings"
)

// maxColumns bounds the columns of a line: every field, and as many labels and
// meters as a call may have.
const maxColumns = 128

// CSV reads calls from a file with a header: the columns of [Fields], in any
// order, or those of the traces that Azure publishes. A quoted value may not
// have a line break in it. A blank line is passed over. Next tells of a faulty
// header with an error that is final.
type CSV struct {
	source
	fields []field
	parts  []string
	failed error
}

// NewCSV makes a reader. name is what errors call the file.
func NewCSV(in io.Reader, name string) *CSV { return &CSV{source: newSource(in, name)} }

// Next implements Calls.
func (r *CSV) Next() (Call, error) {
	if r.failed != nil {
		return Call{}, r.failed
	}
	if r.fields == nil {
		if err := r.header(); err != nil {
			r.failed = err
			return Call{}, err
		}
	}
	if err := r.record(); err != nil {
		var line *LineError
		if !errors.As(err, &line) {
			r.failed = err
		}
		return Call{}, err
	}
	if len(r.parts) != len(r.fields) {
		return Call{}, r.fault("", "has %d columns; the header has %d", len(r.parts), len(r.fields))
	}
	call := Call{File: r.name, Line: r.n}
	var e ending
	for i := range r.fields {
		if err := call.set(&r.fields[i], r.parts[i], &e); err != nil {
			return Call{}, r.fault(r.fields[i].name, "%v", err)
		}
	}
	if name, err := call.finish(&e); err != nil {
		return Call{}, r.fault(name, "%v", err)
	}
	return call, nil
}

// record reads the columns of the next line that is not blank.
func (r *CSV) record() error {
	for {
		line, err := r.next()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			continue
		}
		text := string(line)
		if bytes.IndexByte(line, '"') < 0 {
			r.parts = r.parts[:0]
			for len(r.parts) < maxColumns {
				part, rest, more := strings.Cut(text, ",")
				r.parts = append(r.parts, part)
				if !more {
					return nil
				}
				text = rest
			}
			return r.fault("", "has more than %d columns", maxColumns)
		}
		quoted := csv.NewReader(strings.NewReader(text))
		if r.parts, err = quoted.Read(); err != nil {
			var fault *csv.ParseError
			if errors.As(err, &fault) {
				err = fault.Err
			}
			return r.fault("", "is not a line of CSV: %v", err)
		}
		return nil
	}
}

func (r *CSV) header() error {
	fatal := func(err error) error { return &HeaderError{err} }
	err := r.record()
	if err == io.EOF {
		return fatal(r.fault("", "is empty; the first line names the columns: %s", Fields))
	}
	if err != nil {
		return fatal(err)
	}
	seen := map[fieldKind]string{}
	keys := map[string]bool{}
	for i, name := range r.parts {
		if i == 0 {
			name = strings.TrimPrefix(name, "\ufeff") // as spreadsheets write it
		}
		f, err := fieldOf(name)
		if err != nil {
			return fatal(r.fault("column", "%q %v", shorten(name), err))
		}
		if before := seen[f.kind]; before != "" && f.key == "" || keys[name] {
			return fatal(r.fault("column", "%q is there twice; leave one out", shorten(name)))
		}
		seen[f.kind], keys[name] = name, true
		r.fields = append(r.fields, f)
	}
	if seen[fieldTime] == "" {
		r.fields = nil
		return fatal(r.fault("column", "time is missing; the first line names the columns: %s", Fields))
	}
	return nil
}

// HeaderError says that the first line of a file does not say what the others
// are: nothing of the file can be read.
type HeaderError struct{ err error }

// Error is that of the line.
func (e *HeaderError) Error() string { return e.err.Error() }
