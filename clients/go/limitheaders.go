package budget

import "net/http"

// The headers in which a broker says where a limit stands, for whoever passes
// them on: the standard ones of draft-ietf-httpapi-ratelimit-headers, and one
// that names the limit which refused.
const (
	HeaderRateLimit       = "RateLimit"
	HeaderRateLimitPolicy = "RateLimit-Policy"
	HeaderLimitedBy       = "Budget-Limited-By"
)

var limitHeaders = []string{HeaderRateLimit, HeaderRateLimitPolicy, HeaderLimitedBy}

// limitHeadersOf keeps the headers of a limit as the broker wrote them: it alone
// knows their syntax and which limit is the tightest.
func limitHeadersOf(from http.Header) http.Header {
	kept := make(http.Header, len(limitHeaders))
	for _, name := range limitHeaders {
		if value := from.Get(name); value != "" {
			kept.Set(name, value)
		}
	}
	return kept
}
