package rpc

import (
	"slices"
	"strings"
)

// credentialHeaders carry what opens a door: those of RFC 9110 and RFC 6265, of the
// providers of models, and of common gateways. In lower case.
var credentialHeaders = []string{
	"authorization", "proxy-authorization", "cookie", "set-cookie", "x-budget-key",
	"x-api-key", "api-key", "apikey", "x-goog-api-key", "x-amz-security-token",
	"ocp-apim-subscription-key", "private-token", "x-forwarded-client-cert",
}

// credentialEndings are how the names of other such headers end.
var credentialEndings = []string{"-token", "-api-key", "-apikey", "-secret", "-password", "-authorization"}

// CarriesCredential says that a header of this name, in any case, usually carries a
// secret, so that its value must not become a label: labels are kept in the ledger
// and shown in reports.
func CarriesCredential(header string) bool {
	header = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(header)), "_", "-")
	return slices.Contains(credentialHeaders, header) ||
		slices.ContainsFunc(credentialEndings, func(ending string) bool { return strings.HasSuffix(header, ending) })
}

// credentialForms begin a value that is a secret whatever header it came in: the
// schemes of HTTP authentication with a blank, the broker's own keys, and those of
// OpenAI, Anthropic (both sk-) and Google. In lower case.
var credentialForms = []string{
	"bearer ", "basic ", "digest ", "negotiate ", "aws4-hmac-sha256 ", "token ", "bk_", "sk-", "aizasy",
}

// looksLikeCredential says that a value has the form of a secret.
func looksLikeCredential(value string) bool {
	value = strings.ToLower(strings.TrimSpace(value))
	return slices.ContainsFunc(credentialForms, func(form string) bool { return strings.HasPrefix(value, form) })
}
