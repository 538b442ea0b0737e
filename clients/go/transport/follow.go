package transport

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/budgetd/budgetd/estimator/answer"
)

// follower reads an answer as it passes by.
type follower interface {
	// see takes the next bytes. They are not kept.
	see(p []byte)
	// answer says what was seen so far. known is false when nobody can say what
	// the call used.
	answer() (seen answer.Answer, known bool)
}

// followerOf is the follower for an answer's kind of content.
func followerOf(layout answer.Layout, response *http.Response) follower {
	kind := kindOf(response)
	switch {
	case encoded(response):
		return unreadable{}
	case kind == kindSSE:
		return &sseFollower{streamFollower: streamFollower{stream: answer.NewStream(layout)}}
	case kind == kindAWS:
		return &awsFollower{streamFollower: streamFollower{stream: answer.NewStream(layout)}, decoder: eventstream.NewDecoder()}
	}
	size := max(min(response.ContentLength, maxForeseen), 0)
	return &plainFollower{layout: layout, body: make([]byte, 0, size)}
}

// The kinds of content that come piece by piece.
const (
	kindSSE = "text/event-stream"
	kindAWS = "application/vnd.amazon.eventstream"
)

// kindOf is an answer's kind of content in lower case, without parameters.
func kindOf(response *http.Response) string {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return kind
}

// encoded says whether an answer is compressed, or otherwise not what it is.
func encoded(response *http.Response) bool {
	for _, line := range response.Header.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(line, ",") {
			if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
				return true
			}
		}
	}
	return false
}

// isStream says whether an answer comes piece by piece.
func isStream(request *http.Request, response *http.Response) bool {
	kind := kindOf(response)
	return kind == kindSSE || kind == kindAWS || strings.HasSuffix(request.URL.Path, ":streamGenerateContent")
}

// unreadable is an answer that was compressed though nobody asked for it.
type unreadable struct{}

func (unreadable) see([]byte)                    {}
func (unreadable) answer() (answer.Answer, bool) { return answer.Answer{}, false }

// maxForeseen is how much room is made for an answer by its stated length alone.
const maxForeseen = 1 << 20

// plainFollower keeps a plain answer until it is whole.
type plainFollower struct {
	layout answer.Layout
	body   []byte
	tooBig bool
}

func (f *plainFollower) see(p []byte) {
	if f.tooBig = f.tooBig || len(f.body)+len(p) > answer.MaxBodyBytes; f.tooBig {
		f.body = nil
		return
	}
	f.body = append(f.body, p...)
}

func (f *plainFollower) answer() (answer.Answer, bool) {
	if f.tooBig {
		return answer.Answer{}, false
	}
	body := bytes.TrimLeft(f.body, " \t\r\n")
	if len(body) > 0 && body[0] == '[' {
		return f.list(body)
	}
	seen, err := answer.Whole(f.layout, body)
	return seen, err == nil && (seen.Usage != nil || seen.Refused)
}

// list reads Gemini's stream as a list of chunks, which comes where the caller
// does not ask for events.
func (f *plainFollower) list(body []byte) (answer.Answer, bool) {
	stream := answer.NewStream(f.layout)
	decoder := json.NewDecoder(bytes.NewReader(body))
	if _, err := decoder.Token(); err != nil {
		return answer.Answer{}, false
	}
	for decoder.More() {
		var chunk json.RawMessage
		if decoder.Decode(&chunk) != nil || stream.Event(chunk) != nil {
			break // cut here
		}
	}
	seen, err := stream.Answer()
	return seen, err == nil
}

// streamFollower reads a stream whose events others find.
type streamFollower struct{ stream *answer.Stream }

// event takes one. What is no event of the layout is passed on all the same: it
// is between the provider and the SDK.
func (f *streamFollower) event(data []byte) { _ = f.stream.Event(data) }

func (f *streamFollower) answer() (answer.Answer, bool) {
	seen, err := f.stream.Answer()
	return seen, err == nil
}

// sseFollower reads server-sent events.
type sseFollower struct {
	streamFollower
	events events
}

func (f *sseFollower) see(p []byte) {
	for len(p) > 0 {
		n, data, ended := f.events.next(p)
		if p = p[n:]; ended && data != nil {
			f.event(data)
		}
	}
}

// awsFollower reads the messages of an AWS event stream.
type awsFollower struct {
	streamFollower
	decoder *eventstream.Decoder
	message []byte // so far
	payload []byte
	broken  bool
}

// Bounds of a message: a prelude and two checksums at least, AWS's 24 MB for the
// whole at most.
const (
	minAWSMessage = 16
	maxAWSMessage = 24 << 20
)

func (f *awsFollower) see(p []byte) {
	if f.broken {
		return
	}
	f.message = append(f.message, p...)
	for len(f.message) >= 4 && !f.broken {
		size := binary.BigEndian.Uint32(f.message)
		if size < minAWSMessage || size > maxAWSMessage {
			f.broken, f.message = true, nil
			return
		}
		if uint32(len(f.message)) < size {
			return
		}
		message, err := f.decoder.Decode(bytes.NewReader(f.message[:size]), f.payload[:0])
		if f.broken = err != nil; f.broken {
			return
		}
		f.payload = message.Payload
		f.event(message.Payload)
		if kind := message.Headers.Get(":exception-type"); kind != nil {
			f.stream.Fail()
		}
		f.message = append(f.message[:0], f.message[size:]...)
	}
}

// body passes an answer on while its follower reads along.
type body struct {
	io.ReadCloser
	call *call
	late error // comes after the bytes that were read with it
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.late != nil {
		b.call.finish(b.late)
		return 0, b.late
	}
	n, err := b.call.reading(func() (int, error) { return b.ReadCloser.Read(p) })
	if stopped := b.call.stopped(); stopped != nil && err != nil && err != io.EOF {
		err = stopped
	}
	if n > 0 {
		b.call.see(p[:n])
		b.late, err = err, nil // the bytes do not wait for the closing
		return n, err
	}
	if err != nil {
		b.late = err
		b.call.finish(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.call.finish(nil)
	return err
}

// hidingBody is the body of a stream that was asked for its usage by the
// Transport: it holds an event until it is whole, and drops the chunk that has
// nothing but the usage.
type hidingBody struct {
	io.ReadCloser
	events events
	buffer []byte // of one read
	held   []byte // of an event that has not ended
	ready  []byte // to be passed on
	hidden bool
	dropLF bool // the hidden event ended with a CR: an LF that comes next is its own
}

// Read implements io.Reader.
func (b *hidingBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(b.ready) == 0 {
		n, err := b.ReadCloser.Read(b.buffer)
		if n == 0 && err != nil {
			if len(b.held) == 0 {
				return 0, err
			}
			b.ready, b.held = append(b.ready[:0], b.held...), nil // cut within an event
			break
		}
		b.sort(b.buffer[:n])
	}
	n := copy(p, b.ready)
	b.ready = b.ready[:copy(b.ready, b.ready[n:])]
	return n, nil
}

// sort puts the bytes of whole events into ready, and holds the rest.
func (b *hidingBody) sort(p []byte) {
	if b.dropLF && len(p) > 0 {
		b.dropLF = false
		if p[0] == '\n' {
			n, _, _ := b.events.next(p[:1])
			p = p[n:]
		}
	}
	for len(p) > 0 {
		n, data, ended := b.events.next(p)
		b.held = append(b.held, p[:n]...)
		p = p[n:]
		switch {
		case ended && !b.hidden && isUsageChunk(data):
			b.hidden, b.held = true, b.held[:0]
			b.dropLF = b.events.skipLF // only at the end of a read
		case ended || b.hidden || b.events.between() || b.events.overlong:
			b.ready = append(b.ready, b.held...)
			b.held = b.held[:0]
		}
	}
}

// isUsageChunk says whether a chunk has a usage and no choices: the last one of a
// stream with stream_options.include_usage.
func isUsageChunk(data []byte) bool {
	if !bytes.Contains(data, []byte(`"usage"`)) {
		return false
	}
	var chunk struct {
		Choices []json.RawMessage `json:"choices"`
		Usage   map[string]any    `json:"usage"`
	}
	return json.Unmarshal(data, &chunk) == nil && chunk.Choices != nil && len(chunk.Choices) == 0 && chunk.Usage != nil
}
