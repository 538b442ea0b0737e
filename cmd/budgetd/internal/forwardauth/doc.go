// Package forwardauth answers gateways that ask with a plain HTTP request before
// they pass on one of theirs: nginx (auth_request), Caddy (forward_auth) and
// Traefik (ForwardAuth). What passes is a Charge, settled at once.
//
// The request may have any method and path parameters; its body is not read.
// Account, labels and amounts come from the query or from headers:
//
//	account=shop            X-Budget-Account: shop
//	label.route=chat        X-Budget-Label-Route: chat
//	amount.tokens=100       X-Budget-Amount-Tokens: 100
//	priority=batch          X-Budget-Priority: batch
//	label-from.user=X-User  (the label user is the value of the header X-User)
//
// No credential becomes a label: label-from refuses headers that carry one.
//
// What the query states wins. With headers=ignore in the query the X-Budget-
// headers count for nothing, but for the key: for gateways that pass on what
// their clients sent. The key is in X-Budget-Key, or else in Authorization.
//
// The answer is 200 with the headers of package rpc, or 429 with Retry-After.
// With refused=403 a refusal is 403 with the same headers, since nginx takes
// every other answer of auth_request for an error of its own.
package forwardauth
