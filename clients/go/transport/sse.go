package transport

import (
	"bytes"

	"github.com/budgetd/budgetd/estimator/answer"
)

// events splits a stream of server-sent events as the HTML standard says (9.2.6):
// lines end with LF, CR or CR LF, a blank line ends an event, data lines are
// joined with LF. Other fields than data are not looked at.
type events struct {
	line  []byte // the current line so far
	data  []byte // the event's data lines
	lines int    // data lines of the event
	begun bool   // the event has a line that is no comment

	written  bool // the current line has bytes
	overlong bool // the event is over answer.MaxEventBytes: what it says is given up
	skipLF   bool // a CR ended the last line: an LF belongs to it
}

// next consumes p up to the end of an event or of a comment between events, or all
// of it. When an event has
// ended it returns its data, nil if it has none; good until the next call.
func (e *events) next(p []byte) (consumed int, data []byte, ended bool) {
	if e.skipLF && len(p) > 0 {
		e.skipLF = false
		if p[0] == '\n' {
			return 1, nil, false
		}
	}
	for consumed < len(p) {
		rest := p[consumed:]
		i := bytes.IndexAny(rest, "\r\n")
		if i < 0 {
			e.take(rest)
			return len(p), nil, false
		}
		e.take(rest[:i])
		consumed += i + 1
		if rest[i] == '\r' {
			if e.skipLF = consumed == len(p); !e.skipLF && p[consumed] == '\n' {
				consumed++
			}
		}
		if e.written {
			if e.endLine(); e.between() {
				return consumed, nil, false // a comment, which waits for no event
			}
			continue
		}
		if e.lines > 0 && !e.overlong {
			data = e.data
		}
		e.data, e.lines, e.begun, e.overlong = e.data[:0], 0, false, false
		return consumed, data, true
	}
	return consumed, nil, false
}

// between says whether nothing of an event was consumed since the last one.
func (e *events) between() bool { return !e.written && !e.begun && !e.overlong }

// take adds to the current line.
func (e *events) take(part []byte) {
	if len(part) == 0 {
		return
	}
	e.written = true
	if e.overlong = e.overlong || len(e.line)+len(part)+len(e.data) > answer.MaxEventBytes; e.overlong {
		e.line, e.data = nil, nil
		return
	}
	e.line = append(e.line, part...)
}

// endLine takes a line that is not blank into the event.
func (e *events) endLine() {
	line := e.line
	e.begun = e.begun || !bytes.HasPrefix(line, []byte(":"))
	if e.lines == 0 {
		line = bytes.TrimPrefix(line, []byte("\ufeff")) // of the stream's first line
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	if string(name) == "data" && !e.overlong {
		if e.lines > 0 {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, bytes.TrimPrefix(value, []byte(" "))...)
		e.lines++
	}
	e.line, e.written = e.line[:0], false
}
