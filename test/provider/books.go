package provider

import (
	"bytes"
	"math/big"
	"net/http"
	"slices"
)

// Tokens is what a call used, in disjoint classes.
type Tokens struct {
	Input        int64 `json:"input,omitempty"`
	CacheRead    int64 `json:"cache_read,omitempty"`
	CacheWrite   int64 `json:"cache_write,omitempty"`    // for five minutes (Anthropic)
	CacheWrite1h int64 `json:"cache_write_1h,omitempty"` // for an hour (Anthropic)
	Output       int64 `json:"output,omitempty"`         // without reasoning
	Reasoning    int64 `json:"reasoning,omitempty"`
}

func (t Tokens) prompt() int64 { return t.Input + t.CacheRead + t.CacheWrite + t.CacheWrite1h }
func (t Tokens) answer() int64 { return t.Output + t.Reasoning }

// Total is all of them.
func (t Tokens) Total() int64 { return t.prompt() + t.answer() }

// Plus is the sum, class by class.
func (t Tokens) Plus(other Tokens) Tokens {
	return Tokens{
		Input: t.Input + other.Input, CacheRead: t.CacheRead + other.CacheRead,
		CacheWrite: t.CacheWrite + other.CacheWrite, CacheWrite1h: t.CacheWrite1h + other.CacheWrite1h,
		Output: t.Output + other.Output, Reasoning: t.Reasoning + other.Reasoning,
	}
}

// Price is what a model costs, in nano-USD per million tokens. Reasoning is
// billed as output.
type Price struct {
	Input, CacheRead, CacheWrite, CacheWrite1h, Output int64
}

// Cost is the price of the tokens in nano-USD, rounded up once.
func (p Price) Cost(t Tokens) int64 {
	sum := new(big.Int)
	for _, part := range [][2]int64{
		{t.Input, p.Input}, {t.CacheRead, p.CacheRead}, {t.CacheWrite, p.CacheWrite},
		{t.CacheWrite1h, p.CacheWrite1h}, {t.Output, p.Output}, {t.Reasoning, p.Output},
	} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
	}
	million := big.NewInt(1_000_000)
	sum.Add(sum, big.NewInt(999_999)).Div(sum, million)
	return sum.Int64()
}

// Call is one request that arrived.
type Call struct {
	ID     string // of its script
	Host   string // "openai", "anthropic" or "gemini"
	Model  string
	Path   string
	Header http.Header // as it arrived
	Body   []byte      // as it arrived
	Status int         // of the answer
	Billed Tokens      // zero for an error
	Cost   int64       // nano-USD
	Cut    bool        // the stream was cut
}

// Calls returns the books: every call that was answered, in the order in which
// the answers ended.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Totals sums the books up.
func (p *Provider) Totals() (tokens Tokens, cost int64) {
	for _, c := range p.Calls() {
		tokens = tokens.Plus(c.Billed)
		cost += c.Cost
	}
	return tokens, cost
}

// Saw says whether any request had the text in its header or its body.
func (p *Provider) Saw(text string) bool {
	for _, c := range p.Calls() {
		var header bytes.Buffer
		_ = c.Header.Write(&header) // a buffer takes everything
		if bytes.Contains(header.Bytes(), []byte(text)) || bytes.Contains(c.Body, []byte(text)) {
			return true
		}
	}
	return false
}

// bill enters a call.
func (p *Provider) bill(x *exchange, status int, tokens Tokens, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, Call{
		ID: x.script.ID, Host: x.host, Model: x.model, Path: x.r.URL.Path, Header: x.r.Header.Clone(), Body: x.body,
		Status: status, Billed: tokens, Cost: p.prices[x.model].Cost(tokens), Cut: cut,
	})
}
