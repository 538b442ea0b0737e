package transport

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// withoutUsageChunk is a stream without its first usage chunk, every other byte as
// it was. It looks at the whole stream at once: lines with their ends, and events
// up to a blank line. Comments before an event are not of it.
func withoutUsageChunk(stream string) string {
	var data []string
	begin := 0 // of the event
	for at := 0; at < len(stream); {
		before := at
		rest := stream[at:]
		end := strings.IndexAny(rest, "\r\n")
		if end < 0 {
			break
		}
		line := rest[:end]
		if at += end + 1; rest[end] == '\r' && at < len(stream) && stream[at] == '\n' {
			at++
		}
		if begin == before && strings.HasPrefix(line, ":") {
			begin = at
		}
		if line != "" {
			if len(data) == 0 {
				line = strings.TrimPrefix(line, "\ufeff")
			}
			if name, value, _ := strings.Cut(line, ":"); name == "data" {
				data = append(data, strings.TrimPrefix(value, " "))
			}
			continue
		}
		if isUsageChunk([]byte(strings.Join(data, "\n"))) {
			return stream[:begin] + stream[at:]
		}
		data, begin = nil, at
	}
	return stream
}

// hide reads a stream through what hides the chunk.
func hide(t *testing.T, in io.Reader) string {
	t.Helper()
	got, err := io.ReadAll(&hidingBody{ReadCloser: io.NopCloser(in), buffer: make([]byte, 64)})
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// hidingSeeds are streams in which the end of a line, of an event or of the whole
// is not the usual one.
var hidingSeeds = []string{
	"data: {\"a\":1}\n\ndata: USAGE\n\ndata: [DONE]\n\n",
	"data: {\"a\":1}\r\n\r\ndata: USAGE\r\n\r\ndata: [DONE]\r\n\r\n",
	"data: {\"a\":1}\r\rdata: USAGE\r\rdata: [DONE]\r\r",
	"data: USAGE\r\n\rdata: x\n\r\n", // ends of all kinds, mixed
	"data: USAGE\n\r\n\ndata: x\r\n\n",
	"data: USAGE\r\r\n\n",                             // the second line end is CR LF, the third its own
	": ping\n\ndata: USAGE\n\n: pong",                 // comments, and no line end at the last
	": with it\nid: 3\ndata: USAGE\n: no\nid: 3\n\nx", // fields of the same event go with it
	"data: {\"choices\":[],\ndata: \"usage\":{\"a\":1}}\n\n",
	"data: USAGE\n\ndata: USAGE\n\n", // only the first
	"data: USAGE",                    // never ended: passed on
	"data: USAGE\n",
	"data: USAGE\r",
	"data: {\"choices\":[],\"usage\":null}\n\n\n\n",
	"\r\n\r\r\n\n", "", "\r", "\ufeffdata: USAGE\r\n\r\n",
}

const someUsage = `{"choices":[],"usage":{"prompt_tokens":1}}`

// TestHiddenChunk: what is read is what came without the hidden chunk, to the byte,
// wherever the reads end.
func TestHiddenChunk(t *testing.T) {
	for _, seed := range hidingSeeds {
		stream := strings.ReplaceAll(seed, "USAGE", someUsage)
		want := withoutUsageChunk(stream)
		for name, in := range map[string]io.Reader{
			"at once":         strings.NewReader(stream),
			"by one byte":     iotest.OneByteReader(strings.NewReader(stream)),
			"halves":          iotest.HalfReader(strings.NewReader(stream)),
			"end with a read": iotest.DataErrReader(strings.NewReader(stream)),
		} {
			if got := hide(t, in); got != want {
				t.Errorf("%q %s: %q, want %q", stream, name, got, want)
			}
		}
		for cut := 1; cut < len(stream); cut++ { // every end of a read, CR or not
			if got := hide(t, io.MultiReader(strings.NewReader(stream[:cut]), strings.NewReader(stream[cut:]))); got != want {
				t.Errorf("%q cut at %d: %q, want %q", stream, cut, got, want)
			}
		}
	}
	if got := withoutUsageChunk("data: " + someUsage + "\r\n\r\n"); got != "" {
		t.Errorf("the reference hides nothing: %q", got)
	}
}

// FuzzHiddenChunk compares what is read with the reference.
func FuzzHiddenChunk(f *testing.F) {
	for _, seed := range hidingSeeds {
		f.Add([]byte(strings.ReplaceAll(seed, "USAGE", someUsage)), 1)
		f.Add([]byte(strings.ReplaceAll(seed, "USAGE", someUsage)), 7)
	}
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		if size < 1 || size > 1<<10 {
			return
		}
		var in []io.Reader
		for rest := stream; len(rest) > 0; {
			piece := rest[:min(size, len(rest))]
			in = append(in, bytes.NewReader(piece))
			rest = rest[len(piece):]
		}
		if got, want := hide(t, io.MultiReader(in...)), withoutUsageChunk(string(stream)); got != want {
			t.Fatalf("%q by %d: %q, want %q", stream, size, got, want)
		}
	})
}
