package quota

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of pins.
const (
	MaxPins           = 1000 // that are in force at once
	MaxPinReasonBytes = 500
	MinPinSpan        = time.Minute // between a pin's beginning and its end, if it has one
	MaxPinSpan        = 30 * 24 * time.Hour
)

// Pin holds limits at a mode, whatever the policy states, until it is taken away
// or ends. It lies above the policy: what is stated stays as it is beneath it.
//
// Of the pins that cover a limit one counts: one that names the limit before one
// of every limit, and then an account's before a plan's or a pool's, before one
// for everywhere.
type Pin struct {
	Limit string // the limit's name, which of a pool's is the pool's; "" for every limit

	// Where the limit is met; at most one is stated. None: everywhere, pools
	// included.
	Plan    string // by accounts of the plan, in the plan's limits and their own
	Pool    string // in the pool
	Account string // by the account, in its plan's limits and its own

	Mode Mode // one of the three words, never ""

	By     string    // who pinned it
	Reason string    // for people, at most MaxPinReasonBytes of UTF-8; may be empty
	Since  time.Time // when it was pinned
	Until  time.Time // when it ends by itself, by each node's clock; zero: when it is taken away
}

// Name says what is pinned, for people: "tokens", "every limit", "tokens of plan
// pro", "every limit of account acme". Equal names mean the same limits.
func (p Pin) Name() string {
	name := cmp.Or(p.Limit, "every limit")
	switch {
	case p.Plan != "":
		return name + " of plan " + p.Plan
	case p.Pool != "":
		return name + " of pool " + p.Pool
	case p.Account != "":
		return name + " of account " + p.Account
	}
	return name
}

// InForce says whether the pin counts at an instant.
func (p Pin) InForce(at time.Time) bool { return p.Until.IsZero() || at.Before(p.Until) }

// String says all of the pin in one line, for people: "off by ops since
// 2026-12-03T09:00:00Z until 2026-12-03T11:00:00Z: every limit (provider is down)".
func (p Pin) String() string {
	text := fmt.Sprintf("%s by %s since %s", p.Mode.Word(), p.By, p.Since.UTC().Format(time.RFC3339))
	if !p.Until.IsZero() {
		text += " until " + p.Until.UTC().Format(time.RFC3339)
	}
	text += ": " + p.Name()
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	return text
}

// Validate checks the pin by itself. The error joins one [FieldError] a fault.
func (p Pin) Validate() error {
	var f faults
	if p.Limit != "" {
		if problem := nameProblem(p.Limit); problem != "" {
			f.add("limit", "%s", problem)
		}
	}
	places := 0
	for field, name := range map[string]string{"plan": p.Plan, "pool": p.Pool} {
		if name == "" {
			continue
		}
		places++
		if problem := nameProblem(name); problem != "" {
			f.add(field, "%s", problem)
		}
	}
	if p.Account != "" {
		places++
		if err := ValidateAccountName(p.Account); err != nil {
			f.add("account", "%s", strings.TrimPrefix(err.Error(), "account: "))
		}
	}
	if places > 1 {
		f.add("plan", "at most one of plan, pool and account says where the limit is met; leave the others out")
	}
	switch p.Mode {
	case ModeEnforce, ModeShadow, ModeOff:
	default:
		f.add("mode", "%s is not a mode; write enforce, shadow or off", quoteShort(string(p.Mode)))
	}
	switch {
	case len(p.Reason) > MaxPinReasonBytes:
		f.add("reason", "it has %d bytes, at most %d are accepted; shorten it", len(p.Reason), MaxPinReasonBytes)
	case !utf8.ValidString(p.Reason):
		f.add("reason", "it is not valid UTF-8; encode it as UTF-8")
	case strings.ContainsFunc(p.Reason, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		f.add("reason", "it contains a control or invisible formatting character; write it in one line")
	}
	if p.Since.IsZero() {
		f.add("since", "it is missing")
	}
	if span := p.Until.Sub(p.Since); !p.Until.IsZero() && (span < MinPinSpan || span > MaxPinSpan) {
		f.add("for", "%s is not between %s and %s; without an end it stays until it is taken away", FormatSpan(span), FormatSpan(MinPinSpan), FormatSpan(MaxPinSpan))
	}
	return f.err()
}

// pinKey is which limits a pin means.
type pinKey struct{ limit, plan, pool, account string }

func (p Pin) key() pinKey { return pinKey{p.Limit, p.Plan, p.Pool, p.Account} }

// pins are those of a policy. The zero value has none.
type pins struct {
	all     []Pin // by name
	inForce map[pinKey]*Pin
	next    time.Time // when the next of them ends; zero: none does
}

func newPins(all []Pin, at time.Time) pins {
	ps := pins{all: all}
	for i := range all {
		pin := &all[i]
		if !pin.InForce(at) {
			continue
		}
		if ps.inForce == nil {
			ps.inForce = make(map[pinKey]*Pin)
		}
		ps.inForce[pin.key()] = pin
		if end := pin.Until; !end.IsZero() && (ps.next.IsZero() || end.Before(ps.next)) {
			ps.next = end
		}
	}
	return ps
}

// WithPins returns the policy with these pins above it, as they count at the
// instant; the policy itself stays as it is. Pins of limits, plans, pools and
// accounts that there are not are kept, and count once there are. The error joins
// one [FieldError] a fault.
func (p *Policy) WithPins(all []Pin, at time.Time) (*Policy, error) {
	var f faults
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Pin) int { return strings.Compare(a.Name(), b.Name()) })
	for i, pin := range all {
		f.under("pins."+pin.Name(), pin.Validate())
		if i > 0 && all[i-1].key() == pin.key() {
			f.add("pins."+pin.Name(), "it is stated twice; keep one")
		}
	}
	with := *p
	with.pins = newPins(all, at)
	if n := len(with.pins.inForce); n > MaxPins {
		f.add("pins", "%d would be in force, at most %d are accepted; take some away, or pin every limit of a plan or account", n, MaxPins)
	}
	if len(f) > 0 {
		return nil, f.err()
	}
	return &with, nil
}

// At returns the policy as it is at an instant: itself, unless a pin that it was
// looked at with has ended by then. It is cheap, and takes time only when a pin
// ends.
func (p *Policy) At(at time.Time) *Policy {
	if p.pins.next.IsZero() || at.Before(p.pins.next) {
		return p
	}
	ended := *p
	ended.pins = newPins(p.pins.all, at)
	return &ended
}

// PinEnds returns when the next pin ends by itself; the zero time when none does.
func (p *Policy) PinEnds() time.Time { return p.pins.next }

// Pins returns the pins in force, by name.
func (p *Policy) Pins() []Pin {
	var inForce []Pin
	for i := range p.pins.all {
		if pin := &p.pins.all[i]; p.pins.inForce[pin.key()] == pin {
			inForce = append(inForce, *pin)
		}
	}
	return inForce
}

// Pinned returns limits that calls of the account meet, of whatever origin, at the
// modes that pins hold them at. It does not change what it is given.
func (p *Policy) Pinned(account string, applied []Applied) []Applied {
	if len(p.pins.inForce) == 0 || len(applied) == 0 {
		return applied
	}
	applied = slices.Clone(applied)
	p.pin(account, applied)
	return applied
}

// pin holds limits that the account meets, in place. Most of the time there is nothing
// pinned, and nothing is looked up.
func (p *Policy) pin(account string, applied []Applied) {
	if len(p.pins.inForce) == 0 {
		return
	}
	plan := p.Accounts[account].Plan
	for i := range applied {
		a := &applied[i]
		if a.Pin = p.PinOf(a.Limit.Name, plan, a.Pool, account); a.Pin != nil {
			if a.Mode = a.Pin.Mode; a.Mode == ModeEnforce {
				a.Mode = ""
			}
		}
	}
}

// PinOf returns the pin that counts for the limit of that name, of the pool if one is
// stated, else as the account on the plan meets it, either of which may be ""; nil when
// no pin in force covers it. It is not to be changed.
func (p *Policy) PinOf(limit, plan, pool, account string) *Pin {
	var places [3]pinKey // from the narrowest
	at := places[:0]
	switch {
	case pool != "":
		at = append(at, pinKey{pool: pool})
	default:
		if account != "" {
			at = append(at, pinKey{account: account})
		}
		if plan != "" {
			at = append(at, pinKey{plan: plan})
		}
	}
	at = append(at, pinKey{})
	for _, name := range [...]string{limit, ""} {
		for _, key := range at {
			key.limit = name
			if pin := p.pins.inForce[key]; pin != nil {
				return pin
			}
		}
	}
	return nil
}

// Covers says whether the pin means a limit that the policy has. One of every
// limit everywhere does even when there is none yet.
func (p *Policy) Covers(pin Pin) bool {
	named := func(limits []Limit) bool {
		return len(limits) > 0 && pin.Limit == "" || slices.ContainsFunc(limits, func(l Limit) bool { return l.Name == pin.Limit })
	}
	switch {
	case pin.Account != "":
		account, known := p.Accounts[pin.Account]
		return known && (pin.Limit == "" || named(account.Overrides) || named(p.Plans[account.Plan].Limits))
	case pin.Pool != "":
		pool, known := p.Pools[pin.Pool]
		return known && (pin.Limit == "" || pin.Limit == pool.Name)
	case pin.Plan != "":
		plan, known := p.Plans[pin.Plan]
		return known && (pin.Limit == "" || named(plan.Limits) || p.someAccount(func(a Account) bool { return a.Plan == pin.Plan && named(a.Overrides) }))
	case pin.Limit == "":
		return true
	}
	if _, isPool := p.Pools[pin.Limit]; isPool {
		return true
	}
	for _, plan := range p.Plans {
		if named(plan.Limits) {
			return true
		}
	}
	return p.someAccount(func(a Account) bool { return named(a.Overrides) })
}

// someAccount asks of the accounts that have limits of their own.
func (p *Policy) someAccount(is func(Account) bool) bool {
	for name := range p.accounts {
		if is(p.Accounts[name]) {
			return true
		}
	}
	return false
}

// PinnedLimits counts, by pin in force, how many limits of an object as the policy
// states it are at the pin's mode for somebody. only is the name of the one limit that
// counts, "" for all; exactly one of plan, pool and account is stated.
func (p *Policy) PinnedLimits(only, plan, pool, account string) map[Pin]int {
	counts := make(map[Pin]int)
	if len(p.pins.inForce) == 0 {
		return counts
	}
	count := func(limit string, pin *Pin) {
		if pin != nil && (only == "" || only == limit) {
			counts[*pin]++
		}
	}
	switch {
	case pool != "":
		count(pool, p.PinOf(pool, "", pool, ""))
	case account != "":
		for _, limit := range p.Accounts[account].Overrides {
			count(limit.Name, p.PinOf(limit.Name, p.Accounts[account].Plan, "", account))
		}
	default:
		for _, limit := range p.Plans[plan].Limits {
			count(limit.Name, p.PinOf(limit.Name, plan, "", ""))
			// Of some accounts of the plan it may be another one.
			for key, pin := range p.pins.inForce {
				if key.account != "" && p.Accounts[key.account].Plan == plan && p.PinOf(limit.Name, plan, "", key.account) == pin {
					count(limit.Name, pin)
				}
			}
		}
	}
	return counts
}
