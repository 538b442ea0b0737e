package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/budgetd/budgetd/clients/go/transport"
	"github.com/budgetd/budgetd/estimator/answer"
)

const (
	// heldAgain is how soon the log tells of an upstream again that refuses the key
	// that the proxy holds.
	heldAgain = time.Minute
	// maxRefusalBytes bounds what is looked at of an answer for the word for a bad key.
	maxRefusalBytes = 64 << 10
)

// heldRefused is when the log told last of each upstream, and what it did not tell
// since then.
type heldRefused struct {
	mu     sync.Mutex
	told   map[string]time.Time
	untold map[string]int
}

// tell says whether to tell now, and how many were not told before.
func (h *heldRefused) tell(upstream string, now time.Time) (yes bool, untold int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told == nil {
		h.told, h.untold = map[string]time.Time{}, map[string]int{}
	}
	if last, ok := h.told[upstream]; ok && now.Sub(last) < heldAgain {
		h.untold[upstream]++
		return false, 0
	}
	untold = h.untold[upstream]
	h.told[upstream], h.untold[upstream] = now, 0
	return true, untold
}

// modifyHeld looks at an upstream's answer to a call with the key that the proxy
// holds. One that refuses the key is an error of this proxy's, 502, and not the
// caller's 401. A 403, which mostly has another reason (a model, a country), passes
// with a header that says whose key it is about.
func (p *Proxy) modifyHeld(a *http.Response, to route) error {
	if !p.config.ProviderKeys[to.provider].IsSet() {
		return nil
	}
	refused := a.StatusCode == http.StatusUnauthorized
	if !refused && a.StatusCode != http.StatusForbidden {
		if answer.LayoutOrOpenAI(to.provider) != answer.Gemini || a.StatusCode != http.StatusBadRequest || !saysBadKey(a) {
			return nil
		}
		refused = true // Gemini's answer to a key that is none
	}
	if yes, untold := p.heldRefused.tell(to.provider, time.Now()); yes {
		p.log.Error("an upstream refuses the key that this proxy holds: see provider_key", "upstream", to.provider, "status", a.StatusCode, "not_told", untold)
	}
	if !refused {
		a.Header.Set(headerBudgetError, "provider_denied")
		return nil
	}
	a.Body.Close()
	f := &transport.Fault{Kind: transport.FaultUpstreamKey, Header: http.Header{}, Message: fmt.Sprintf(
		"budget proxy: %s refused the key that this proxy holds (it answered %d); nothing is wrong with your budget key: tell whoever runs the proxy", to.provider, a.StatusCode)}
	f.Header.Set(headerBudgetError, "provider_key_refused")
	*a = *f.Answer(a.Request, answer.LayoutOrOpenAI(to.provider))
	return nil
}

// saysBadKey says whether an answer has Google's reason for a key that is none, and
// leaves the answer whole.
func saysBadKey(a *http.Response) bool {
	begin, err := io.ReadAll(io.LimitReader(a.Body, maxRefusalBytes))
	rest := a.Body
	a.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), rest), rest}
	return err == nil && bytes.Contains(begin, []byte("API_KEY_INVALID"))
}
