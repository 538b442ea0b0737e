// Package rpc serves the BudgetService: it turns requests into what the broker
// understands and answers back, and decides whose account a caller may use. It
// is the only place where an error of the domain becomes a code (see
// [asConnect]); nothing below it knows proto or HTTP.
//
// A call passes, in this order: a bound on the size of its body, the gate (too
// many calls under way; whose key is it), the strict decoder, the bound on
// calls under way, the handler.
//
// # Headers
//
// A refusal carries the headers of draft-ietf-httpapi-ratelimit-headers for the
// limit that refused; a grant those of the limit of which the least share is
// left:
//
//	RateLimit-Policy: "tokens";q=10000;w=60
//	RateLimit: "tokens";r=6000;t=24
//	Retry-After: 6
//	Budget-Limited-By: tokens
//
// q is what the limit ever allows at once and w the seconds in which a bucket
// fills or the length of a quota's period; slots have no w. r is what is left,
// 0 when it is in debt, and t is after how many seconds the limit is whole
// again (the bucket full, the period over), or of slots when the earliest lease
// ends: rounded up, left out when nothing is to come back. q and r are cut at
// 999,999,999,999,999, the largest integer of RFC 8941. Retry-After, on a
// refusal that waiting helps, is when the same call may pass: whole seconds,
// rounded up, at least 1. Of a window or a quota it is a little later, for each
// caller by another time: see reservation.Config.RetryJitter. For a quota it is at most MaxRetryAfter: when the
// period ends later, the refusal is not retryable, and Retry-After is how often
// at most to look whether a grant or a larger plan has come. A quota that is
// used up may be answered as permission_denied (403) instead; that answer has no
// Retry-After, which belongs to a 429. An answer that did not come from a limit
// has none of these headers.
package rpc
