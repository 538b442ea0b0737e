// Package ratelimit serves Envoy's rate limit protocol,
// envoy.service.ratelimit.v3.RateLimitService, from the same limits and quotas as
// the BudgetService: a request that a gateway asks about is a Charge, settled at
// once.
//
// # From a request to charges
//
// The domain names the account, or an entry "account" does, or the API key
// ([Naming]). The entries of a descriptor are labels. The entry "meter" is none:
// it names the meter that the descriptor's hits count in, which is requests
// unless said. Hits are the descriptor's own hits_addend, else the request's,
// where 0 stands for 1. A call counts as one request too where its hits are in
// another meter, as every Charge does.
//
// Several descriptors are one Charge with all their labels, in which each limit
// counts once and all grant or none takes anything. Where two of them give one
// label two values, or state different hits in one meter, each limit sees the
// descriptors one by one, still in one step: a counter that several of them meet
// takes the most of their hits, once. Descriptors of different accounts are
// charged one account after the other, up to the first refusal, since no step
// covers two accounts.
//
// The entry "x-budget-priority" is no label: it is the priority of the descriptor's
// hits. Descriptors of different priorities are charged one after the other.
//
// A descriptor with the entry "already_used", "true" is charged whatever the
// limits have left, before anything else: an overrun.
//
// Negative hits are given back, after that: see [reservation.Broker.Credit]. They
// give no request back where they are in another meter.
//
// A request has an idempotency key where a descriptor has the entry
// "idempotency_key", or the metadata x-request-id is sent. The key is a hash of
// that and of the whole request.
//
// A descriptor whose own hits_addend is 0 takes nothing: it is looked, before
// anything is charged, whether one unit of its meter would pass.
//
// A descriptor's limit (the override) is a bucket beside those of the policy. It
// can make less pass, and never more.
//
// # From decisions to an answer
//
// OVER_LIMIT means that a limit refused, and nothing else does: what can't be
// read or decided is an error of the call, and the gateway's own rule holds
// (Envoy: failure_mode_deny). A status shows the limit on its descriptor's meter
// of which the least share is left, or the one that refused; UNKNOWN stands for
// what was not decided because of another's refusal. The duration is until the
// limit is whole again. Counts are cut at 2^32-1. The headers to add are those
// of package rpc, of the last Charge.
package ratelimit
