package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxLineBytes bounds a line of recorded calls, its end included.
const MaxLineBytes = 1 << 20

// LineError is a fault in one line: it can be left out, and the next be read.
type LineError struct {
	File    string
	Line    int64  // 0: a reservation of a ledger, which File names
	Field   string // of the line; "" for the line as a whole
	Problem string // what is wrong, the bound and what to do
}

// Error says where the fault is and what it is.
func (e *LineError) Error() string {
	if e.Line == 0 { // a ledger has none
		return fmt.Sprintf("%s: %s", e.File, strings.TrimPrefix(e.Field+" "+e.Problem, " "))
	}
	if e.Field == "" {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
	}
	return fmt.Sprintf("%s:%d: %s %s", e.File, e.Line, e.Field, e.Problem)
}

// lines reads a file line by line, in constant memory.
type lines struct {
	in *bufio.Reader
	n  int64 // lines so far
}

var errLongLine = errors.New("long line")

// next returns a line without its LF or CRLF, which is good until the next
// call; io.EOF after the last. A line above MaxLineBytes is errLongLine, and is
// passed over.
func (l *lines) next() ([]byte, error) {
	text, err := l.in.ReadSlice('\n')
	if len(text) == 0 && err == io.EOF {
		return nil, io.EOF
	}
	l.n++
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.in.ReadSlice('\n')
		}
		if err == nil || err == io.EOF {
			return nil, errLongLine
		}
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r")), nil
}

// source is a file of lines of which each is a call.
type source struct {
	name string
	lines
}

func newSource(in io.Reader, name string) source {
	return source{name: name, lines: lines{in: bufio.NewReaderSize(in, MaxLineBytes)}}
}

// next is lines.next with errors that name the file and the line.
func (s *source) next() ([]byte, error) {
	text, err := s.lines.next()
	switch {
	case err == nil || err == io.EOF:
		return text, err
	case err == errLongLine:
		return nil, s.fault("", "is longer than %d bytes", MaxLineBytes)
	}
	return nil, fmt.Errorf("%s:%d: %w", s.name, s.n, err)
}

func (s *source) fault(field, format string, args ...any) error {
	return &LineError{File: s.name, Line: max(s.n, 1), Field: field, Problem: fmt.Sprintf(format, args...)}
}
