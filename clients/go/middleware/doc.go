// Package middleware guards an HTTP API of one's own with budgets: it wraps a
// net/http handler, so that each call needs a reservation of budgetd.
//
//	guard, err := middleware.New(client, middleware.WithTrustedProxies("10.0.0.0/8"))
//	...
//	mux.Handle("POST /reports", guard(reports))
//
// Clients are told apart by API key, else by address, and limits that are scoped
// by the label "client" are each client's own. The label is a hash of the key,
// which never leaves the process, or the address: an IPv4 address or the /64 of
// an IPv6 address. Behind proxies the address is read from X-Forwarded-For, of
// trusted proxies only; see [WithTrustedProxies].
//
// Every answer has RateLimit and RateLimit-Policy of the tightest limit. A call
// that a limit refuses is answered 429 with Retry-After, Budget-Limited-By (the
// name of the limit) and Cache-Control: no-store; the handler does not run.
//
// While a handler runs, its reservation is renewed. It is refunded when the
// handler returns or panics, also when the client has hung up or the connection
// was hijacked; what was used is what [SetUsage] said, else everything that was
// held. The answer waits for the Refund for a moment only; see [WithSettleWait].
//
// The handler's context ends when the Refund is on its way, and before that when the
// broker says that the call is to stop: its cause is then a StoppedError of the client.
// Work that goes on after the answer needs a context of its own, and a reservation.
package middleware
