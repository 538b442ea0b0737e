package replay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
)

// Traces are several traces read as one, in order of their instants.
type Traces struct {
	readers []*trace.Reader
	heads   []*trace.Request // the next of each reader; nil: it has ended
	files   []*os.File
	left    int64
}

// OpenTraces opens files. most is how many requests are read in all; 0: every
// one.
func OpenTraces(paths []string, most int64) (_ *Traces, err error) {
	t := &Traces{left: most}
	if most == 0 {
		t.left = -1
	}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		t.files = append(t.files, file)
		t.add(trace.NewReader(file, path))
	}
	for i := range t.readers {
		if err := t.advance(i); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *Traces) add(r *trace.Reader) {
	t.readers = append(t.readers, r)
	t.heads = append(t.heads, nil)
}

func (t *Traces) advance(i int) error {
	t.heads[i] = nil
	request, err := t.readers[i].Next()
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return err
	}
	request.Trace = i
	t.heads[i] = &request
	return nil
}

// Next returns the earliest request that is left, of the first trace where two
// came at once; io.EOF after the last.
func (t *Traces) Next() (trace.Request, error) {
	first := -1
	for i, head := range t.heads {
		if head != nil && (first < 0 || head.At.Before(t.heads[first].At)) {
			first = i
		}
	}
	if first < 0 || t.left == 0 {
		return trace.Request{}, io.EOF
	}
	if t.left > 0 {
		t.left--
	}
	request := *t.heads[first]
	return request, t.advance(first)
}

// Close closes the files.
func (t *Traces) Close() error {
	var errs []error
	for _, file := range t.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// Survey is what traces come to.
type Survey struct {
	Requests    int64
	Tokens      int64 // read and generated, all requests together
	First, Last time.Time
}

// Span is the time from the first request to the last.
func (s Survey) Span() time.Duration { return s.Last.Sub(s.First) }

// SurveyTraces reads traces to their end, so that a faulty line is found before
// anything is sent.
func SurveyTraces(paths []string, most int64) (Survey, error) {
	t, err := OpenTraces(paths, most)
	if err != nil {
		return Survey{}, err
	}
	defer t.Close()
	var s Survey
	for {
		request, err := t.Next()
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return Survey{}, err
		}
		if s.Requests == 0 {
			s.First = request.At
		}
		s.Last = request.At
		s.Requests++
		if s.Tokens, err = addTokens(s.Tokens, request.Tokens()); err != nil {
			return Survey{}, fmt.Errorf("the tokens of %d requests: %w", s.Requests, err)
		}
	}
}
