package estimator

import "github.com/budgetd/budgetd/quota"

// Figures answer one question three times: how many tokens is it. Each is 0 to
// quota.MaxAmount, and Floor <= Expected <= Ceiling.
type Figures struct {
	Floor    quota.Tokens // no fewer, as far as the source of the figure goes
	Expected quota.Tokens // the likely number
	Ceiling  quota.Tokens // no more; what is held
}

// exactly is a number that is known.
func exactly(n quota.Tokens) Figures { return Figures{n, n, n} }

// upTo is a number of which nothing but the most is known.
func upTo(n quota.Tokens) Figures { return Figures{0, n, n} }

func (f Figures) plus(g Figures) Figures {
	return Figures{f.Floor + g.Floor, f.Expected + g.Expected, f.Ceiling + g.Ceiling}
}

func (f Figures) times(n int64) Figures {
	k := quota.Tokens(n)
	return Figures{f.Floor * k, f.Expected * k, f.Ceiling * k}
}

// atMost lowers the figures to a bound.
func (f Figures) atMost(n quota.Tokens) Figures {
	return Figures{min(f.Floor, n), min(f.Expected, n), min(f.Ceiling, n)}
}

// Kind says what a [Part] of an input is.
type Kind string

// The kinds of parts.
const (
	KindStated   Kind = "stated"    // the caller's own count
	KindText     Kind = "text"      // prose and whatever else is read as text; Count is its bytes
	KindJSON     Kind = "json"      // tool calls, answer schemas and fields unknown yet, by their JSON text; Count is its bytes
	KindRequest  Kind = "request"   // the frame of a conversation, such as the tokens that prime the reply
	KindMessages Kind = "messages"  // the frames of messages
	KindNames    Kind = "names"     // the names of speakers, besides their text
	KindTools    Kind = "tools"     // declared tools with their schemas
	KindImages   Kind = "images"    // images
	KindAudio    Kind = "audio"     // recordings; Count is their number
	KindVideo    Kind = "video"     // recordings; Count is their number
	KindPages    Kind = "documents" // documents; Count is their number
	KindStored   Kind = "stored"    // what the provider keeps and the request only names: files, earlier turns, caches
)

// Part is one line of what an estimate's input is made of.
type Part struct {
	Kind   Kind
	Count  int64   // how many, in the unit of the kind
	Tokens Figures // all of them together

	// Method names what gave the figures: "caller", "tiktoken/<encoding>",
	// "rule/<family>", "documented" and "assumed" for overheads, or the formula
	// of the medium, such as "openai-tiles"; overhead.go, image.go, audio.go and
	// document.go have each with its source.
	Method string
}

// words counts the pieces of a text between ASCII white space.
func words(text string) quota.Tokens {
	n, inWord := 0, false
	for i := range len(text) {
		switch text[i] {
		case ' ', '\t', '\n', '\v', '\f', '\r':
			inWord = false
		default:
			if !inWord {
				n, inWord = n+1, true
			}
		}
	}
	return quota.Tokens(n)
}
