package proxy

import (
	"net/http"
	"net/url"
	"strings"
)

// Headers of a call that are for the proxy alone. None reaches a provider.
const (
	headerBudgetKey     = "X-Budget-Key"
	headerBudgetPrefix  = "X-Budget-"
	headerAuthorization = "Authorization"
	headerAPIKey        = "X-Api-Key"      // Anthropic
	headerAzureKey      = "Api-Key"        // Azure OpenAI
	headerGoogleKey     = "X-Goog-Api-Key" // Gemini
	queryGoogleKey      = "key"            // Gemini, in the URL
)

// credential returns the key that a caller sends as an SDK does; "" for none.
func credential(r *http.Request) string {
	for _, name := range []string{headerAPIKey, headerGoogleKey, headerAzureKey} {
		if key := r.Header.Get(name); key != "" {
			return key
		}
	}
	if scheme, key, ok := strings.Cut(r.Header.Get(headerAuthorization), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(key)
	}
	return r.URL.Query().Get(queryGoogleKey)
}

// budgetKey returns the key of the budget that pays, "" for none: the header's,
// else where the proxy holds the provider's key the one that the SDK sends, else
// the proxy's own.
func (p *Proxy) budgetKey(r *http.Request, provider string) string {
	if key := r.Header.Get(headerBudgetKey); key != "" {
		return key
	}
	if p.config.ProviderKeys[provider].IsSet() {
		if key := credential(r); key != "" {
			return key
		}
	}
	return p.config.BudgetKey.Reveal()
}

// showKeys makes a request show the provider's key: the proxy's, or else what the
// caller sent. What is for the proxy is taken out of it.
func (p *Proxy) showKeys(header http.Header, u *url.URL, provider string) {
	for name := range header {
		if strings.HasPrefix(name, headerBudgetPrefix) {
			delete(header, name)
		}
	}
	held := p.config.ProviderKeys[provider]
	if !held.IsSet() {
		return
	}
	for _, name := range []string{headerAuthorization, headerAPIKey, headerAzureKey, headerGoogleKey} {
		header.Del(name)
	}
	u.RawQuery = withoutKey(u.RawQuery)
	switch provider {
	case anthropic:
		header.Set(headerAPIKey, held.Reveal())
	case gemini:
		header.Set(headerGoogleKey, held.Reveal())
	default:
		header.Set(headerAuthorization, "Bearer "+held.Reveal())
	}
}

// withoutKey takes the key out of a query and leaves the rest as it is.
func withoutKey(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); part == "" || err == nil && plain == queryGoogleKey {
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "&")
}
