package reservation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/concurrency"
	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/estimator/forecast"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Policies gives the policy in force. A new one takes effect at the next call.
type Policies interface {
	Current() *quota.Policy
}

// Estimator counts and prices model calls, at the prices of reservations that
// are made at an instant. Implementations are safe for concurrent use.
type Estimator interface {
	// EstimateContext fails with estimator.ErrBusy when the context ends first.
	EstimateContext(ctx context.Context, call estimator.Call, at time.Time) (estimator.Estimate, error)
	// ModelAt finds a model of a provider ("" when unknown) and what it costs.
	// The error wraps estimator.ErrUnknownModel.
	ModelAt(provider, model string, at time.Time) (estimator.Model, error)
	// CountSeen counts the text of a cut answer of a priced model. The error wraps
	// estimator.ErrBusy when the context ends first.
	CountSeen(ctx context.Context, provider, model, text string, at time.Time) (quota.Tokens, error)
	// Learn tells of a settled call whose input was counted by a rule, once: the
	// provider and model of its price, the estimate's RuleInput, and the prompt
	// tokens that the provider counted.
	Learn(provider, model string, ruleInput, real quota.Tokens, at time.Time)
}

// Parts are what a Broker is made of. All are required but those that say what
// nil stands for.
type Parts struct {
	Store     Store
	Ledger    ledger.Ledger // Append is called concurrently: give a group committer
	Policies  Policies
	Estimator Estimator
	Keys      TokenKeys

	// Poster posts closings that the engine keeps until they are confirmed:
	// unlike Ledger.Append it never spools. Nil: Ledger.
	Poster ledger.Appender
	// Observer hears of usage rows that a closing, an adjustment or another
	// node changed, so that alerts are raised. It must not block. Nil: nobody.
	Observer Observer
	// Alerts tells which alerts stand, for Overview. Nil: none are shown.
	Alerts AlertReader
	// Forecasts keeps what brokers learned of output lengths, for all of them and
	// over a restart. Nil: this broker learns for itself and begins anew.
	Forecasts forecast.Store
}

// Observer hears of usage rows of the ledger. It may hear of a row late, twice
// or in another order than that of its versions.
type Observer interface {
	Observed(usage []ledger.Usage)
}

// AlertReader tells which alerts were raised on the usage rows: one slice a
// key, in order.
type AlertReader interface {
	Raised(ctx context.Context, keys []ledger.UsageKey) ([][]quota.Alert, error)
}

// Config tunes a Broker. The zero value is ready for production.
type Config struct {
	// Deadline bounds every step in the engine, and Reserve as a whole:
	// whatever the engine or the ledger does, Reserve answers within it.
	// 50 ms unless set.
	Deadline time.Duration
	// LedgerDeadline bounds the ledger's part of a Refund. 5 s unless set.
	LedgerDeadline time.Duration
	// Lease is what callers get that name none; 60 s unless set.
	Lease time.Duration
	// Retention is how long a reservation is remembered after its lease's end;
	// 10 minutes unless set. It is raised, up to 24 h, to the longest time in
	// which a bucket of the reservation fills.
	Retention time.Duration
	// Registered is how many open reservations this broker remembers, so that
	// it can bring them back when the engine has lost its data: 100,000 unless
	// set. Beyond, those whose lease ends first are left out. Below 0: none,
	// for an engine that can't lose its data alone.
	Registered int
	// MaxHeld is how many calls this broker holds at once that wait for slots: 1,000
	// unless set. Beyond, a call that slots refuse is refused, whatever its MaxWait.
	// Below 0: none, and so with ConfirmInCall: held calls wait in real time.
	MaxHeld int
	// AuditRate is how many accounts a second an Auditor walks through in the
	// background: 10 unless set. Below 0: none, and only what changes in the
	// ledger is followed.
	AuditRate float64
	// ConfirmQueue bounds the confirmations that wait to reach the engine;
	// 4,096 unless set. What does not fit is finished by a Sweeper.
	ConfirmQueue int
	// ConfirmInCall has a closing confirmed before its Refund answers: with one
	// caller, what the engine decides then depends on the calls alone, and not on
	// when a confirmation arrives. For a run on a virtual clock.
	ConfirmInCall bool
	// RetryJitter has callers that a window or a quota refused come back later than
	// it allows, each by another time: up to this many percent of the window, 30 s at
	// most. 0: all are told the same instant.
	RetryJitter int
	// Now is the local clock, used to mint ids; the engine's clock corrects
	// it. time.Now unless set.
	Now func() time.Time
	// Registerer takes the metrics; none unless set.
	Registerer prometheus.Registerer
	// Logger takes what an operator must know; slog.Default unless set.
	Logger *slog.Logger
}

// DefaultMaxHeld is how many calls a broker holds unless set.
const DefaultMaxHeld = 1000

// MaxKeyText is the longest idempotency key that a caller may send, in bytes.
const MaxKeyText = MaxKeyBytes

func checkKey(key string) error {
	if len(key) > MaxKeyText {
		return &InvalidError{Field: "idempotency_key", Problem: fmt.Sprintf("%d bytes long", len(key)), Bound: fmt.Sprintf("at most %d bytes", MaxKeyText)}
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Deadline <= 0 {
		c.Deadline = 50 * time.Millisecond
	}
	if c.LedgerDeadline <= 0 {
		c.LedgerDeadline = 5 * time.Second
	}
	if c.Lease <= 0 {
		c.Lease = concurrency.DefaultLease
	}
	if c.Retention <= 0 {
		c.Retention = concurrency.DefaultRetention
	}
	if c.Registered == 0 {
		c.Registered = 100_000
	}
	if c.MaxHeld == 0 {
		c.MaxHeld = DefaultMaxHeld
	}
	if c.MaxHeld < 0 || c.ConfirmInCall {
		c.MaxHeld = 0
	}
	if c.AuditRate == 0 {
		c.AuditRate = 10
	}
	if c.ConfirmQueue <= 0 {
		c.ConfirmQueue = 4096
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Broker decides. It is safe for concurrent use; Close it to finish what it
// still has to tell the engine.
type Broker struct {
	Parts
	config    Config
	metrics   *metrics
	confirms  *confirmer
	seeds     *seeder
	registry  *registry
	restores  *restorer
	told      *toldVersions
	late      *lateUses
	audited   *auditFindings
	held      *heldCalls
	forecasts *forecast.Learner
	skew      atomic.Int64 // microseconds by which the engine's clock is ahead of ours
}

// NewBroker makes a Broker.
func NewBroker(parts Parts, config Config) *Broker {
	b := &Broker{Parts: parts, config: config.withDefaults()}
	b.metrics = newMetrics(b.config.Registerer)
	b.registry = newRegistry(b.config.Registered, b.metrics)
	b.metrics.registered(b.config.Registerer, b.registry)
	b.restores = newRestorer(b)
	b.forecasts = forecast.New(forecast.Config{Shared: parts.Forecasts != nil})
	b.told = newToldVersions()
	b.late = newLateUses()
	b.audited = &auditFindings{metrics: &b.metrics.audit, found: map[string]accountGaps{}}
	b.held = newHeldCalls(parts.Store, b.config.MaxHeld)
	b.metrics.holding(b.config.Registerer, b.held)
	b.confirms = startConfirmer(b)
	b.seeds = newSeeder(b)
	return b
}

// Close waits, at most until ctx ends, until confirmations on their way have
// reached the engine. What is left then is finished by any Sweeper. No method
// may be called after it.
func (b *Broker) Close(ctx context.Context) error {
	b.held.end()
	b.seeds.close()
	return b.confirms.close(ctx)
}

// now is the engine's clock as far as we know it.
func (b *Broker) now() time.Time {
	return b.config.Now().Add(time.Duration(b.skew.Load()) * time.Microsecond)
}

// learnClock takes over the engine's clock after it refused our idea of now.
func (b *Broker) learnClock(engine time.Time) {
	b.skew.Store(engine.Sub(b.config.Now()).Microseconds())
}

// Reserve takes everything that a call may need, or nothing. See [Decision].
//
// Errors: *InvalidError, ErrNotFound (account), ErrParentUnknown, ErrParentEnded,
// ErrParentFull, ErrKeyReused, ErrUnavailable
// (wrapped in *DownError when a limit's rule says so), estimator errors.
func (b *Broker) Reserve(ctx context.Context, ask Ask) (Decision, error) {
	start := time.Now()
	d, held, err := b.reserve(ctx, ask)
	b.metrics.decided("reserve", time.Since(start)-held, d, err)
	return d, err
}

// reserve is Reserve, and tells how long the call was held for a slot.
func (b *Broker) reserve(ctx context.Context, ask Ask) (d Decision, held time.Duration, err error) {
	lease := b.config.Lease
	if ask.Lease != nil {
		if lease, err = checkedLease(*ask.Lease); err != nil {
			return Decision{}, 0, err
		}
	}
	// Counting may take three fifths of the deadline, so that the engine has the
	// rest: a long text must not make it look slow.
	began := time.Now()
	counting, cancel := context.WithTimeout(ctx, b.config.Deadline*3/5)
	defer cancel()
	w, err := b.prepare(counting, ask, lease)
	if err != nil {
		return Decision{}, 0, err
	}
	if w.mayHold() && b.held.size() < b.held.most {
		w.line = &Line{Waiter: w.waiter(b), Keep: heldKeep}
	}
	asking, cancel := context.WithTimeout(ctx, max(b.config.Deadline-time.Since(began), b.config.Deadline*2/5))
	defer cancel()
	if d, err = b.commit(asking, w); err == nil && w.place > 0 {
		d, held, err = b.hold(ctx, w, d)
	}
	if d.Grant != nil {
		d.Grant.Estimate = w.estimate
	}
	return d, held, err
}

// work is one Reserve or Charge on its way.
type work struct {
	policy   *quota.Policy
	plan     plan
	token    reservationToken
	raw      []byte // the sealed token
	key      string
	body     Hash
	dryRun   bool
	maxWait  time.Duration
	line     *Line // that it may wait in for slots; nil: it does not
	place    int   // there, as of the last answer; 0: none
	priority quota.Priority
	extra    []quota.Applied // limits that a charge brings along
	views    []View          // of a charge, in place of the token's labels and amounts; empty: those
	estimate *estimator.Estimate
	slopes   []meterSlope  // of what was estimated
	least    *quota.Tokens // of output that are worth a grant; nil: all that is asked
	// count works out labels and amounts and pins the price, as of an instant.
	count  func(ctx context.Context, at time.Time) error
	spent  report  // a charge: its token classes, if any
	used   *usedUp // a charge of what was used already; else nil
	closed Record  // a charge: as the engine recorded it
	parent *envelope
}

// prepare validates an ask and works out its amounts. Nothing is asked of
// anybody.
func (b *Broker) prepare(ctx context.Context, ask Ask, lease time.Duration) (*work, error) {
	w := &work{policy: b.Policies.Current(), key: ask.Key, dryRun: ask.DryRun, priority: ask.Priority}
	w.token.Lease = lease
	var err error
	if w.parent, err = b.openParent(&ask); err != nil {
		return nil, err
	}
	if w.maxWait, err = checkedWait(&ask); err != nil {
		return nil, err
	}
	w.count = func(ctx context.Context, at time.Time) error { return w.countAsk(ctx, b, ask, at) }
	at := b.now()
	if err := w.count(ctx, at); err != nil {
		return nil, err
	}
	if err := checkKey(ask.Key); err != nil {
		return nil, err
	}
	if ask.Key != "" {
		var err error
		if w.body, err = bodyHash("reserve", ask); err != nil {
			return nil, err
		}
	}
	return w, w.mint(b, at)
}

// countAsk works out what a Reserve asks, at the price of the instant.
func (w *work) countAsk(ctx context.Context, b *Broker, ask Ask, at time.Time) error {
	asked, err := statedAmounts(ask.Amounts)
	if err != nil {
		return err
	}
	labels := WithAPIKey(ask.Labels, ask.APIKey)
	if ask.LLM == nil && ask.MinOutputTokens != nil {
		return &InvalidError{Field: "llm.min_output_tokens", Problem: "is stated without a model call", Bound: "leave it out, or state llm"}
	}
	if ask.LLM != nil {
		if _, known := w.policy.Accounts[ask.Account]; !known {
			// Before the estimate: an unknown account must not cost work.
			return fmt.Errorf("account %q: %w", ask.Account, ErrNotFound)
		}
		e, err := b.Estimator.EstimateContext(ctx, *ask.LLM, at)
		if err != nil {
			return err
		}
		if err := checkLeast(ask.MinOutputTokens, &e); err != nil {
			return err
		}
		counted, err := e.Amounts()
		if err != nil {
			return err
		}
		w.slopes, w.least = slopesOf(&e, asked), ask.MinOutputTokens
		addMissing(asked, counted)
		w.estimate = &e
		w.token.RuleInput = e.RuleInput
		w.pin(&e.Price)
		labels = withModel(labels, ask.LLM.Model, e.Model, e.Provider)
	}
	return w.fill(ask.Account, labels, asked)
}

// fill sets the parts of the token that follow from what is asked.
func (w *work) fill(account string, labels map[string]string, asked quota.Amounts) error {
	if err := quota.ValidateLabels(labels); err != nil {
		return &InvalidError{Field: "labels", Problem: err.Error()}
	}
	delete(asked, quota.MeterInFlight)
	w.token.Account, w.token.Labels, w.token.Asked = account, labels, asked
	return nil
}

// mintAnew makes another id and plan, for another instant. What is asked is
// counted again where prices change between the two.
func (w *work) mintAnew(ctx context.Context, b *Broker, at time.Time) error {
	first, last := w.token.ID.Minted(), at
	if last.Before(first) {
		first, last = last, first
	}
	between := func(p quota.ModelPrice) bool { return p.From.After(first) && !p.From.After(last) }
	if w.token.Price != nil && slices.ContainsFunc(w.policy.Prices, between) {
		if err := w.count(ctx, at); err != nil {
			return err
		}
	}
	return w.mint(b, at)
}

// mint makes the reservation's id and plan for an instant of the engine's
// clock, and seals the token.
func (w *work) mint(b *Broker, at time.Time) error {
	views := w.views
	if len(views) == 0 {
		views = []View{{Labels: w.token.Labels, Amounts: w.token.Asked, Extra: w.extra}}
	}
	p, err := newPlan(w.policy, w.token.Account, views, at, w.token.Charge)
	if err != nil {
		return err
	}
	p.keepFor(w.priority)
	w.plan = p
	w.token.ID = NewID(at)
	w.token.Holds, w.token.Kin = p.holds, w.parent.kin(p.holds)
	if w.used != nil {
		w.used.holdNothing(p.holds)
	}
	w.chooseOutput(b, at)
	w.token.Shadowing = w.token.shadows() && !w.token.Degraded
	if w.token.Output != nil && (w.longestWait() > 0 || w.mayHold() || w.line != nil) {
		w.token.Output.Choice = nil // who may wait waits for all of it
	}
	w.token.TotalsPeriod = p.account.PeriodAt(quota.PeriodMonth, at).Key
	w.token.Retention = b.config.Retention
	for i := range p.holds {
		if h := &p.holds[i].Hold; h.Kind.HasRate() {
			w.token.Retention = min(max(w.token.Retention, h.window()), concurrency.MaxRetention)
		}
	}
	// An id is young for its lease and its retention from its minting: the wait for
	// the start comes on top, so that a record is never forgotten before.
	w.token.Retention = min(w.token.Retention+w.longestWait(), concurrency.MaxRetention)
	w.raw, err = w.token.seal(b.Keys)
	return err
}

func (w *work) pin(price *estimator.Price) {
	w.token.PriceVersion, w.token.Price = price.Version, price
}

// commit asks the engine until it decides, within the deadline.
func (b *Broker) commit(ctx context.Context, w *work) (Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, b.config.Deadline)
	defer cancel()

	// Each answer that is not a decision has its own way on, and no way on is
	// taken more than a few times: the deadline ends what should not happen.
	for range maxAttempts {
		request := ReserveRequest{
			Account: w.token.Account, ID: w.token.ID, Holds: w.token.holds(),
			Lease: w.token.Lease, Retention: w.token.Retention,
			Key: w.key, Body: w.body, Token: w.raw, Output: w.token.output(), DryRun: w.dryRun, MaxWait: w.waitForStart(), Line: w.line,
		}
		if w.parent != nil {
			request.Parent, request.Spill = w.token.Kin.Parent, spilled(w.token.Holds)
		}
		if w.token.Charge && !w.dryRun && w.used == nil {
			request.Settle = w.settlement()
		}
		answer, err := b.Store.Reserve(ctx, request)
		if err != nil {
			return b.withoutEngine(ctx, w, err)
		}
		b.metrics.reclaimed(answer.Reclaimed)
		w.place = answer.Place
		switch answer.Verdict {
		case Granted:
			if err := w.decide(b, answer.Decided); err != nil {
				return Decision{}, err
			}
			if s := request.Settle; s != nil {
				w.closed = Record{State: StateSettled, Rank: ledger.RankRefunded, Body: s.Body, Outcome: s.Outcome, ClosedAt: answer.Now}
			} else if !w.dryRun {
				b.registry.granted(w.token.ID, w.raw, w.key, w.body, answer.StartAt, answer.ExpiresAt)
			}
			g := w.grant(answer)
			b.metrics.shadowRefused(g.Shadow, w.dryRun)
			return Decision{Grant: g}, nil
		case Refused:
			return w.refused(b, answer), nil
		case Replayed:
			return b.replay(w, answer)
		case KeyReused:
			return Decision{}, ErrKeyReused
		case Unseeded:
			if w.dryRun {
				return b.dryRunUnseeded(ctx, w, request, answer.Tickets)
			}
			if err := b.seeds.seed(ctx, &w.token, answer.Tickets); err != nil {
				if left, shadowErr := w.leaveOutShadows(b, answer.Tickets); left || shadowErr != nil {
					if shadowErr != nil {
						return Decision{}, shadowErr
					}
					continue
				}
				return b.withoutEngine(ctx, w, err)
			}
		case Stale:
			b.learnClock(answer.Now)
			if err := w.mintAnew(ctx, b, answer.Now); err != nil {
				return Decision{}, err
			}
		case Closed:
			// The id is ours alone, so an earlier delivery of this very call
			// was executed and its answer lost.
			if d, ok := b.ownEarlier(ctx, w); ok {
				return d, nil
			}
			if err := w.mintAnew(ctx, b, b.now()); err != nil {
				return Decision{}, err
			}
		case ParentEnded:
			again, err := b.revive(ctx, w.parent, answer.Now)
			if err != nil {
				return b.withoutEngine(ctx, w, err)
			}
			if !again {
				return Decision{}, ErrParentEnded
			}
		case ParentFull:
			return Decision{}, ErrParentFull
		default:
			return Decision{}, fmt.Errorf("engine gave verdict %d: %w", answer.Verdict, ErrUnavailable)
		}
	}
	return b.withoutEngine(ctx, w, fmt.Errorf("no decision after %d attempts: %w", maxAttempts, ErrUnavailable))
}

const maxAttempts = 6

func (w *work) grant(answer ReserveAnswer) *Grant {
	g := &Grant{
		ExpiresAt:    answer.ExpiresAt,
		State:        StateHeld,
		PriceVersion: w.token.PriceVersion,
		Holds:        w.token.shown(answer.Levels),
		Now:          answer.Now,
		MaxOutput:    w.token.maxOutput(),
	}
	for _, refusal := range answer.Shadow {
		g.Shadow = append(g.Shadow, *w.refusal(answer, refusal))
	}
	if g.Shadow == nil {
		g.Shadow = w.token.missedLimits()
	}
	if w.token.Charge {
		g.State, g.Charged, g.ExpiresAt = StateSettled, w.token.Asked, time.Time{}
	} else if answer.StartAt.After(answer.Now) {
		g.StartAt, g.StartsIn = answer.StartAt, answer.StartAt.Sub(answer.Now)
	}
	if !w.dryRun {
		g.Reservation = tokenText(w.raw)
	}
	return g
}

// refused is the decision of an answer that refuses.
func (w *work) refused(b *Broker, answer ReserveAnswer) Decision {
	limit := w.refusal(answer, answer.Refusal)
	w.tellBound(limit)
	limit.spread(b.config.RetryJitter, w.token.ID)
	return Decision{Refusal: limit}
}

// heldPace is how long callers wait for what open reservations hold of a quota:
// when they end nobody knows.
const heldPace = time.Second

func (w *work) refusal(answer ReserveAnswer, refusal Refusal) *RefusedLimit {
	h := &w.token.Holds[refusal.Hold]
	limit := h.refused(refusal.Reason, refusal.Asked)
	refused := &limit
	kept := h.Keep
	if refusal.Reason == EnvelopeExhausted {
		kept = 0 // it was asked of the parent
	}
	refused.Remaining, refused.Kept = refusal.Remaining-kept, kept
	refused.RetryAt, refused.Now, refused.Sharing = refusal.RetryAt, answer.Now, refusal.Sharing
	byOutput := slices.ContainsFunc(w.slopes, func(s meterSlope) bool { return s.Meter == h.Meter })
	if byOutput && w.least == nil && w.estimate.Unbounded != "" {
		refused.Unbounded, refused.Output = w.estimate.Unbounded, w.estimate.Output.Ceiling
	}
	if refusal.Hold < len(answer.Levels) {
		level := answer.Levels[refusal.Hold]
		refused.ResetsAt = level.ResetsAt
		if refused.Reason == QuotaExhausted && refused.Asked <= refused.Remaining+level.Held { // two amounts of 53 bits can't leave 64
			refused.Reason, refused.Held = QuotaHeld, level.Held
			if soon := answer.Now.Add(heldPace); soon.Before(refused.RetryAt) {
				refused.RetryAt = soon
			}
		}
	}
	return refused
}

// replay answers a known idempotency key with the grant that it has, as it
// stands now.
func (b *Broker) replay(w *work, answer ReserveAnswer) (Decision, error) {
	token, raw, err := openStored(answer.Record.Token, b.Keys)
	if err != nil {
		return Decision{}, fmt.Errorf("the reservation of this idempotency key can't be read: %w", err)
	}
	w.token, w.raw, w.closed = *token, raw, answer.Record
	if answer.Record.State == StateHeld {
		// The broker that granted it may be gone.
		b.registry.granted(token.ID, w.raw, w.key, w.body, answer.Record.StartAt, answer.Record.ExpiresAt)
	}
	g := &Grant{
		Reservation:  tokenText(raw),
		StartAt:      answer.Record.StartAt,
		StartsIn:     startsIn(answer.Record, answer.Now),
		ExpiresAt:    answer.Record.ExpiresAt,
		State:        answer.Record.State,
		Late:         answer.Record.Late,
		Replayed:     true,
		Degraded:     token.Degraded,
		PriceVersion: token.PriceVersion,
		Holds:        token.shown(answer.Levels),
		MaxOutput:    token.maxOutput(),
	}
	g.Shadow = token.missedLimits()
	if o, err := decodeOutcome(answer.Record.Outcome); err == nil {
		g.Released = o.Unused
		if token.Charge {
			g.Charged = o.Charged
		}
	}
	return Decision{Grant: g}, nil
}

func (b *Broker) ownEarlier(ctx context.Context, w *work) (Decision, bool) {
	record, err := b.Store.Lookup(ctx, w.token.Account, w.token.ID)
	if err != nil || (record.State != StateHeld && !(w.token.Charge && record.State == StateSettled)) {
		return Decision{}, false
	}
	if w.token.undecided() {
		token, raw, err := openStored(record.Token, b.Keys)
		if err != nil {
			return Decision{}, false
		}
		w.token, w.raw = *token, raw
	}
	w.closed = record
	if record.State == StateHeld {
		b.registry.granted(w.token.ID, w.raw, w.key, w.body, record.StartAt, record.ExpiresAt)
	}
	return Decision{Grant: w.grant(ReserveAnswer{Now: b.now(), StartAt: record.StartAt, ExpiresAt: record.ExpiresAt})}, true
}

// withoutEngine applies each limit's own rule when the engine (or the ledger,
// for a quota that needs seeding) does not answer: open grants and says so,
// closed answers unavailable.
func (b *Broker) withoutEngine(ctx context.Context, w *work, cause error) (Decision, error) {
	if !errors.Is(cause, ErrUnavailable) && !errors.Is(cause, ledger.ErrUnavailable) &&
		!errors.Is(cause, context.DeadlineExceeded) && !errors.Is(cause, context.Canceled) {
		return Decision{}, cause
	}
	if !errors.Is(cause, ErrUnavailable) {
		cause = fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	if limit := w.plan.closedLimit(); limit != nil {
		return Decision{}, &DownError{Limit: limit.Name, Err: cause}
	}
	if w.plan.enforced() == 0 || w.dryRun || w.token.Charge {
		// Without a limit there is no rule that allows to go on blindly; a
		// dry run has nothing to say; a charge must be kept to be answered.
		return Decision{}, cause
	}
	w.token.Degraded = true
	if err := w.mintAnew(ctx, b, b.now()); err != nil {
		return Decision{}, err
	}
	b.metrics.degraded.Inc()
	return Decision{Grant: &Grant{
		Reservation:  tokenText(w.raw),
		ExpiresAt:    w.token.ID.Minted().Add(w.token.Lease),
		State:        StateHeld,
		Degraded:     true,
		PriceVersion: w.token.PriceVersion,
		Holds:        w.token.shown(nil),
		MaxOutput:    w.token.maxOutput(),
	}}, nil
}

func checkedLease(lease time.Duration) (time.Duration, error) {
	if err := concurrency.ValidateLease(lease); err != nil {
		return 0, &InvalidError{Field: "lease", Problem: err.Error()}
	}
	return lease.Truncate(time.Microsecond), nil
}

// statedAmounts validates explicit amounts and adds the one request that every
// call is unless it says otherwise.
func statedAmounts(amounts quota.Amounts) (quota.Amounts, error) {
	if err := amounts.Validate(); err != nil {
		return nil, &InvalidError{Field: "amounts", Problem: err.Error()}
	}
	asked := make(quota.Amounts, len(amounts)+5)
	for _, meter := range sortedKeys(amounts) {
		if amounts[meter] == 0 {
			return nil, &InvalidError{
				Field: fmt.Sprintf("amounts[%q]", meter), Problem: "zero asks for nothing",
				Bound: fmt.Sprintf("1 to %d; leave the meter out to ask for none", quota.MaxAmount),
			}
		}
		asked[meter] = amounts[meter]
	}
	if _, stated := asked[quota.MeterRequests]; !stated {
		asked[quota.MeterRequests] = 1
	}
	return asked, nil
}

// WithAPIKey adds the name of the credential as the label "key", unless the
// caller stated one or there is no name. The labels given are not changed.
func WithAPIKey(labels map[string]string, name string) map[string]string {
	if _, stated := labels["key"]; stated || name == "" {
		return labels
	}
	more := make(map[string]string, len(labels)+1)
	maps.Copy(more, labels)
	more["key"] = name
	return more
}

// withModel adds the labels that follow from a model call, unless the caller
// stated them.
func withModel(labels map[string]string, asked, canonical, provider string) map[string]string {
	model := canonical
	if model == "" {
		model = asked
	}
	more := make(map[string]string, len(labels)+2)
	for name, value := range labels {
		more[name] = value
	}
	if _, stated := more["model"]; !stated && model != "" {
		more["model"] = model
	}
	if _, stated := more["provider"]; !stated && provider != "" {
		more["provider"] = provider
	}
	return more
}

// bodyHash identifies a request beside its idempotency key. encoding/json
// writes maps in key order, which makes it canonical; only the hash is kept.
func bodyHash(kind string, body any) (Hash, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return Hash{}, &InvalidError{Field: "llm", Problem: fmt.Sprintf("can't be read: %v", err)}
	}
	sum := sha256.Sum256(append([]byte(kind+" "), text...))
	return Hash(sum[:len(Hash{})]), nil
}
