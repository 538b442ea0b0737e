package reservation

import (
	"github.com/budgetd/budgetd/ledger"
)

// Drained takes what the ledger decided of closings that had waited on this
// node's disk, and lets the engine know, off the caller's path. It does not
// block. What does not fit into the queue is finished by a Sweeper, as the
// engine keeps those closings until they are confirmed.
func (b *Broker) Drained(drained []ledger.Drained) {
	for i := range drained {
		d := &drained[i]
		b.observe(d.Verdict.Usage)
		token, err := openToken(d.Token, b.Keys)
		if err != nil {
			b.metrics.unreadable.Inc()
			b.config.Logger.Error("a closing that waited for the ledger can't be confirmed", "account", d.Closing.Account, "reservation", ID(d.Closing.Reservation).String(), "error", err)
			continue
		}
		b.confirms.enqueue(confirmation{token: token, raw: d.Token, verdict: d.Verdict})
	}
}

// observe lets the observer hear of usage rows.
func (b *Broker) observe(usage []ledger.Usage) {
	b.late.note(b.Policies.Current(), usage)
	if b.Observer != nil && len(usage) > 0 {
		b.Observer.Observed(usage)
	}
}

// spooled is how many closings wait on this node's disk for the ledger.
func (b *Broker) spooled() int {
	if spool, ok := b.Ledger.(interface{ Waiting() int }); ok {
		return spool.Waiting()
	}
	return 0
}

// poster posts closings that the engine keeps until they are confirmed.
func (b *Broker) poster() ledger.Appender {
	if b.Poster != nil {
		return b.Poster
	}
	return b.Ledger
}
