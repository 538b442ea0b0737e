package provider

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// stream sends server-sent events.
type stream struct {
	p *Provider
	x *exchange
	// end is what ends a line: Gemini's lines end with CR LF.
	end string
	// typed says that events have a name, the type in their data.
	typed bool
	sent  int // pieces of text
	gone  bool
}

// newStream starts the answer.
func (p *Provider) newStream(x *exchange, end string, typed bool) *stream {
	s := &stream{p: p, x: x, end: end, typed: typed}
	x.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	x.w.Header().Set("Cache-Control", "no-cache")
	s.wait()
	x.w.WriteHeader(http.StatusOK)
	return s
}

// wait holds the stream until it may go on, if it is scripted to.
func (s *stream) wait() {
	if !s.x.script.Steps {
		return
	}
	select {
	case <-s.p.stepsOf(s.x.script.ID):
	case <-s.x.r.Context().Done():
		s.gone = true
	}
}

// event sends one.
func (s *stream) event(data object) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil {
		panic("provider: an event of plain fields is always JSON: " + err.Error())
	}
	line := "data: " + string(bytes.TrimSpace(text.Bytes())) + s.end + s.end
	if s.typed {
		line = "event: " + data["type"].(string) + s.end + line
	}
	s.raw(line)
}

func (s *stream) raw(line string) {
	if s.gone {
		return
	}
	if _, err := s.x.w.Write([]byte(line)); err != nil {
		s.gone = true
		return
	}
	if err := http.NewResponseController(s.x.w).Flush(); err != nil {
		s.gone = true
	}
}

// pieces sends the text, each piece as the function makes an event of it. It
// cuts the connection where the script says so, and ends the handler when the
// caller is gone: what was sent until then is billed.
func (s *stream) pieces(event func(piece string) object) {
	for _, piece := range s.x.script.Pieces {
		s.wait()
		s.event(event(piece))
		if !s.gone {
			s.sent++
		}
		if s.gone || s.sent == s.x.script.CutAfter {
			s.cut()
		}
	}
}

func (s *stream) cut() {
	s.p.bill(s.x, http.StatusOK, s.x.script.sent(s.sent), true)
	panic(http.ErrAbortHandler) // net/http closes the connection without an end
}

// finish bills the stream, which was sent whole.
func (s *stream) finish() { s.p.bill(s.x, http.StatusOK, s.x.script.Tokens, false) }
