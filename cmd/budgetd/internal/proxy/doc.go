// Package proxy is "budgetd proxy": a reverse proxy in front of providers of
// models, on the Transport of the Go client. An SDK whose base URL is the proxy
// is budgeted, in any language.
//
// A call's way: bounds, then its route (which provider, by the path), then its
// keys (which budget pays, and what the provider is shown), then net/http/httputil
// with the Transport, which reserves, forwards and refunds. What the proxy itself
// refuses is told in the provider's error shape, so that SDKs understand it.
//
// Keys are never logged. A budget key never reaches a provider, and a provider's
// key never reaches the broker.
package proxy
