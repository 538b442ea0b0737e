// Package storetest is the conformance suite of the engines that keep
// reservations. An engine's own test is a few lines:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB, clock *storetest.Clock) storetest.Engine {
//			store := ... // an empty engine whose clock is clock.Now
//			return storetest.Engine{Store: store, LoseData: ..., Incarnate: ...}
//		})
//	}
//
// It has five parts: scenarios in testdata/*.txt (parse.go has their
// language), tests in Go of what is concurrent, large or odd, others of holds whose
// amount the engine chooses, random histories in which every answer is compared
// with the reference [Model], and properties that hold whatever the model says. The scenarios are compared with the model
// too, step by step.
//
// # What the contract leaves open
//
// Where the contract of reservation.Store can be read in two ways, the model
// decides, and the suite holds every engine to it:
//
//   - A bucket keeps the parameters of the Reserve that took from it last, which
//     is the newest policy it knows. Corrections (Refund, expiry, Confirm) refill
//     and cap by those, not by what was in force when the old hold was made: a
//     raised burst must not be cut down by the end of an old reservation. Only
//     where the counter has no state do the hold's own parameters count.
//   - A bucket that is full by its own parameters counts as absent from that
//     instant on, so absent state and state not yet cleaned up cannot be told
//     apart: the next hold finds it full at that hold's capacity.
//   - A correction by nothing does not touch the bucket.
//   - Leases that ended at the same instant are reclaimed in the order of their ids.
//   - Reclaiming is not a part of a call's own work: a refusal, a replay and a
//     DryRun reclaim as well. A DryRun stores no ticket.
//   - A reservation whose lease has ended is refunded late, reclaimed or not.
//   - A late Refund of a confirmed expiry brings the token with it: its closing
//     waits for the ledger again.
//   - An orphan's lease is minted + Lease, and its Refund is late from then on.
//   - A Charge neither checks nor takes slots.
//   - A quota's period must contain the present whatever the amount is.
//
// These it accepts either way: the ClosedAt of an expiry (the lease's end or the
// instant of the reclaim), whether a confirmed record that may be forgotten still
// is known, the Token of a confirmed record that no key replays, what a counter
// of a past period says besides held and unposted and whether it is seeded, what Actual says for slots, the
// ticket of a DryRun where none stood, and how instants after the year 2200 are
// shown.
package storetest
