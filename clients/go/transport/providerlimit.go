package transport

import (
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/budgetd/budgetd/clients/go/internal/pause"
)

// ProviderLimit is what an answer says of the provider's own limits.
type ProviderLimit struct {
	Provider string
	Host     string
	Model    string

	// Refused says that the provider answered 429, or Anthropic's 529.
	Refused bool

	// RetryAfter is how long the provider asked to wait, an hour at most; 0 when it
	// did not.
	RetryAfter time.Duration

	Levels []ProviderLevel // what its rate limit headers say, none when it sent none
}

// ProviderLevel is one of a provider's limits.
type ProviderLevel struct {
	Name      string        // "requests", "tokens", "input-tokens", "output-tokens" as the header names it
	Limit     int64         // -1: not said
	Remaining int64         // -1: not said
	Reset     time.Duration // until the limit is whole again; 0: not said, or it is
}

// levelNames are the limits that OpenAI and Anthropic have headers for.
var levelNames = [...]string{"requests", "tokens", "input-tokens", "output-tokens"}

// limitOf reads what an answer says of limits at an instant. ok is false when it
// says nothing.
func limitOf(answer *http.Response, now time.Time) (limit ProviderLimit, ok bool) {
	limit = ProviderLimit{
		Refused:    answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == statusOverloaded,
		RetryAfter: min(pause.Asked(answer.Header, now), maxRetryAfter),
	}
	for _, name := range levelNames {
		openAI := ProviderLevel{
			Name:      name,
			Limit:     number(answer.Header.Get("X-Ratelimit-Limit-" + name)),
			Remaining: number(answer.Header.Get("X-Ratelimit-Remaining-" + name)),
		}
		if reset, err := time.ParseDuration(answer.Header.Get("X-Ratelimit-Reset-" + name)); err == nil {
			openAI.Reset = max(reset, 0)
		}
		anthropic := ProviderLevel{
			Name:      name,
			Limit:     number(answer.Header.Get("Anthropic-Ratelimit-" + name + "-Limit")),
			Remaining: number(answer.Header.Get("Anthropic-Ratelimit-" + name + "-Remaining")),
		}
		if reset, err := time.Parse(time.RFC3339, answer.Header.Get("Anthropic-Ratelimit-"+name+"-Reset")); err == nil {
			anthropic.Reset = max(reset.Sub(now), 0)
		}
		for _, level := range [...]ProviderLevel{openAI, anthropic} {
			if level.Limit >= 0 || level.Remaining >= 0 {
				limit.Levels = append(limit.Levels, level)
			}
		}
	}
	return limit, limit.Refused || limit.RetryAfter > 0 || len(limit.Levels) > 0
}

// statusOverloaded is Anthropic's overloaded_error.
const statusOverloaded = 529

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// maxRetryAfter bounds what a provider can ask for, so that a broken header does
// not stop calls for good.
const maxRetryAfter = time.Hour

// heldBack remembers until when providers asked to wait.
type heldBack struct {
	mu    sync.Mutex
	until map[heldKey]time.Time
}

// heldKey is one of a provider's limits, as far as a caller can tell them apart.
type heldKey struct {
	host, model string
	credential  uint64 // a hash, so that no key is kept
}

// maxHeldBack bounds what is remembered.
const maxHeldBack = 1024

var heldSeed = maphash.MakeSeed()

func heldKeyOf(request *http.Request, model string) heldKey {
	var hash maphash.Hash
	hash.SetSeed(heldSeed)
	for _, name := range [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
		_, _ = hash.WriteString(request.Header.Get(name))
		_ = hash.WriteByte(0)
	}
	_, _ = hash.WriteString(request.URL.Query().Get("key"))
	return heldKey{strings.ToLower(request.URL.Host), model, hash.Sum64()}
}

// wait says how long to wait still.
func (h *heldBack) wait(key heldKey, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until[key].Sub(now)
}

// hold waits until an instant from now on. When too much is remembered, what is
// over goes, and else the new one is not taken.
func (h *heldBack) hold(key heldKey, now, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil {
		h.until = map[heldKey]time.Time{}
	}
	if len(h.until) >= maxHeldBack {
		for k, at := range h.until {
			if !at.After(now) {
				delete(h.until, k)
			}
		}
		if len(h.until) >= maxHeldBack {
			return
		}
	}
	if until.After(h.until[key]) {
		h.until[key] = until
	}
}
