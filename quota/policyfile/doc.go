// Package policyfile reads and writes plans, pools, accounts and prices as YAML,
// the language of "budgetd apply".
//
// A file states any of four maps:
//
//	plans:
//	  pro:
//	    limits:                      # token buckets and slots
//	      - {name: requests, meter: requests, rate: 600/min}
//	      - {name: tokens, meter: tokens, rate: 200000/min, burst: 60000, per: [model]}
//	      - {name: in-flight, meter: in_flight, max: 20, match: {route: slow}}
//	    quotas:                      # amounts a calendar period
//	      - {name: spend, meter: cost, amount: $500, period: month, when_down: closed}
//	pools:                           # limits that all accounts share
//	  openai-org: {meter: tokens, rate: 10M/min, match: {provider: openai}}
//	accounts:
//	  acme:
//	    plan: pro
//	    time_zone: Asia/Tokyo
//	    anchor_day: 15
//	    limits:                      # replace the plan's of the same name, or add
//	      - {name: requests, meter: requests, rate: 1200/min}
//	    grants:                      # add to a quota for a while
//	      - {name: welcome, limit: spend, amount: $50, until: 2027-03-01}
//	prices:                          # US dollars per million tokens
//	  openai/gpt-4o-mini:
//	    - {from: 2026-12-01, input: $0.15, output: $0.60}
//
// Amounts and rates are written as quota.ParseAmount and quota.ParseRate read
// them; money, with $, goes with meter cost and with no other. The words of a
// limit are:
//
//   - name: unique in its plan. A pool is named by its key.
//   - meter: what is counted.
//   - rate and burst: a token bucket; burst is the rate's amount unless stated.
//   - max: slots; goes with meter in_flight.
//   - amount and period (day, week, month, year): a quota.
//   - soft: true for a quota that never refuses.
//   - alert_at: percents of a quota's amount.
//   - per: labels that split the limit into counters. account may be listed in
//     a plan and is implied.
//   - match: which calls, by label: a value or a list of them. A * at the end
//     of a value matches any rest. Write "*" with its quotes.
//   - costs: a list of {match, weight}; the first that matches multiplies what
//     a call takes.
//   - when_down: closed (the default) or open.
//   - on_expiry: give_back (the default) or charge.
//   - hold: worst_case.
//
// Every scalar is read as its text, quoted or not, so user: 7 matches the label
// value "7". The reader is strict. Unknown and doubled keys, several documents,
// anchors, aliases and tags are refused, and a word of the plan language that
// this version does not build is refused by its name, never ignored.
package policyfile
