package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Header is the header of a request that holds its [Script], as JSON.
const Header = "X-Script"

// maxScriptBytes bounds a script.
const maxScriptBytes = 32 << 10

// Script is what a call does.
type Script struct {
	// ID is the call's name in the books. The tries of one call share it.
	ID string `json:"id,omitempty"`
	// Faults are what the first tries get instead of an answer, one each.
	Faults []Fault `json:"faults,omitempty"`
	// Tokens are what is billed. Output left at 0 is one for each of Pieces.
	Tokens Tokens `json:"tokens"`
	// Pieces are the text of the answer, as a stream brings it: each is one
	// token.
	Pieces []string `json:"pieces,omitempty"`
	// Thinking is reasoning that is shown before the text (Anthropic, Gemini).
	Thinking string `json:"thinking,omitempty"`
	// Tool is a call of a tool at the end of the answer.
	Tool *Tool `json:"tool,omitempty"`
	// CutAfter cuts the connection of a stream after this many pieces of text
	// were sent; 0: it is sent whole. What was sent is billed.
	CutAfter int `json:"cut_after,omitempty"`
	// Steps has a stream wait before its first event, and before each piece of
	// text, until [Provider.Step] was called.
	Steps bool `json:"steps,omitempty"`
	// Exhausted are the rate limit headers of an answer that used up the last
	// request of a minute.
	Exhausted bool `json:"exhausted,omitempty"`
}

// Fault is an answer that is an error.
type Fault struct {
	Status int `json:"status"`
	// RetryAfter is the header of that name, in seconds; "" for none.
	RetryAfter string `json:"retry_after,omitempty"`
	// RetryAfterMS is the header retry-after-ms, which OpenAI's and Anthropic's
	// SDKs prefer.
	RetryAfterMS string `json:"retry_after_ms,omitempty"`
}

// Tool is a call of a tool.
type Tool struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// String returns the script as the header takes it, in ASCII: not every client
// sends other characters in a header, and none of them as UTF-8 for sure.
func (s Script) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("provider: a script of plain fields is always JSON: " + err.Error())
	}
	var ascii strings.Builder
	for _, unit := range utf16.Encode([]rune(string(text))) {
		if unit < utf8.RuneSelf {
			ascii.WriteByte(byte(unit))
		} else {
			fmt.Fprintf(&ascii, `\u%04x`, unit)
		}
	}
	return ascii.String()
}

func scriptOf(r *http.Request) (Script, error) {
	var s Script
	text := r.Header.Get(Header)
	if len(text) > maxScriptBytes {
		return s, fmt.Errorf("%s is over %d bytes", Header, maxScriptBytes)
	}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return s, fmt.Errorf("%s is not a script: %w", Header, err)
		}
	}
	if s.Pieces == nil && s.Tool == nil {
		s.Pieces = []string{"Hello", "!"}
	}
	if s.Tokens.Output == 0 {
		s.Tokens.Output = int64(len(s.Pieces))
	}
	return s, nil
}

// sent is what was generated when so many pieces had left: nothing of what
// comes after the text, and one token for each piece of it.
func (s Script) sent(pieces int) Tokens {
	t := s.Tokens
	t.Output = int64(pieces)
	return t
}
