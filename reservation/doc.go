// Package reservation is the core of budgetd: what a reservation is, how it is
// made and ended, and what an engine that keeps reservations must promise.
//
// A reservation is a set of holds with one lease. It begins as held and ends
// exactly once:
//
//	          Refund                       confirmed by the ledger
//	held ───────────────► settled ─────────────────────► forgotten
//	 │                       ▲                               ▲
//	 │ lease ends            │ late Refund                   │
//	 └────────────────► expired ─────────────────────────────┘
//
// [Broker] turns a caller's ask into a plan of holds and asks a [Store] to
// commit it in one atomic step. [Sweeper] ends what crashed callers left and
// finishes closings that a crashed broker left. The engines are in redisstore
// and memstore; storetest is the suite that both must pass, with a reference
// model that they must agree with step by step.
package reservation
