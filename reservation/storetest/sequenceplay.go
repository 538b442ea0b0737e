package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// sequencePlayer plays the moves of one sequence.
type sequencePlayer struct {
	caller
	clock    *Clock
	books    *books
	limits   []seqLimit // every one that there was, as it was last
	made     map[int]*reservation.ReserveRequest
	taken    map[reservation.ID][]reservation.Hold // what was taken where a shadow limit decided
	closings map[reservation.ID]reservation.Record // as last told, for Confirm
	ledger   map[string]*posted
	calls    int
	out      *strings.Builder
}

// line writes a line of the scenario that the sequence is.
func (p *sequencePlayer) line(format string, args ...any) {
	if p.out != nil {
		fmt.Fprintf(p.out, format+"\n", args...)
	}
}

func (p *sequencePlayer) limitLine(l seqLimit) { p.line("%s", limitText(l)) }

// failed adds to an error which step it was.
func failed(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// hold is a hold on a limit as it is now.
func (p *sequencePlayer) hold(h seqHold) (reservation.Hold, bool) {
	i := slices.IndexFunc(p.limits, func(l seqLimit) bool { return l.hold.Limit == h.name })
	if i < 0 {
		return reservation.Hold{}, false
	}
	hold := p.limits[i].hold
	hold.Scope, hold.Amount, hold.Keep = h.scope, h.amount, h.keep
	if hold.Kind == quota.KindQuota {
		hold.Period = quota.Account{TimeZone: "UTC", AnchorDay: 1}.PeriodAt(p.limits[i].unit, p.clock.Now())
	}
	return hold, true
}

// lookAtAll compares every counter that was touched.
func (p *sequencePlayer) lookAtAll() error {
	for _, account := range p.books.accounts {
		var holds []reservation.Hold
		for _, c := range p.books.seen {
			if c.account == account || c.account == "" {
				h, ok := p.hold(seqHold{name: c.Limit, scope: c.Scope})
				if ok {
					holds = append(holds, h)
				}
			}
		}
		if len(holds) == 0 {
			continue
		}
		p.calls++
		levels, _, err := p.Levels(context.Background(), account, holds)
		if err == nil {
			err = p.books.check(account, holds, levels)
		}
		if err != nil {
			return failed(err, "then the levels of %s", account)
		}
	}
	for _, r := range p.books.records {
		if r.start == 0 || !r.open(p.books.now()) {
			continue
		}
		p.calls++
		record, err := p.Lookup(context.Background(), r.account, r.id)
		if err == nil {
			err = p.books.sameStart(r, record)
		}
		if err != nil {
			return failed(err, "then %s", r.id)
		}
	}
	return nil
}

// holdsOf is what a reservation holds, as its broker knows it.
func (p *sequencePlayer) holdsOf(made *reservation.ReserveRequest) []reservation.Hold {
	if holds := p.taken[made.ID]; holds != nil {
		return holds
	}
	return made.Holds
}

// kinOf is what the token of a reservation would say of its envelope.
func (p *sequencePlayer) kinOf(made *reservation.ReserveRequest) reservation.Kin {
	for _, parent := range p.made {
		if parent.ID == made.Parent {
			return reservation.Kin{Parent: made.Parent, Taken: takenOf(parent.Holds, made.Holds)}
		}
	}
	return reservation.Kin{}
}

func (m *reserveMove) play(p *sequencePlayer) error {
	q := reservation.ReserveRequest{
		Account: m.account, ID: reservation.NewID(p.clock.Now()), Lease: m.lease, Retention: m.retention, Key: m.key,
		Body: hash("ask"), Token: fmt.Appendf(nil, "token of r%d", m.n), DryRun: m.dry, MaxWait: m.wait,
	}
	copy(q.ID[8:], fmt.Sprintf("%08d", m.n)) // the same in every engine
	for _, h := range m.holds {
		hold, ok := p.hold(h)
		if !ok {
			return errNotPlayable
		}
		q.Holds = append(q.Holds, hold)
	}
	if m.charge {
		q.Settle = &reservation.Settlement{Body: hash("closing"), Outcome: []byte("outcome")}
	}
	if parent := p.made[m.parent]; m.inside && parent != nil {
		q.Parent = parent.ID
		if i := slices.IndexFunc(m.holds, func(h seqHold) bool { return h.spills }); i >= 0 {
			q.Spill = q.Spill.With(i)
		}
	}
	if q.Key != "" && p.books.keyless(q) {
		return nil // an engine may know the key or not
	}
	p.made[m.n] = &q
	text := fmt.Sprintf("reserve r%d %s", m.n, m.account)
	if m.charge {
		text = fmt.Sprintf("charge r%d %s", m.n, m.account)
	}
	for i, h := range m.holds {
		if q.Holds[i].Kind == quota.KindSlots {
			text += " " + h.String()
		} else {
			text += fmt.Sprintf(" %s=%d", h, h.amount)
		}
	}
	if !m.charge {
		text += fmt.Sprintf(" lease=%s", m.lease)
	}
	text += fmt.Sprintf(" retention=%s body=ask", m.retention)
	if m.key != "" {
		text += " key=" + m.key
	}
	var kept []string
	for _, h := range m.holds {
		if h.keep > 0 {
			kept = append(kept, fmt.Sprintf("%s:%d", h, h.keep))
		}
		if h.spills && q.Spill != 0 {
			text += " spill=" + h.String()
		}
	}
	if len(kept) > 0 {
		text += " keep=" + strings.Join(kept, ",")
	}
	if m.wait > 0 {
		text += fmt.Sprintf(" max_wait=%s", m.wait)
	}
	if q.Parent != (reservation.ID{}) {
		text += fmt.Sprintf(" parent=r%d", m.parent)
	}
	return p.send(q, text)
}

func (m *againMove) play(p *sequencePlayer) error {
	q := p.made[m.n]
	if q == nil {
		return nil
	}
	again := *q
	again.DryRun = false
	verb := "reserve"
	if q.Settle != nil {
		verb = "charge"
	}
	return p.send(again, fmt.Sprintf("%s r%d", verb, m.n))
}

// send reserves, and seeds first what asks for it.
func (p *sequencePlayer) send(q reservation.ReserveRequest, text string) error {
	ctx := context.Background()
	if q.Key != "" && p.books.keyless(q) {
		return nil // an engine may know the key or not
	}
	for range 2 {
		if q.DryRun {
			text += " dry"
		}
		p.calls++
		answer, err := p.Reserve(ctx, q)
		if wait := answer.StartAt.Sub(answer.Now); answer.Verdict == reservation.Granted && wait > 0 {
			p.line("%s -> granted start=%s", text, wait)
		} else {
			p.line("%s -> %s", text, nameIn(reserveNames, answer.Verdict))
		}
		if err == nil {
			err = p.books.reserved(q, answer)
		}
		if err != nil {
			return failed(err, "%s", text)
		}
		if answer.Verdict == reservation.Replayed {
			// The record is of the first who asked with the key.
			return nil
		}
		if answer.Verdict == reservation.Granted && !q.DryRun && q.Decides() {
			holds := slices.Clone(q.Holds)
			for i, taken := range q.Taken(answer.Decided) {
				holds[i].Amount = taken.Amount
			}
			p.taken[q.ID] = holds
		}
		if q.Settle != nil && answer.Verdict == reservation.Granted && !q.DryRun {
			record := reservation.Record{Rank: 2, Body: q.Settle.Body, Outcome: q.Settle.Outcome, ClosedAt: answer.Now}
			for _, h := range p.holdsOf(&q) {
				record.Actual = append(record.Actual, h.Amount)
			}
			p.closings[q.ID] = record
		}
		if answer.Verdict != reservation.Unseeded || q.DryRun {
			return nil
		}
		text, _, _ = strings.Cut(text, " lease=")
		words := strings.Fields(text)
		text = strings.Join(words[:2], " ")
		for _, ticket := range answer.Tickets {
			h := q.Holds[ticket.Hold]
			row := p.row(q.Account, h)
			s := reservation.SeedRequest{
				Account: q.Account, Counter: h.Counter, Period: h.Period, Ticket: ticket.Ticket, Used: row.used, Version: row.version,
			}
			p.calls++
			ok, err := p.Seed(ctx, s)
			p.line("seed %s %s used=%d ver=%d -> %s", q.Account, seqHold{name: h.Limit, scope: h.Scope}, row.used, row.version, map[bool]string{true: "yes", false: "no"}[ok])
			if err == nil {
				err = p.books.seeded(s, ok)
			}
			if err != nil {
				return failed(err, "seed %s %s", q.Account, h.Limit)
			}
		}
	}
	return nil
}

// row is the ledger's for a quota's counter.
func (p *sequencePlayer) row(account string, h reservation.Hold) *posted {
	key := fmt.Sprintf("%q %q %q %q", account, h.Limit, h.Scope, h.Period.Key)
	if p.ledger[key] == nil {
		p.ledger[key] = &posted{}
	}
	return p.ledger[key]
}

func (m *refundMove) play(p *sequencePlayer) error {
	made := p.made[m.n]
	if made == nil {
		return nil
	}
	q := reservation.RefundRequest{
		Account: made.Account, ID: made.ID, Lease: made.Lease, Retention: made.Retention, Token: made.Token, OnlyHeld: m.held,
	}
	body := strings.Trim(strings.ReplaceAll(fmt.Sprint(m.actual), " ", ","), "[]")
	q.Body, q.Outcome = hash("refund "+body), []byte("outcome "+body)
	text := fmt.Sprintf("refund r%d", m.n)
	for i, h := range made.Holds {
		actual := m.actual[i]
		if h.Kind == quota.KindSlots {
			actual = 0
		} else {
			text += fmt.Sprintf(" %s=%d", seqHold{name: h.Limit, scope: h.Scope}, actual)
		}
		q.Actual = append(q.Actual, actual)
	}
	if m.orphan {
		q.Holds, q.Kin = p.holdsOf(made), p.kinOf(made)
		text += " orphan"
	}
	if m.held {
		text += " held"
	}
	text += " body=" + body
	p.calls++
	answer, err := p.Refund(context.Background(), q)
	p.line("%s -> %s", text, nameIn(refundNames, answer.Verdict))
	if err == nil {
		err = p.books.refunded(q, p.holdsOf(made), answer)
	}
	if answer.Verdict == reservation.RefundSettled {
		p.closings[q.ID] = answer.Record
	}
	return failed(err, "%s", text)
}

func (m *renewMove) play(p *sequencePlayer) error {
	made := p.made[m.n]
	if made == nil {
		return nil
	}
	q := reservation.RenewRequest{Account: made.Account, ID: made.ID, Lease: m.lease}
	p.calls++
	answer, err := p.Renew(context.Background(), q)
	p.line("renew r%d lease=%s -> %s", m.n, m.lease, stateName(answer.State))
	if err == nil {
		err = p.books.renewed(q, answer)
	}
	return failed(err, "renew r%d lease=%s", m.n, m.lease)
}

// play posts a closing to the ledger and confirms it, if there is one.
func (m *confirmMove) play(p *sequencePlayer) error {
	made := p.made[m.n]
	if made == nil {
		return nil
	}
	record, closed := p.closings[made.ID]
	if !closed {
		return nil
	}
	q := reservation.ConfirmRequest{
		Account: made.Account, ID: made.ID, Lease: made.Lease, Retention: made.Retention, Token: made.Token,
		Rank: record.Rank, Body: record.Body, Outcome: record.Outcome, Actual: record.Actual, Late: record.Late, ClosedAt: record.ClosedAt,
	}
	text := fmt.Sprintf("confirm r%d", m.n)
	// A scenario names one usage: post the first quota's.
	for i, h := range made.Holds {
		if h.Kind == quota.KindQuota {
			row := p.row(made.Account, h)
			row.used += record.Actual[i]
			row.version++
			q.Usage = append(q.Usage, reservation.CounterUsage{Counter: h.Counter, Period: h.Period, Used: row.used, Version: row.version})
			text += fmt.Sprintf(" usage=%s:%d@%d", seqHold{name: h.Limit, scope: h.Scope}, row.used, row.version)
			break
		}
	}
	if m.orphan {
		q.Holds, q.Kin = p.holdsOf(made), p.kinOf(made)
		text += " orphan"
	}
	p.calls++
	verdict, err := p.Confirm(context.Background(), q)
	p.line("%s -> %s", text, nameIn(confirmNames, verdict))
	if err == nil {
		err = p.books.confirmed(q, verdict)
	}
	return failed(err, "%s", text)
}

func (m *giveBackMove) play(p *sequencePlayer) error {
	var holds []reservation.Hold
	text := "giveback " + m.account
	for _, h := range m.holds {
		hold, ok := p.hold(h)
		if !ok {
			return errNotPlayable
		}
		holds = append(holds, hold)
		text += fmt.Sprintf(" %s=%d", h, h.amount)
	}
	p.calls++
	answer, err := p.GiveBack(context.Background(), m.account, holds)
	p.line("%s", text)
	if err == nil {
		err = p.books.gaveBack(m.account, holds, answer)
	}
	return failed(err, "%s", text)
}

func (m *sweepMove) play(p *sequencePlayer) error {
	p.calls++
	answer, err := p.Sweep(context.Background())
	p.line("sweep -> expired=%d", answer.Expired)
	if err == nil {
		err = p.books.swept(answer)
	}
	for _, pending := range answer.Pending {
		p.closings[pending.ID] = pending.Record
	}
	return failed(err, "sweep")
}

func (m *timeMove) play(p *sequencePlayer) error {
	if m.step < 0 {
		p.line("back %s", -m.step)
	} else {
		p.line("+%s", m.step)
	}
	p.clock.Add(m.step)
	p.books.pass(m.step.Microseconds())
	return nil
}

func (m *limitMove) play(p *sequencePlayer) error {
	p.limitLine(m.to)
	for i := range p.limits {
		if p.limits[i].hold.Limit == m.to.hold.Limit {
			p.limits[i] = m.to
			return nil
		}
	}
	p.limits = append(p.limits, m.to)
	return nil
}
