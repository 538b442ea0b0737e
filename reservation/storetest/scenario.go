package storetest

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

//go:embed testdata/*.txt
var scenarios embed.FS

// Defaults of a scenario's reservations.
const (
	defaultLease     = time.Minute
	defaultRetention = 10 * time.Minute
)

// RunScenarios runs every scenario against an engine.
func RunScenarios(t *testing.T, newEngine func(tb testing.TB, clock *Clock) Engine) {
	files, err := scenarios.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	engine, clock := begin(t, newEngine)
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := scenarios.ReadFile(path.Join("testdata", file.Name()))
			if err != nil {
				t.Fatal(err)
			}
			s, err := parseScenario(string(text))
			if err != nil {
				t.Fatalf("%s: %v", file.Name(), err)
			}
			if slices.Contains(s.needs, "incarnate") && engine.Incarnate == nil ||
				slices.Contains(s.needs, "drift") && engine.Drift == nil ||
				slices.Contains(s.needs, "one_step_pools") && engine.SplitPools {
				return
			}
			clock.Set(Epoch)
			engine.LoseData()
			if err := playScenario(s, engine, clock); err != nil {
				t.Fatalf("%s:%v", file.Name(), err)
			}
		})
	}
}

// playScenario runs the steps; an error begins with the line.
func playScenario(s scenario, engine Engine, clock *Clock) error {
	p := &player{
		lockstep: newLockstep(engine, clock), clock: clock,
		limits: map[string]limitStep{}, plans: map[string]*plan{}, tickets: map[string][]givenTicket{},
	}
	for _, st := range s.steps {
		ids := st.ids
		if len(ids) == 0 {
			ids = []string{""}
		}
		for _, id := range ids {
			if err := p.play(st, id); err != nil {
				where := ""
				if len(ids) > 1 {
					where = " (" + id + ")"
				}
				return fmt.Errorf("%d%s: %s\n\t%w", st.line, where, st.text, err)
			}
			if err := p.compareAll(); err != nil {
				return fmt.Errorf("%d: after %s\n\t%w", st.line, st.text, err)
			}
		}
	}
	return nil
}

// player keeps what a scenario has named.
type player struct {
	*lockstep
	clock    *Clock
	limits   map[string]limitStep
	plans    map[string]*plan
	tickets  map[string][]givenTicket // by counter
	accounts []string
	counters []reservation.Hold // every counter that was named, with its limit as it was last
}

// plan is a request under the name of its reservation.
type plan struct {
	reservation.ReserveRequest
	names []string           // of the holds, as written
	held  []reservation.Hold // what was granted of a plan of which the engine decides something; else nil

	parent *plan // nil without one
}

// holds are those that the reservation's broker knows.
func (made *plan) holds() []reservation.Hold {
	if made.held != nil {
		return made.held
	}
	return made.Holds
}

type givenTicket struct {
	ticket int64
	hold   reservation.Hold
}

// facts are what an answer says, by name: a string, an amount, an int, a bool
// or a *time.Duration from now (nil for a zero instant).
type facts map[string]any

func (p *player) play(st step, id string) error {
	ctx := context.Background()
	now := p.clock.Now()
	got := facts{}
	var err error
	switch st.verb {
	case "+":
		p.clock.Add(st.span)
	case "back":
		p.clock.Add(-st.span)
	case "at":
		to := st.at
		if to.IsZero() {
			to = Epoch.Add(st.span)
		}
		if to.Before(now) {
			return fmt.Errorf("at: %s has passed already", shown(to))
		}
		p.clock.Set(to)
	case "limit":
		p.limits[st.limit.hold.Limit] = st.limit
	case "lose":
		p.loseData()
	case "incarnate":
		p.incarnate()
	case "mint", "reserve", "charge":
		err = p.reserve(ctx, st, id, got)
	case "refund":
		err = p.refund(ctx, st, id, got)
	case "confirm":
		err = p.confirm(ctx, st, id, got)
	case "renew":
		err = p.renew(ctx, st, id, got)
	case "restore":
		err = p.restore(ctx, st, id, got)
	case "drift":
		err = p.makeDrift(st)
	case "audit":
		err = p.audit(ctx, st, got)
	case "push":
		err = p.push(ctx, st)
	case "giveback":
		err = p.giveBack(ctx, st, got)
	case "leave":
		err = p.leave(ctx, id)
	case "open":
		err = p.open(ctx, st, got)
	case "seed":
		err = p.seed(ctx, st, got)
	case "sweep":
		err = p.sweep(ctx, got)
	case "lookup":
		err = p.lookup(ctx, id, got)
	case "levels":
		err = p.showLevels(ctx, st, got)
	default:
		return fmt.Errorf("step %q is not played", st.verb)
	}
	if err != nil {
		return err
	}
	for _, w := range st.wants {
		if err := got.expect(w); err != nil {
			return fmt.Errorf("%w\n\tanswered: %s", err, got)
		}
	}
	return nil
}

func (f facts) expect(w want) error {
	value, known := f[w.name]
	if !known {
		return fmt.Errorf("%s is expected, but the answer does not say it", w.name)
	}
	if span, ok := value.(*time.Duration); ok {
		if w.value == "none" || span == nil {
			if w.value != "none" || span != nil {
				return fmt.Errorf("%s is %s, not %s", w.name, showFact(value), w.value)
			}
			return nil
		}
		expected, err := parseSpan(w.value)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		if expected != *span {
			return fmt.Errorf("%s is %s, not %s", w.name, span, expected)
		}
		return nil
	}
	if got := showFact(value); got != w.value {
		return fmt.Errorf("%s is %s, not %s", w.name, got, w.value)
	}
	return nil
}

func showFact(value any) string {
	if span, ok := value.(*time.Duration); ok {
		if span == nil {
			return "none"
		}
		return span.String()
	}
	return fmt.Sprint(value)
}

// String lists the facts in order of their names.
func (f facts) String() string {
	var words []string
	for name, value := range f {
		if value == true {
			words = append(words, name)
		} else if value != false {
			words = append(words, name+"="+showFact(value))
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func (f facts) span(name string, at, now time.Time) {
	var span *time.Duration
	if !at.IsZero() {
		d := at.Sub(now)
		span = &d
	}
	f[name] = span
}

func (f facts) levels(names []string, levels []reservation.Level, now time.Time) {
	for i, l := range levels {
		prefixes := []string{names[i] + "."}
		if i == 0 {
			prefixes = append(prefixes, "")
		}
		for _, prefix := range prefixes {
			f[prefix+"remaining"], f[prefix+"used"] = l.Remaining, l.Used
			f[prefix+"held"], f[prefix+"unposted"] = l.Held, l.Unposted
			f[prefix+"seeded"], f[prefix+"version"] = l.Seeded, l.Version
			f.span(prefix+"resets", l.ResetsAt, now)
			f.span(prefix+"ban", l.BannedUntil, now)
			f[prefix+"sharing"] = l.Sharing
			f.span(prefix+"share", l.ShareAt, now)
		}
	}
}

func (f facts) record(names []string, r reservation.Record, now time.Time) {
	f["late"], f["confirmed"], f["rank"] = r.Late, r.Confirmed, r.Rank
	f["state"] = stateName(r.State)
	f.span("start", r.StartAt, now)
	f.span("expires", r.ExpiresAt, now)
	for i, actual := range r.Actual {
		if i == len(names) {
			break // a replay: the record is of another plan
		}
		f[names[i]+".actual"] = actual
	}
}

// hash is the body of a text.
func hash(text string) reservation.Hash {
	sum := sha256.Sum256([]byte(text))
	return reservation.Hash(sum[:16])
}

// splitName splits LIMIT[SCOPE].
func splitName(name string) (limit, scope string, err error) {
	limit, scope, scoped := strings.Cut(name, "[")
	if scoped {
		var closed bool
		if scope, closed = strings.CutSuffix(scope, "]"); !closed {
			return "", "", fmt.Errorf("%q: the scope is not closed by ]", name)
		}
	}
	return limit, scope, nil
}

// hold is a hold on the counter of that name, with its limit as it is now.
func (p *player) hold(name string) (reservation.Hold, error) {
	limit, scope, err := splitName(name)
	if err != nil {
		return reservation.Hold{}, err
	}
	l, known := p.limits[limit]
	if !known {
		return reservation.Hold{}, fmt.Errorf("limit %q was not defined", limit)
	}
	h := l.hold
	h.Scope = scope
	if h.Kind == quota.KindQuota {
		h.Period = quota.Account{TimeZone: "UTC", AnchorDay: 1}.PeriodAt(l.unit, p.clock.Now())
	}
	p.remember(h)
	return h, nil
}

// remember lets compareAll look at a counter from now on.
func (p *player) remember(h reservation.Hold) {
	for i, c := range p.counters {
		if c.Counter == h.Counter && c.Period.Key == h.Period.Key {
			p.counters[i] = h
			return
		}
	}
	p.counters = append(p.counters, h)
}

// newPlan reads ACCOUNT HOLDS OPTIONS.
func (p *player) newPlan(st step, id string) (*plan, error) {
	if len(st.args) == 0 {
		return nil, fmt.Errorf("%s: the account is missing", st.verb)
	}
	made := &plan{ReserveRequest: reservation.ReserveRequest{
		Account: st.args[0], Lease: defaultLease, Retention: defaultRetention,
		Body: hash("ask " + strings.Join(st.args, " ")), Token: []byte("token of " + id),
	}}
	for _, word := range st.args[1:] {
		name, value, stated := cutOption(word)
		h, err := p.hold(name)
		if err != nil {
			return nil, err
		}
		h.Amount = 1
		if stated {
			if h.Amount, err = parseAmount(value); err != nil {
				return nil, err
			}
		}
		made.Holds, made.names = append(made.Holds, h), append(made.names, name)
	}
	if word, stated := st.opts["keep"]; stated {
		if err := made.keep(word); err != nil {
			return nil, err
		}
	}
	minted := p.clock.Now()
	if word, stated := st.opts["minted"]; stated {
		span, err := parseSpan(word)
		if err != nil {
			return nil, fmt.Errorf("minted: %w", err)
		}
		minted = minted.Add(span)
	}
	made.ID = reservation.NewID(minted)
	if st.verb == "charge" {
		made.Settle = &reservation.Settlement{Body: hash("closing of " + id), Outcome: []byte("outcome of " + id)}
		made.Lease = 0
	}
	if !slices.Contains(p.accounts, made.Account) {
		p.accounts = append(p.accounts, made.Account)
	}
	return made, nil
}

func (p *player) plan(id string) (*plan, error) {
	if made := p.plans[id]; made != nil {
		return made, nil
	}
	return nil, fmt.Errorf("there is no reservation %q", id)
}

func (p *player) reserve(ctx context.Context, st step, id string, got facts) error {
	made := p.plans[id]
	if made == nil || len(st.args) > 0 {
		if made != nil {
			return fmt.Errorf("reservation %q exists; leave out account and holds to send it again", id)
		}
		var err error
		if made, err = p.newPlan(st, id); err != nil {
			return err
		}
		p.plans[id] = made
	}
	for name, span := range map[string]*time.Duration{"lease": &made.Lease, "retention": &made.Retention, "max_wait": &made.MaxWait} {
		if word, stated := st.opts[name]; stated {
			var err error
			if *span, err = parseSpan(word); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if key, stated := st.opts["key"]; stated {
		made.Key = key
	}
	if body, stated := st.opts["body"]; stated {
		made.Body = hash(body)
	}
	if token, stated := st.opts["token"]; stated {
		made.Token = []byte(token)
	}
	if err := p.setParent(made, st); err != nil {
		return err
	}
	if err := made.wait(st); err != nil {
		return err
	}
	if st.verb == "mint" {
		return nil
	}
	q := made.ReserveRequest
	q.DryRun = st.opts["dry"] != ""
	answer, err := p.Reserve(ctx, q)
	if err != nil {
		return err
	}
	now := answer.Now
	got[nameIn(reserveNames, answer.Verdict)] = true
	got["reclaimed"] = answer.Reclaimed
	switch answer.Verdict {
	case reservation.Granted:
		got.levels(made.names, answer.Levels, now)
		got.span("start", answer.StartAt, now)
		got.span("expires", answer.ExpiresAt, now)
		got.missed(made.names, answer, now)
		if q.Decides() && !q.DryRun {
			made.held = slices.Clone(q.Holds)
			for i, taken := range q.Taken(answer.Decided) {
				made.held[i].Amount, made.held[i].Risk = taken.Amount, taken.Risk
			}
		}
	case reservation.Refused:
		got.levels(made.names, answer.Levels, now)
		got[nameIn(reasonNames, answer.Refusal.Reason)] = true
		got["limit"], got["remaining"] = made.names[answer.Refusal.Hold], answer.Refusal.Remaining
		got.span("retry", answer.Refusal.RetryAt, now)
		got["place"] = answer.Place
		got["refused.sharing"] = answer.Refusal.Sharing
	case reservation.Replayed:
		// The record is of the first who asked with the key.
		got.record(made.names, answer.Record, now)
		got["token"] = string(answer.Record.Token)
	case reservation.Unseeded:
		for _, t := range answer.Tickets {
			counter := p.counterKey(q.Account, made.Holds[t.Hold])
			given := p.tickets[counter]
			which := slices.IndexFunc(given, func(g givenTicket) bool { return g.ticket == t.Ticket })
			if which < 0 && t.Ticket != 0 {
				which = len(given)
				p.tickets[counter] = append(given, givenTicket{t.Ticket, made.Holds[t.Hold]})
			}
			got[made.names[t.Hold]+".ticket"] = which + 1
		}
	}
	return nil
}

func (p *player) counterKey(account string, h reservation.Hold) string {
	return strings.Join([]string{account, h.Pool, h.Limit, h.Scope, h.Period.Key}, "\x00")
}

// amounts reads LIMIT=AMOUNT for the holds of a plan; 0 where not stated.
func (made *plan) amounts(words []string) ([]quota.Amount, error) {
	amounts := make([]quota.Amount, len(made.Holds))
	for _, word := range words {
		name, value, stated := cutOption(word)
		i := slices.Index(made.names, name)
		if !stated || i < 0 {
			return nil, fmt.Errorf("%q is no LIMIT=AMOUNT of a limit that was reserved", word)
		}
		var err error
		if amounts[i], err = parseAmount(value); err != nil {
			return nil, err
		}
	}
	return amounts, nil
}

func (p *player) refund(ctx context.Context, st step, id string, got facts) error {
	made, err := p.plan(id)
	if err != nil {
		return err
	}
	body := strings.Join(st.args, " ")
	if stated, ok := st.opts["body"]; ok {
		body = stated
	}
	q := reservation.RefundRequest{
		Account: made.Account, ID: made.ID, Lease: made.Lease, Retention: made.Retention,
		Body: hash("refund " + body), Outcome: []byte("outcome " + body), Token: made.Token,
		OnlyHeld: st.opts["held"] != "",
	}
	if q.Actual, err = made.amounts(st.args); err != nil {
		return err
	}
	if st.opts["orphan"] != "" {
		q.Holds, q.Kin = made.holds(), made.kin()
	}
	answer, err := p.Refund(ctx, q)
	if err != nil {
		return err
	}
	got[nameIn(refundNames, answer.Verdict)] = true
	got["reclaimed"] = answer.Reclaimed
	got.record(made.names, answer.Record, answer.Now)
	got.levels(made.names, answer.Levels, answer.Now)
	return nil
}

func (p *player) confirm(ctx context.Context, st step, id string, got facts) error {
	made, err := p.plan(id)
	if err != nil {
		return err
	}
	record, err := p.Lookup(ctx, made.Account, made.ID)
	if err != nil {
		return err
	}
	q := reservation.ConfirmRequest{
		Account: made.Account, ID: made.ID, Lease: made.Lease, Retention: made.Retention,
		Rank: record.Rank, Body: record.Body, Outcome: record.Outcome, Actual: record.Actual,
		Late: record.Late, ClosedAt: record.ClosedAt, Token: made.Token,
	}
	if len(st.args) > 0 || q.Actual == nil {
		if q.Actual, err = made.amounts(st.args); err != nil {
			return err
		}
	}
	if word, stated := st.opts["rank"]; stated {
		n, err := strconv.ParseUint(word, 10, 8)
		if err != nil {
			return fmt.Errorf("rank: %q is not a number", word)
		}
		q.Rank = ledger.Rank(n)
	}
	if q.Rank == 0 {
		return fmt.Errorf("confirm: %s is not closed; state rank and amounts", id)
	}
	if q.ClosedAt.IsZero() {
		q.ClosedAt = p.clock.Now()
	}
	q.Late = q.Late || st.opts["late"] != ""
	if body, stated := st.opts["body"]; stated {
		q.Body, q.Outcome = hash("refund "+body), []byte("outcome "+body)
	}
	if usage, stated := st.opts["usage"]; stated {
		name, value, _ := strings.Cut(usage, ":")
		used, version, ok := strings.Cut(value, "@")
		i := slices.Index(made.names, name)
		if !ok || i < 0 {
			return fmt.Errorf("usage: %q is not LIMIT:USED@VERSION of a limit that was reserved", usage)
		}
		u := reservation.CounterUsage{Counter: made.Holds[i].Counter, Period: made.Holds[i].Period}
		if u.Used, err = parseAmount(used); err != nil {
			return err
		}
		if u.Version, err = strconv.ParseInt(version, 10, 64); err != nil {
			return fmt.Errorf("usage: version %q is not a number", version)
		}
		q.Usage = append(q.Usage, u)
	}
	if st.opts["orphan"] != "" {
		q.Holds, q.Kin = made.holds(), made.kin()
	}
	verdict, err := p.Confirm(ctx, q)
	if err != nil {
		return err
	}
	got[nameIn(confirmNames, verdict)] = true
	return nil
}

func (p *player) renew(ctx context.Context, st step, id string, got facts) error {
	made, err := p.plan(id)
	if err != nil {
		return err
	}
	lease := made.Lease
	if word, stated := st.opts["lease"]; stated {
		if lease, err = parseSpan(word); err != nil {
			return fmt.Errorf("lease: %w", err)
		}
	}
	q := reservation.RenewRequest{Account: made.Account, ID: made.ID, Lease: lease, Peek: made.holds()}
	if err := p.tellUsed(made, st, &q); err != nil {
		return err
	}
	answer, err := p.Renew(ctx, q)
	if err != nil {
		return err
	}
	got.standing(made, answer)
	got[stateName(answer.State)] = true
	got["reclaimed"] = answer.Reclaimed
	got.span("expires", answer.ExpiresAt, answer.Now)
	return nil
}

func (p *player) restore(ctx context.Context, st step, id string, got facts) error {
	made, err := p.plan(id)
	if err != nil {
		return err
	}
	q := reservation.RestoreRequest{
		Account: made.Account, ID: made.ID, Holds: made.holds(), ExpiresAt: made.ID.Minted().Add(made.Lease),
		Retention: made.Retention, Key: made.Key, Body: made.Body, Token: made.Token, Kin: made.kin(),
	}
	if word, stated := st.opts["lease"]; stated {
		lease, err := parseSpan(word)
		if err != nil {
			return fmt.Errorf("lease: %w", err)
		}
		q.ExpiresAt = p.clock.Now().Add(lease)
	}
	if word, stated := st.opts["start"]; stated {
		wait, err := parseSpan(word)
		if err != nil {
			return fmt.Errorf("start: %w", err)
		}
		q.StartAt = p.clock.Now().Add(wait)
	}
	if st.opts["keyless"] != "" {
		q.Key, q.Body = "", reservation.Hash{}
	}
	verdict, err := p.Restore(ctx, q)
	if err != nil {
		return err
	}
	got[nameIn(restoreNames, verdict)] = true
	return nil
}

// makeDrift reads ACCOUNT LIMIT held=N unposted=N.
func (p *player) makeDrift(st step) error {
	if len(st.args) != 2 {
		return fmt.Errorf("drift: write drift ACCOUNT LIMIT held=N unposted=N")
	}
	h, err := p.hold(st.args[1])
	if err != nil {
		return err
	}
	var by [2]quota.Amount
	for i, name := range []string{"held", "unposted"} {
		if word, stated := st.opts[name]; stated {
			if by[i], err = parseAmount(word); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	p.drift(st.args[0], h, by[0], by[1])
	return nil
}

func (p *player) audit(ctx context.Context, st step, got facts) error {
	if len(st.args) == 0 {
		return fmt.Errorf("audit: write audit ACCOUNT and the LIMITS to name")
	}
	q := reservation.AuditRequest{Account: st.args[0], Repair: st.opts["repair"] != ""}
	for _, name := range st.args[1:] {
		h, err := p.hold(name)
		if err != nil {
			return err
		}
		q.Counters = append(q.Counters, reservation.AuditCounter{Counter: h.Counter, Period: h.Period})
	}
	answer, err := p.Audit(ctx, q)
	if err != nil {
		return err
	}
	got["records"], got["waiting"] = answer.Records, answer.Waiting
	var others []string
	for i, row := range answer.Counters {
		name := row.Counter.Limit
		if row.Counter.Scope != "" {
			name += "[" + row.Counter.Scope + "]"
		}
		if i >= len(q.Counters) {
			others = append(others, name)
		}
		got[name+".seeded"], got[name+".used"], got[name+".version"] = row.Seeded, row.Used, row.Version
		got[name+".held"], got[name+".unposted"] = row.Held, row.Unposted
		got[name+".held_sum"], got[name+".unposted_sum"] = row.HeldSum, row.UnpostedSum
		got[name+".repaired"] = row.Repaired
	}
	if len(others) == 0 {
		others = []string{"none"}
	}
	got["others"] = strings.Join(others, ",")
	return nil
}

func (p *player) push(ctx context.Context, st step) error {
	if len(st.args) != 2 {
		return fmt.Errorf("push: write push ACCOUNT LIMIT used=N ver=N")
	}
	h, err := p.hold(st.args[1])
	if err != nil {
		return err
	}
	u := reservation.CounterUsage{Counter: h.Counter, Period: h.Period}
	for name, to := range map[string]*int64{"used": (*int64)(&u.Used), "ver": &u.Version} {
		if *to, err = strconv.ParseInt(st.opts[name], 10, 64); err != nil {
			return fmt.Errorf("%s: %q is not a number", name, st.opts[name])
		}
	}
	return p.Push(ctx, st.args[0], []reservation.CounterUsage{u})
}

func (p *player) giveBack(ctx context.Context, st step, got facts) error {
	if len(st.args) < 2 {
		return fmt.Errorf("giveback: write giveback ACCOUNT and one LIMIT=AMOUNT or more")
	}
	var names []string
	var holds []reservation.Hold
	for _, arg := range st.args[1:] {
		at := strings.LastIndexByte(arg, '=')
		amount, err := strconv.ParseInt(arg[at+1:], 10, 64)
		if at < 0 || err != nil {
			return fmt.Errorf("giveback: %q is not LIMIT=AMOUNT", arg)
		}
		h, err := p.hold(arg[:at])
		if err != nil {
			return err
		}
		h.Amount = quota.Amount(amount)
		names, holds = append(names, arg[:at]), append(holds, h)
	}
	answer, err := p.GiveBack(ctx, st.args[0], holds)
	if err != nil {
		return err
	}
	for i, given := range answer.Given {
		got[names[i]+".given"] = given
	}
	got.levels(names, answer.Levels, answer.Now)
	return nil
}

func (p *player) open(ctx context.Context, st step, got facts) error {
	if len(st.args) != 1 {
		return fmt.Errorf("open: write open ACCOUNT")
	}
	most := reservation.MaxOpenPage
	if word, stated := st.opts["most"]; stated {
		var err error
		if most, err = strconv.Atoi(word); err != nil {
			return fmt.Errorf("most: %q is not a number", word)
		}
	}
	open, err := p.Open(ctx, st.args[0], most)
	if err != nil {
		return err
	}
	names := []string{}
	for _, o := range open {
		for name, made := range p.plans {
			if made.ID == o.ID && made.Account == st.args[0] {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		names = []string{"none"}
	}
	got["open"] = strings.Join(names, ",")
	return nil
}

func (p *player) seed(ctx context.Context, st step, got facts) error {
	if len(st.args) != 2 {
		return fmt.Errorf("seed: write seed ACCOUNT LIMIT used=N ver=N")
	}
	h, err := p.hold(st.args[1])
	if err != nil {
		return err
	}
	s := reservation.SeedRequest{Account: st.args[0], Counter: h.Counter, Period: h.Period}
	given := p.tickets[p.counterKey(s.Account, h)]
	which := len(given)
	for name, to := range map[string]*int64{"used": (*int64)(&s.Used), "ver": &s.Version} {
		if *to, err = strconv.ParseInt(st.opts[name], 10, 64); err != nil {
			return fmt.Errorf("%s: %q is not a number", name, st.opts[name])
		}
	}
	if word, stated := st.opts["ticket"]; stated {
		if which, err = strconv.Atoi(word); err != nil || which < 0 || which > len(given) {
			return fmt.Errorf("ticket: %q is not 0 to %d", word, len(given))
		}
	}
	s.Ticket = 4242 // never given
	if which > 0 {
		s.Ticket, s.Period = given[which-1].ticket, given[which-1].hold.Period
	}
	accepted, err := p.Seed(ctx, s)
	if err != nil {
		return err
	}
	got["yes"], got["no"] = accepted, !accepted
	return nil
}

func (p *player) sweep(ctx context.Context, got facts) error {
	before := p.epoch
	answer, err := p.Sweep(ctx)
	if err != nil {
		return err
	}
	got["epoch"] = "new"
	if answer.Epoch == before {
		got["epoch"] = "same"
	}
	var names []string
	for _, pending := range answer.Pending {
		for name, made := range p.plans {
			if made.ID == pending.ID && made.Account == pending.Account {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		names = []string{"none"}
	}
	got["pending"], got["expired"] = strings.Join(names, ","), answer.Expired
	return nil
}

func (p *player) lookup(ctx context.Context, id string, got facts) error {
	made, err := p.plan(id)
	if err != nil {
		return err
	}
	record, err := p.Lookup(ctx, made.Account, made.ID)
	if err != nil {
		return err
	}
	got[stateName(record.State)] = true
	got.record(made.names, record, p.clock.Now())
	return nil
}

func (p *player) showLevels(ctx context.Context, st step, got facts) error {
	if len(st.args) < 2 {
		return fmt.Errorf("levels: write levels ACCOUNT and one LIMIT or more")
	}
	var holds []reservation.Hold
	for _, name := range st.args[1:] {
		h, err := p.hold(name)
		if err != nil {
			return err
		}
		holds = append(holds, h)
	}
	levels, now, err := p.Levels(ctx, st.args[0], holds)
	if err != nil {
		return err
	}
	got.levels(st.args[1:], levels, now)
	return nil
}

// compareAll compares every counter and record that was named.
func (p *player) compareAll() error {
	ctx := context.Background()
	for _, account := range p.accounts {
		for from := range slices.Chunk(p.counters, reservation.MaxHolds) {
			if _, _, err := p.Levels(ctx, account, from); err != nil {
				return fmt.Errorf("account %q: %w", account, err)
			}
		}
	}
	for name, made := range p.plans {
		if _, err := p.Lookup(ctx, made.Account, made.ID); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
