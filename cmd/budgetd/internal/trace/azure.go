package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Header is the first line of a trace, as Azure publishes it
// (https://github.com/Azure/AzurePublicDataset, LLM inference traces).
const Header = "TIMESTAMP,ContextTokens,GeneratedTokens"

// TimeLayout is how a trace writes an instant: UTC, to 100 ns.
const TimeLayout = "2006-01-02 15:04:05.0000000"

// MaxRequestTokens bounds each count of a line. No model reads or writes as
// many in one call, and sums of millions of lines stay far below 2^63.
const MaxRequestTokens = 100_000_000

// maxLineBytes bounds a line: an instant and two counts take 47 bytes.
const maxLineBytes = 256

// Request is one line of a trace.
type Request struct {
	Trace     int       // which of several traces, from 0
	Line      int64     // its line in the file; the header is line 1
	At        time.Time // when it came
	Context   int64     // tokens that it read, 0 to MaxRequestTokens
	Generated int64     // tokens that it wrote, 0 to MaxRequestTokens
}

// The assumed duration of a call, which a trace does not have: a fixed part and
// one for each generated token.
const (
	BaseDuration     = 500 * time.Millisecond
	DurationPerToken = 20 * time.Millisecond
)

// Duration is how long a call that generates so many tokens, at most
// MaxRequestTokens, is assumed to take.
func Duration(generated int64) time.Duration {
	return BaseDuration + time.Duration(generated)*DurationPerToken
}

// Tokens is all that the request used.
func (r Request) Tokens() int64 { return r.Context + r.Generated }

// Reader reads a trace line by line, in constant memory.
type Reader struct {
	name string
	in   *bufio.Reader
	line int64
	last time.Time
	done bool
}

// NewReader makes a Reader. name is what errors call the trace.
func NewReader(in io.Reader, name string) *Reader {
	return &Reader{name: name, in: bufio.NewReaderSize(in, maxLineBytes)}
}

// Next returns the next request, or io.EOF after the last. Any other error
// names the trace and the line, and is final.
//
// The format is strict: the header, then three columns without quotes or
// spaces; lines end in LF or CRLF, the last may end without; instants with
// seven decimals that never go back; whole numbers without sign or leading
// zeros. A trace has at least one request.
func (r *Reader) Next() (Request, error) {
	if r.done {
		return Request{}, io.EOF
	}
	if r.line == 0 {
		header, err := r.readLine()
		if err == io.EOF {
			return Request{}, r.fault("is empty; want the header %s", Header)
		}
		if err != nil {
			return Request{}, err
		}
		if header != Header {
			return Request{}, r.fault("is %q; want the header %s", header, Header)
		}
	}
	text, err := r.readLine()
	if err == io.EOF {
		r.done = true
		if r.line == 1 {
			return Request{}, r.fault("has no request after it")
		}
		return Request{}, io.EOF
	}
	if err != nil {
		return Request{}, err
	}
	return r.parse(text)
}

// readLine returns a line without its end; io.EOF when there is none.
func (r *Reader) readLine() (string, error) {
	text, err := r.in.ReadSlice('\n')
	if len(text) == 0 && err == io.EOF {
		return "", io.EOF
	}
	r.line++
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", r.fault("is longer than %d bytes", maxLineBytes-1)
	case err != nil && err != io.EOF:
		r.done = true
		return "", fmt.Errorf("%s:%d: %w", r.name, r.line, err)
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	return string(bytes.TrimSuffix(text, []byte("\r"))), nil
}

func (r *Reader) fault(format string, args ...any) error {
	r.done = true
	return fmt.Errorf("%s:%d: %s", r.name, max(r.line, 1), fmt.Sprintf(format, args...))
}

func (r *Reader) parse(text string) (Request, error) {
	columns := bytes.Split([]byte(text), []byte(","))
	if len(columns) != 3 {
		return Request{}, r.fault("has %d columns; want 3: %s", len(columns), Header)
	}
	request := Request{Line: r.line}
	stamp := string(columns[0])
	at, err := time.Parse(TimeLayout, stamp)
	// time.Parse takes a few other forms too, such as a comma for the point.
	if err != nil || at.Format(TimeLayout) != stamp {
		return Request{}, r.fault("TIMESTAMP %q is not an instant with seven decimals, such as 2023-11-16 18:17:03.9799600", stamp)
	}
	if at.Before(r.last) {
		return Request{}, r.fault("TIMESTAMP %q is before the one of the line above; sort the trace", stamp)
	}
	request.At, r.last = at, at
	for i, column := range []struct {
		name string
		to   *int64
	}{{"ContextTokens", &request.Context}, {"GeneratedTokens", &request.Generated}} {
		value := string(columns[i+1])
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != value || n < 0 || n > MaxRequestTokens {
			return Request{}, r.fault("%s %q is not a whole number from 0 to %d", column.name, value, MaxRequestTokens)
		}
		*column.to = n
	}
	return request, nil
}
