package trace

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// MaxFiles bounds the files that are read as one.
const MaxFiles = 256

// Files are recorded calls in files, read as one, in the order of time; of
// calls at one instant those of the first file come first.
type Files struct {
	readers []Calls
	heads   []*Call // the next of each reader; nil: it is to be read
	ended   []bool
	opened  []*os.File
}

// FilesOptions say how files are read.
type FilesOptions struct {
	// Lateness is how far a call may be behind one that is above it in its file;
	// see Order.
	Lateness time.Duration
	// Read is told of bytes that were read, those of a compressed file as they are
	// on disk; nil: nobody.
	Read func(bytes int)
}

// The ends of names that say what a file is.
const (
	csvName   = ".csv"
	jsonlName = ".jsonl"
	ndName    = ".ndjson"
	gzipName  = ".gz"
)

// FileKinds says in words which files are read.
const FileKinds = "NAME.csv, NAME.jsonl or NAME.ndjson, or one of them as .gz"

// OpenFiles opens 1 to MaxFiles files. Close them.
func OpenFiles(paths []string, options FilesOptions) (_ *Files, err error) {
	if len(paths) == 0 || len(paths) > MaxFiles {
		return nil, fmt.Errorf("%d files are named; state 1 to %d", len(paths), MaxFiles)
	}
	f := &Files{heads: make([]*Call, len(paths)), ended: make([]bool, len(paths))}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		f.opened = append(f.opened, file)
		calls, err := readerOf(file, path, options.Read)
		if err != nil {
			return nil, err
		}
		f.readers = append(f.readers, Order(calls, options.Lateness))
	}
	return f, nil
}

func readerOf(file io.Reader, path string, read func(int)) (Calls, error) {
	if read != nil {
		file = &countingReader{file, read}
	}
	kind := strings.ToLower(filepath.Ext(path))
	if kind == gzipName {
		unpacked, err := gzip.NewReader(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		file, kind = unpacked, strings.ToLower(filepath.Ext(strings.TrimSuffix(path, filepath.Ext(path))))
	}
	switch kind {
	case csvName:
		return NewCSV(file, path), nil
	case jsonlName, ndName:
		return NewJSONLines(file, path), nil
	}
	return nil, fmt.Errorf("%s: its name does not say what it is; name it %s", path, FileKinds)
}

type countingReader struct {
	from io.Reader
	read func(int)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.read(n)
	return n, err
}

// Next implements Calls.
func (f *Files) Next() (Call, error) {
	first := -1
	for i := range f.readers {
		if f.heads[i] == nil && !f.ended[i] {
			call, err := f.readers[i].Next()
			if err == io.EOF {
				f.ended[i] = true
				continue
			}
			if err != nil {
				return Call{}, err
			}
			f.heads[i] = &call
		}
		if f.heads[i] != nil && (first < 0 || f.heads[i].At.Before(f.heads[first].At)) {
			first = i
		}
	}
	if first < 0 {
		return Call{}, io.EOF
	}
	call := *f.heads[first]
	f.heads[first] = nil
	return call, nil
}

// Close closes the files.
func (f *Files) Close() error {
	var errs []error
	for _, file := range f.opened {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// Size is how many bytes the files have on disk.
func (f *Files) Size() (bytes int64, err error) {
	for _, file := range f.opened {
		info, err := file.Stat()
		if err != nil {
			return 0, err
		}
		bytes += info.Size()
	}
	return bytes, nil
}
