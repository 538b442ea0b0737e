package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// A scenario is a text of one step per line. Words are separated by spaces;
// what follows # is a comment; what follows -> is expected of the answer.
//
//	needs incarnate | drift | one_step_pools         leave the file out for engines without
//	limit NAME bucket CAPACITY RATE [charge] [pool=P]    RATE: 10/s, 10000/min, 3/7s
//	limit NAME gcra BURST RATE [charge] [pool=P]
//	limit NAME queue CAPACITY RATE [charge] [pool=P]
//	limit NAME fixed|first_use|counter|log RATE [charge] [pool=P]    windows
//	limit NAME slots MAX [charge] [pool=P]
//	limit NAME quota MAX day|week|month|year [charge]
//	                                         or shadow beside charge: a shadow limit;
//	                                         count: it counts refusals; ban=N/WITHIN/FOR
//	                                         again with the same NAME: the limit changes
//	+1.5s   at 3.5s   at 2026-12-01T00:00:00Z   back 2s
//	                                         time passes; "at" counts from the start; 1d is 24h
//	mint ID ACCOUNT HOLDS OPTIONS            make an id and its plan, tell no engine
//	reserve ID [ACCOUNT HOLDS OPTIONS]       without ACCOUNT: send the plan of ID (again)
//	charge ID ACCOUNT HOLDS OPTIONS
//	                                         keep=LIMIT:N,... leaves so much to higher priorities
//	refund ID AMOUNTS [body=B] [orphan] [held]
//	                                         what is not named used 0; orphan: with the holds;
//	                                         held: only while the lease has not ended
//	confirm ID [rank=N] [late] [body=B] [AMOUNTS] [usage=LIMIT:USED@VERSION] [orphan]
//	                                         unless stated, the closing as the engine has it
//	renew ID [lease=D] [used=LIMIT:N,...]    what each hold used so far
//	restore ID [lease=D] [start=D] [keyless] held until minted + lease, or for D from now
//	seed ACCOUNT LIMIT used=N ver=N [ticket=N]   with the Nth ticket given for the counter; the last
//	push ACCOUNT LIMIT used=N ver=N          a ledger value, as the auditor brings it
//	giveback ACCOUNT LIMIT=AMOUNT...         back to buckets, of no reservation
//	drift ACCOUNT LIMIT held=N unposted=N    the counter says more than its records
//	audit ACCOUNT [LIMIT...] [repair]
//	sweep
//	open ACCOUNT [most=N]                    walk through pages of N
//	leave ID                                 gives up the places of its waiter
//	lookup ID
//	levels ACCOUNT LIMIT...
//	lose                                     the engine loses its data
//	incarnate                                another incarnation, with the data
//
// HOLDS are LIMIT=AMOUNT or LIMIT (one slot), with a scope as LIMIT[user=7]=AMOUNT.
// OPTIONS are lease=60s retention=10m key=K body=B minted=-1s (against now)
// max_wait=5s dry parent=ID spill=LIMIT (taken from the limit where the parent has too
// little left) line=WAITER:2s (who keeps a place, and how long).
// ID may be a range, r1..r10: the step is repeated.
//
// Expected are a verdict, flags and NAME=VALUE, all of which must hold:
//
//	reserve   granted replayed key_reused closed stale unseeded refused
//	          parent_ended parent_full
//	          missed= (shadow limits, in order, joined by commas) and of the first of them
//	          missed.REASON missed.asked= missed.retry=
//	          start= expires= retry= place= reason (a flag: rate_limited ...) limit= remaining=
//	          reclaimed= LIMIT.remaining= LIMIT.resets= LIMIT.used= LIMIT.held=
//	          LIMIT.unposted= LIMIT.ticket= (which of those given); replayed: as lookup
//	refund    settled same conflict unknown forgotten ended; as lookup, levels
//	renew     held expired settled unknown; expires= envelope (others were made in it)
//	          company= (others of its tree are held)
//	          LIMIT.granted= LIMIT.left= LIMIT.used_so_far= LIMIT.room= (the parent's)
//	confirm   adopted stopped unknown old
//	giveback  LIMIT.given=; levels
//	seed      yes no
//	restore   restored known ended
//	audit     records= waiting= others=LIMIT,... (that only records named) LIMIT.held=
//	          LIMIT.held_sum= LIMIT.unposted= LIMIT.unposted_sum= LIMIT.repaired=
//	          LIMIT.seeded= LIMIT.used= LIMIT.version=
//	open      open=r1,r2 (or none), in order
//	sweep     expired= pending=r1,r2 (or none) epoch=same epoch=new (than at the last)
//	lookup    held expired settled unknown; late confirmed rank= LIMIT.actual= expires=
//	levels    remaining= (of the first) LIMIT.remaining= ... seeded= version=
//	          ban= LIMIT.ban= (until when; reserve too)
//
// Instants are shown as spans from now, or "none". Whatever is expected or
// not, every answer is compared with the model's, and after every step so are
// all counters and records that the scenario has named.
type scenario struct {
	needs []string
	steps []step
}

// step is one line that does something.
type step struct {
	line  int
	text  string
	verb  string
	ids   []string // the ids of the step, a range written out
	args  []string // what is neither an option nor an expectation, without verb and id
	opts  map[string]string
	wants []want

	limit limitStep     // verb limit
	span  time.Duration // verbs + at back
	at    time.Time     // verb at, when an instant is given
}

// want is one expectation. A flag has the value "true".
type want struct{ name, value string }

// limitStep defines a limit: a hold without an amount, a scope and an account.
type limitStep struct {
	hold reservation.Hold
	unit quota.PeriodUnit
}

// options that each verb takes, and whether it names an id.
var verbs = map[string]struct {
	id      bool
	options []string
}{
	"mint":      {true, []string{"lease", "retention", "key", "body", "minted", "token", "max_wait", "parent", "keep"}},
	"reserve":   {true, []string{"lease", "retention", "key", "body", "minted", "token", "max_wait", "dry", "parent", "spill", "keep", "line"}},
	"charge":    {true, []string{"retention", "key", "body", "minted", "token", "dry", "keep"}},
	"refund":    {true, []string{"body", "orphan", "held"}},
	"confirm":   {true, []string{"rank", "late", "body", "usage", "orphan"}},
	"renew":     {true, []string{"lease", "used"}},
	"restore":   {true, []string{"lease", "start", "keyless"}},
	"lookup":    {true, nil},
	"seed":      {false, []string{"used", "ver", "ticket"}},
	"push":      {false, []string{"used", "ver"}},
	"giveback":  {false, nil},
	"leave":     {true, nil},
	"open":      {false, []string{"most"}},
	"drift":     {false, []string{"held", "unposted"}},
	"audit":     {false, []string{"repair"}},
	"levels":    {false, nil},
	"sweep":     {false, nil},
	"lose":      {false, nil},
	"incarnate": {false, nil},
}

// maxRange bounds a range of ids.
const maxRange = 1000

// parseScenario reads a scenario. An error names the line.
func parseScenario(text string) (scenario, error) {
	var s scenario
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		words := strings.Fields(line)
		if words[0] == "needs" {
			for _, need := range words[1:] {
				if need != "incarnate" && need != "drift" && need != "one_step_pools" {
					return s, fmt.Errorf("line %d: needs: %q is none of incarnate, drift and one_step_pools", i+1, need)
				}
				s.needs = append(s.needs, need)
			}
			continue
		}
		st, err := parseStep(words)
		if err != nil {
			return s, fmt.Errorf("line %d: %w", i+1, err)
		}
		st.line, st.text = i+1, line
		s.steps = append(s.steps, st)
	}
	return s, nil
}

func parseStep(words []string) (step, error) {
	st := step{verb: words[0], opts: map[string]string{}}
	words = words[1:]
	switch {
	case strings.HasPrefix(st.verb, "+"):
		words = []string{st.verb[1:]}
		st.verb = "+"
		fallthrough
	case st.verb == "at" || st.verb == "back":
		if len(words) != 1 {
			return st, fmt.Errorf("%s: needs one span of time, as in %s 1.5s", st.verb, st.verb)
		}
		if at, err := time.Parse(time.RFC3339, words[0]); err == nil && st.verb == "at" {
			st.at = at
			return st, nil
		}
		var err error
		st.span, err = parseSpan(words[0])
		return st, err
	case st.verb == "limit":
		return st, st.parseLimit(words)
	}
	verb, known := verbs[st.verb]
	if !known {
		return st, fmt.Errorf("unknown step %q", st.verb)
	}
	if arrow := slices.Index(words, "->"); arrow >= 0 {
		for _, word := range words[arrow+1:] {
			name, value, stated := cutOption(word)
			if !stated {
				value = "true"
			}
			st.wants = append(st.wants, want{name, value})
		}
		if len(st.wants) == 0 {
			return st, fmt.Errorf("%s: nothing is expected after ->", st.verb)
		}
		words = words[:arrow]
	}
	if verb.id {
		if len(words) == 0 {
			return st, fmt.Errorf("%s: the id is missing", st.verb)
		}
		var err error
		if st.ids, err = parseIDs(words[0]); err != nil {
			return st, err
		}
		words = words[1:]
	}
	for _, word := range words {
		name, value, stated := cutOption(word)
		if slices.Contains(verb.options, name) {
			if !stated {
				value = "true"
			}
			if _, twice := st.opts[name]; twice {
				return st, fmt.Errorf("%s: %s is stated twice", st.verb, name)
			}
			st.opts[name] = value
			continue
		}
		st.args = append(st.args, word)
	}
	return st, nil
}

// cutOption splits name=value at the first = that is not in the brackets of a
// scope.
func cutOption(word string) (name, value string, stated bool) {
	depth := 0
	for i := range len(word) {
		switch {
		case word[i] == '[':
			depth++
		case word[i] == ']':
			depth--
		case word[i] == '=' && depth == 0:
			return word[:i], word[i+1:], true
		}
	}
	return word, "", false
}

// parseIDs writes a range out: r1..r3 is r1, r2, r3.
func parseIDs(word string) ([]string, error) {
	from, to, isRange := strings.Cut(word, "..")
	if !isRange {
		return []string{word}, nil
	}
	prefix := strings.TrimRight(from, "0123456789")
	first, err1 := strconv.Atoi(from[len(prefix):])
	last, err2 := strconv.Atoi(strings.TrimPrefix(to, prefix))
	if err1 != nil || err2 != nil || !strings.HasPrefix(to, prefix) || last < first || last-first >= maxRange {
		return nil, fmt.Errorf("%q is not a range such as r1..r10 of at most %d ids", word, maxRange)
	}
	var ids []string
	for n := first; n <= last; n++ {
		ids = append(ids, prefix+strconv.Itoa(n))
	}
	return ids, nil
}

var windowKinds = map[string]quota.Kind{
	"fixed": quota.KindFixedWindow, "first_use": quota.KindFixedWindow,
	"counter": quota.KindSlidingCounter, "log": quota.KindSlidingLog,
}

var levelKinds = map[string]quota.Kind{"bucket": quota.KindBucket, "gcra": quota.KindGCRA, "queue": quota.KindLeakyQueue}

func (st *step) parseLimit(words []string) error {
	l := &st.limit
	l.hold.OnExpiry = quota.ExpiryGiveBack
	var plain []string
	for _, word := range words {
		if pool, ok := strings.CutPrefix(word, "pool="); ok {
			l.hold.Pool = pool
		} else if word == "charge" {
			l.hold.OnExpiry = quota.ExpiryCharge
		} else if word == "fair" {
			l.hold.Fair = true
		} else if word == "shadow" {
			l.hold.Shadow = true
		} else if ok, err := parseRefusals(word, &l.hold); err != nil {
			return fmt.Errorf("limit: %w", err)
		} else if !ok {
			plain = append(plain, word)
		}
	}
	if len(plain) < 3 {
		return fmt.Errorf("limit: write limit NAME bucket CAPACITY RATE, limit NAME fixed RATE, limit NAME slots MAX or limit NAME quota MAX UNIT")
	}
	l.hold.Limit = plain[0]
	if kind, ok := windowKinds[plain[1]]; ok && len(plain) == 3 {
		rate, err := parseRate(plain[2])
		if err != nil {
			return fmt.Errorf("limit %s: %w", plain[0], err)
		}
		l.hold.Kind = kind
		l.hold.Window = quota.Limit{Kind: kind, Rate: rate, FirstUse: plain[1] == "first_use"}.Window()
		return nil
	}
	size, err := parseAmount(plain[2])
	if err != nil {
		return fmt.Errorf("limit %s: %w", plain[0], err)
	}
	switch kind, rest := plain[1], plain[3:]; {
	case levelKinds[kind] != 0 && len(rest) == 1:
		l.hold.Kind = levelKinds[kind]
		refill, err := parseRate(rest[0])
		if err != nil {
			return fmt.Errorf("limit %s: %w", plain[0], err)
		}
		l.hold.Bucket = quota.Limit{Kind: quota.KindBucket, Rate: refill, Burst: size}.Bucket()
	case kind == "slots" && len(rest) == 0:
		l.hold.Kind, l.hold.Max = quota.KindSlots, size
	case kind == "quota" && len(rest) == 1:
		l.hold.Kind, l.hold.Max, l.unit = quota.KindQuota, size, quota.PeriodUnit(rest[0])
		if !slices.Contains([]quota.PeriodUnit{quota.PeriodDay, quota.PeriodWeek, quota.PeriodMonth, quota.PeriodYear}, l.unit) {
			return fmt.Errorf("limit %s: %q is not day, week, month or year", plain[0], rest[0])
		}
	default:
		return fmt.Errorf("limit %s: %q with %d more words is no limit", plain[0], kind, len(rest))
	}
	return nil
}

func parseAmount(word string) (quota.Amount, error) {
	n, err := strconv.ParseInt(strings.ReplaceAll(word, "_", ""), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not an amount", word)
	}
	return quota.Amount(n), nil
}

// parseRate reads 10/s, 10000/min, 1/day, 3/7s.
func parseRate(word string) (quota.Rate, error) {
	amount, every, ok := strings.Cut(word, "/")
	n, err := parseAmount(amount)
	if !ok || err != nil || n < 1 {
		return quota.Rate{}, fmt.Errorf("%q is not a rate such as 10/s or 3/7s", word)
	}
	switch every {
	case "ms", "s", "h", "d":
		every = "1" + every
	case "min":
		every = "1m"
	case "day":
		every = "1d"
	}
	span, err := parseSpan(every)
	if err != nil || span < time.Millisecond || span > 24*time.Hour {
		return quota.Rate{}, fmt.Errorf("%q is not a rate: its span must be 1ms to 24h", word)
	}
	return quota.Rate{Amount: n, Every: span}, nil
}

// parseSpan reads a span of time in whole microseconds; 3d is 72h.
func parseSpan(word string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(word, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || n < -100_000 || n > 100_000 {
			return 0, fmt.Errorf("%q is not a span of time", word)
		}
		return time.Duration(n * float64(24*time.Hour)), nil
	}
	span, err := time.ParseDuration(word)
	if err != nil || span%time.Microsecond != 0 {
		return 0, fmt.Errorf("%q is not a span of time in whole microseconds", word)
	}
	return span, nil
}
