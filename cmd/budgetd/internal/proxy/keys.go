package proxy

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/budgetd/budgetd/clients/go/transport"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/estimator/answer"
)

// Headers of a call that are for the proxy alone. None reaches a provider.
const (
	headerBudgetKey     = "X-Budget-Key"
	headerBudgetPrefix  = "X-Budget-"
	headerBudgetError   = "X-Budget-Error" // of an answer
	headerAuthorization = "Authorization"
	headerAPIKey        = "X-Api-Key"      // Anthropic
	headerAzureKey      = "Api-Key"        // Azure OpenAI
	headerGoogleKey     = "X-Goog-Api-Key" // Gemini
)

var (
	// credentialHeaders are where SDKs put a key.
	credentialHeaders = []string{headerAuthorization, headerAPIKey, headerAzureKey, headerGoogleKey}
	// credentialQueries are likewise in the URL: Google's two, and what others take.
	credentialQueries = []string{"key", "access_token", "api_key", "api-key"}
)

// The form of the broker's keys, as package auth makes them.
const budgetKeyPrefix = "bk_"

var (
	budgetKeyForm   = regexp.MustCompile(`^bk_[a-z2-7]{16}_[a-z2-7]{47}$`)
	budgetKeyWithin = regexp.MustCompile(`bk_[a-z2-7]{16}_[a-z2-7]{47}`)
)

// credentials are the keys that a caller sends as SDKs do, wherever they stand.
func credentials(r *http.Request) []string {
	var all []string
	add := func(key string) {
		if key = strings.TrimSpace(key); key != "" && !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	for _, name := range credentialHeaders {
		for _, value := range r.Header.Values(name) {
			if scheme, key, ok := strings.Cut(strings.TrimSpace(value), " "); ok && name == headerAuthorization {
				value = key
			} else if strings.EqualFold(scheme, "Bearer") {
				value = "" // an SDK that was given no key
			}
			add(value)
		}
	}
	query, _ := url.ParseQuery(r.URL.RawQuery) // what can't be read is no key
	for _, name := range credentialQueries {
		for _, value := range query[name] {
			add(value)
		}
	}
	return all
}

// isBudgetKey says whether a key is meant for the broker, whole or not.
func isBudgetKey(key string) bool {
	return strings.HasPrefix(key, budgetKeyPrefix) || key == auth.DemoKey
}

// budgetKey returns the key of the budget that pays, "" where a call that is free
// needs none: the header's, else where the proxy holds the provider's key the one
// that the SDK sends, else the proxy's own. Only what has the form of a budget key
// is returned, so that the broker sees no provider's key, and a call that would show
// a provider a budget key is refused.
func (p *Proxy) budgetKey(r *http.Request, to route) (string, *transport.Fault) {
	held := p.config.ProviderKeys[to.provider].IsSet()
	sent := credentials(r)
	if showsBudgetKey(r, held) {
		return "", unauthorized("a budget key stands where it would be passed on to " + to.provider + ": send it in " + headerBudgetKey + " alone" + besideOwn(to.provider, held))
	}
	key, at := "", headerBudgetKey
	switch stated := r.Header.Values(headerBudgetKey); {
	case len(stated) > 1:
		return "", unauthorized("there are several headers " + headerBudgetKey + ": send one")
	case len(stated) == 1 && strings.TrimSpace(stated[0]) != "":
		key = strings.TrimSpace(stated[0])
	case held && len(sent) > 0:
		budget := slices.DeleteFunc(slices.Clone(sent), func(key string) bool { return !isBudgetKey(key) })
		switch {
		case len(budget) > 1:
			return "", unauthorized("several budget keys were sent: send one")
		case len(budget) == 0:
			return "", unauthorized("the key that was sent is none of the budget's, which begin with " + budgetKeyPrefix +
				": this proxy holds the key of " + to.provider + ", send your budget key in its place")
		}
		key, at = budget[0], "place of the API key"
	case p.config.BudgetKey.IsSet():
		return p.config.BudgetKey.Reveal(), nil
	case to.free && !held:
		return "", nil // the caller's own key, and nothing to pay
	default:
		return "", unauthorized("no budget key was sent: " + whereKeysGo(to.provider, held))
	}
	switch {
	case !isBudgetKey(key):
		return "", unauthorized("what was sent in " + at + " is no budget key, which begin with " + budgetKeyPrefix + "; a provider's key has no place there: " + whereKeysGo(to.provider, held))
	case key != auth.DemoKey && !budgetKeyForm.MatchString(key):
		return "", unauthorized("the budget key is not whole: it has 67 characters, bk_, 16, _ and 47; was it copied to its end?")
	}
	return key, nil
}

// showsBudgetKey says whether a budget key would reach the provider: in the place
// of a provider's key that is passed through, or in any other header or the URL.
func showsBudgetKey(r *http.Request, held bool) bool {
	if !held && slices.ContainsFunc(credentials(r), isBudgetKey) {
		return true
	}
	replaced := func(name string) bool { // what the provider does not see
		return strings.HasPrefix(name, headerBudgetPrefix) || held && slices.Contains(credentialHeaders, name)
	}
	for name, values := range r.Header {
		if !replaced(name) && slices.ContainsFunc(values, budgetKeyWithin.MatchString) {
			return true
		}
	}
	query := r.URL.RawQuery
	if held {
		query = withoutKeys(query)
	}
	plain, err := url.QueryUnescape(query)
	return budgetKeyWithin.MatchString(r.URL.Path) || budgetKeyWithin.MatchString(query) || err == nil && budgetKeyWithin.MatchString(plain)
}

func unauthorized(problem string) *transport.Fault {
	return &transport.Fault{Kind: transport.FaultUnauthorized, Message: "budget proxy: " + problem}
}

func whereKeysGo(provider string, held bool) string {
	if held {
		return "send it where the SDK sends its API key, or in " + headerBudgetKey
	}
	return "send it in " + headerBudgetKey + besideOwn(provider, held)
}

func besideOwn(provider string, held bool) string {
	if held {
		return ""
	}
	return ", and your own key of " + provider + " where the SDK sends it: this proxy holds none"
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
	for _, name := range credentialHeaders {
		header.Del(name)
	}
	u.RawQuery = withoutKeys(u.RawQuery)
	showKey(header, provider, held)
}

func showKey(header http.Header, provider string, held config.Secret) {
	switch {
	case answer.LayoutOrOpenAI(provider) == answer.Anthropic:
		header.Set(headerAPIKey, held.Reveal())
	case answer.LayoutOrOpenAI(provider) == answer.Gemini:
		header.Set(headerGoogleKey, held.Reveal())
	case strings.HasPrefix(provider, "azure"):
		header.Set(headerAzureKey, held.Reveal())
	default:
		header.Set(headerAuthorization, "Bearer "+held.Reveal())
	}
}

// withoutKeys takes the keys out of a query and leaves the rest as it is.
func withoutKeys(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); part == "" || err == nil && slices.Contains(credentialQueries, plain) {
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "&")
}
