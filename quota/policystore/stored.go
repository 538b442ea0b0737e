package policystore

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// ErrBroken says that the stored policy is not one that this version of
// budgetd can use: an object has words that it does not know, as a newer
// version may have written them, or the parts do not fit together.
var ErrBroken = errors.New("the stored policy is broken")

// What follows is the stored form of an object: JSON in the words of the plan
// language, with every default filled in, fields in this order and nothing
// left to choice, so that equal objects have equal text. Instants and spans are
// integers in the unit that the name ends in. Words are only ever added: the
// documents of older versions stay readable, and a word that is not known is
// refused, since it may forbid what the rest allows.

type storedPlan struct {
	Limits []storedLimit `json:"limits,omitempty"`
}

type storedPool struct {
	Limit storedLimit `json:"limit"` // with the pool's name
}

type storedAccount struct {
	Plan      string        `json:"plan"`
	TimeZone  string        `json:"time_zone"`
	AnchorDay int           `json:"anchor_day"`
	Limits    []storedLimit `json:"limits,omitempty"`
	Grants    []storedGrant `json:"grants,omitempty"` // by name
}

type storedGrant struct {
	Name     string       `json:"name"`
	Limit    string       `json:"limit"`
	Scope    string       `json:"scope,omitempty"`
	Amount   quota.Amount `json:"amount"`
	Money    bool         `json:"money,omitempty"` // the amount is in nano-USD
	FromUS   int64        `json:"from_us"`
	UntilUS  *int64       `json:"until_us,omitempty"`
	Priority int          `json:"priority,omitempty"`
	Reason   string       `json:"reason,omitempty"`
}

type storedPrices struct {
	Prices []storedPrice `json:"prices"` // by instant
}

type storedPrice struct {
	FromUS   int64                    `json:"from_us"`
	Rates    map[string]quota.NanoUSD `json:"rates"` // as quota.ModelPrice
	Tiers    []storedTier             `json:"tiers,omitempty"`
	Services []storedService          `json:"services,omitempty"`
}

type storedTier struct {
	Above quota.Tokens             `json:"above"`
	Rates map[string]quota.NanoUSD `json:"rates"`
}

type storedService struct {
	Name  string                   `json:"name"`
	Rates map[string]quota.NanoUSD `json:"rates,omitempty"`
	Tiers []storedTier             `json:"tiers,omitempty"`
}

type storedLimit struct {
	Name      string              `json:"name"`
	Kind      string              `json:"kind"`
	Meter     quota.Meter         `json:"meter"`
	Rate      *storedRate         `json:"rate,omitempty"`
	Burst     quota.Amount        `json:"burst,omitempty"`
	FirstUse  bool                `json:"first_use,omitempty"`
	Max       quota.Amount        `json:"max,omitempty"`
	Period    quota.PeriodUnit    `json:"period,omitempty"`
	Per       []string            `json:"per,omitempty"`
	Match     map[string][]string `json:"match,omitempty"`
	Costs     []storedCost        `json:"costs,omitempty"`
	Mode      quota.Mode          `json:"mode,omitempty"` // "" for enforce
	WhenDown  quota.DownRule      `json:"when_down"`
	OnExpiry  quota.ExpiryRule    `json:"on_expiry"`
	Hold      quota.HoldRule      `json:"hold,omitempty"`
	Tolerance quota.Amount        `json:"tolerance,omitempty"`
	Soft      bool                `json:"soft,omitempty"`
	AlertAt   []int               `json:"alert_at,omitempty"` // percents
	KeepFor   map[string]int      `json:"keep_for,omitempty"` // percent by priority
	Fair      bool                `json:"fair,omitempty"`

	CountRefusals bool       `json:"count_refusals,omitempty"`
	Ban           *storedBan `json:"ban,omitempty"`
	MaxWaitUS     *int64     `json:"max_wait_us,omitempty"` // microseconds; 0 is not the same as none
}

type storedBan struct {
	Refusals int   `json:"refusals"`
	WithinUS int64 `json:"within_us"` // microseconds
	ForUS    int64 `json:"for_us"`    // microseconds
}

type storedRate struct {
	Amount  quota.Amount `json:"amount"`
	EveryUS int64        `json:"every_us"` // microseconds
}

type storedCost struct {
	Match  map[string][]string `json:"match,omitempty"`
	Weight quota.Amount        `json:"weight"`
}

var kindNames = map[quota.Kind]string{
	quota.KindBucket: "bucket",
	quota.KindSlots:  "slots",
	quota.KindQuota:  "quota",

	quota.KindGCRA:           "gcra",
	quota.KindFixedWindow:    "fixed_window",
	quota.KindSlidingCounter: "sliding_window",
	quota.KindSlidingLog:     "sliding_log",
	quota.KindLeakyQueue:     "leaky_queue",
}

func kindOf(name string) (quota.Kind, error) {
	for kind, n := range kindNames {
		if n == name {
			return kind, nil
		}
	}
	return 0, fmt.Errorf("kind: %.40q is not a kind of limit that this version of budgetd knows", name)
}

func encodePlan(plan quota.Plan) (string, error) {
	return encode(storedPlan{Limits: encodeLimits(plan.Limits)})
}

func encodePool(pool quota.Pool) (string, error) {
	return encode(storedPool{Limit: encodeLimit(pool.Limit)})
}

func encodeAccount(account quota.Account) (string, error) {
	return encode(storedAccount{
		Plan:      account.Plan,
		TimeZone:  account.TimeZone,
		AnchorDay: account.AnchorDay,
		Limits:    encodeLimits(account.Overrides),
		Grants:    encodeGrants(account.Grants),
	})
}

func encodeGrants(grants []quota.Grant) []storedGrant {
	var stored []storedGrant
	for _, g := range grants {
		s := storedGrant{
			Name: g.Name, Limit: g.Limit, Scope: g.Scope, Amount: g.Amount, Money: g.Money,
			FromUS: g.From.UnixMicro(), Priority: g.Priority, Reason: g.Reason,
		}
		if !g.Until.IsZero() {
			until := g.Until.UnixMicro()
			s.UntilUS = &until
		}
		stored = append(stored, s)
	}
	slices.SortFunc(stored, func(a, b storedGrant) int { return cmp.Compare(a.Name, b.Name) })
	return stored
}

// encodePrices encodes the prices of one model, which are in order.
func encodePrices(prices []quota.ModelPrice) (string, error) {
	var stored storedPrices
	for _, price := range prices {
		s := storedPrice{FromUS: price.From.UnixMicro(), Rates: price.Rates, Tiers: storedTiers(price.Tiers)}
		for _, service := range price.Services {
			s.Services = append(s.Services, storedService{service.Name, service.Rates, storedTiers(service.Tiers)})
		}
		stored.Prices = append(stored.Prices, s)
	}
	return encode(stored)
}

func storedTiers(tiers []quota.PriceTier) (stored []storedTier) {
	for _, tier := range tiers {
		stored = append(stored, storedTier(tier))
	}
	return stored
}

func priceTiers(stored []storedTier) (tiers []quota.PriceTier) {
	for _, tier := range stored {
		tiers = append(tiers, quota.PriceTier(tier))
	}
	return tiers
}

func encode(stored any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // it is read by people too
	if err := encoder.Encode(stored); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(text.Bytes(), []byte("\n"))), nil
}

func encodeLimits(limits []quota.Limit) []storedLimit {
	var stored []storedLimit
	for _, limit := range limits {
		stored = append(stored, encodeLimit(limit))
	}
	return stored
}

func encodeLimit(l quota.Limit) storedLimit {
	stored := storedLimit{
		Name: l.Name, Kind: kindNames[l.Kind], Meter: l.Meter, Burst: l.Burst, FirstUse: l.FirstUse, Max: l.Max, Period: l.Period,
		Per: l.Per, Match: l.Match, Mode: l.Mode, WhenDown: l.WhenDown, OnExpiry: l.OnExpiry, Hold: l.Hold, Tolerance: l.Tolerance, Soft: l.Soft, Fair: l.Fair, AlertAt: l.AlertAt,
	}
	if l.Rate != (quota.Rate{}) {
		stored.Rate = &storedRate{Amount: l.Rate.Amount, EveryUS: l.Rate.Every.Microseconds()}
	}
	stored.CountRefusals = l.CountRefusals
	if l.Ban != (quota.Ban{}) {
		stored.Ban = &storedBan{Refusals: l.Ban.Refusals, WithinUS: l.Ban.Within.Microseconds(), ForUS: l.Ban.For.Microseconds()}
	}
	if l.MaxWait != nil {
		wait := l.MaxWait.Microseconds()
		stored.MaxWaitUS = &wait
	}
	for priority, percent := range l.KeepFor {
		if stored.KeepFor == nil {
			stored.KeepFor = map[string]int{}
		}
		stored.KeepFor[priority.String()] = percent
	}
	for _, rule := range l.Costs {
		stored.Costs = append(stored.Costs, storedCost{Match: rule.Match, Weight: rule.Weight})
	}
	return stored
}

func decodePlan(name, document string) (quota.Plan, error) {
	var stored storedPlan
	if err := decode(document, &stored); err != nil {
		return quota.Plan{}, broken(KindPlan, name, err)
	}
	limits, err := decodeLimits(stored.Limits)
	if err != nil {
		return quota.Plan{}, broken(KindPlan, name, err)
	}
	return quota.Plan{Name: name, Limits: limits}, nil
}

func decodePool(name, document string) (quota.Pool, error) {
	var stored storedPool
	if err := decode(document, &stored); err != nil {
		return quota.Pool{}, broken(KindPool, name, err)
	}
	limit, err := decodeLimit(stored.Limit)
	if err != nil {
		return quota.Pool{}, broken(KindPool, name, err)
	}
	return quota.Pool{Name: name, Limit: limit}, nil
}

func decodeAccount(name, document string) (quota.Account, error) {
	var stored storedAccount
	if err := decode(document, &stored); err != nil {
		return quota.Account{}, broken(KindAccount, name, err)
	}
	overrides, err := decodeLimits(stored.Limits)
	if err != nil {
		return quota.Account{}, broken(KindAccount, name, err)
	}
	return quota.Account{
		Name: name, Plan: stored.Plan, TimeZone: stored.TimeZone, AnchorDay: stored.AnchorDay,
		Overrides: overrides, Grants: decodeGrants(stored.Grants),
	}, nil
}

func decodeGrants(stored []storedGrant) []quota.Grant {
	var grants []quota.Grant
	for _, s := range stored {
		g := quota.Grant{
			Name: s.Name, Limit: s.Limit, Scope: s.Scope, Amount: s.Amount, Money: s.Money,
			From: fromMicros(s.FromUS), Priority: s.Priority, Reason: s.Reason,
		}
		if s.UntilUS != nil {
			g.Until = fromMicros(*s.UntilUS)
		}
		grants = append(grants, g)
	}
	return grants
}

// decodePrices reads the prices of one model.
func decodePrices(name, document string) ([]quota.ModelPrice, error) {
	var stored storedPrices
	if err := decode(document, &stored); err != nil {
		return nil, broken(KindPrice, name, err)
	}
	provider, model, named := strings.Cut(name, "/")
	if !named || len(stored.Prices) == 0 {
		return nil, broken(KindPrice, name, errors.New("prices are those of a provider/model, at least one"))
	}
	var prices []quota.ModelPrice
	for _, s := range stored.Prices {
		price := quota.ModelPrice{Provider: provider, Model: model, From: fromMicros(s.FromUS), Rates: s.Rates, Tiers: priceTiers(s.Tiers)}
		for _, service := range s.Services {
			if service.Rates == nil {
				service.Rates = map[string]quota.NanoUSD{}
			}
			price.Services = append(price.Services, quota.PriceService{Name: service.Name, Rates: service.Rates, Tiers: priceTiers(service.Tiers)})
		}
		prices = append(prices, price)
	}
	return prices, nil
}

// decode reads one document strictly: a word that it does not know is an error
// that names it.
func decode(document string, into any) error {
	decoder := json.NewDecoder(bytes.NewReader([]byte(document)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("something follows the document")
	}
	return nil
}

func decodeLimits(stored []storedLimit) ([]quota.Limit, error) {
	var limits []quota.Limit
	for _, s := range stored {
		limit, err := decodeLimit(s)
		if err != nil {
			return nil, err
		}
		limits = append(limits, limit)
	}
	return limits, nil
}

func decodeLimit(s storedLimit) (quota.Limit, error) {
	kind, err := kindOf(s.Kind)
	if err != nil {
		return quota.Limit{}, fmt.Errorf("limits.%.70s.%w", s.Name, err)
	}
	limit := quota.Limit{
		Name: s.Name, Kind: kind, Meter: s.Meter, Burst: s.Burst, FirstUse: s.FirstUse, Max: s.Max, Period: s.Period,
		Per: s.Per, Match: s.Match, Mode: s.Mode, WhenDown: s.WhenDown, OnExpiry: s.OnExpiry, Hold: s.Hold, Tolerance: s.Tolerance, Soft: s.Soft, Fair: s.Fair, AlertAt: s.AlertAt,
	}
	if s.Rate != nil {
		const most = int64(quota.MaxEvery / time.Microsecond)
		if s.Rate.EveryUS < 1 || s.Rate.EveryUS > most {
			return quota.Limit{}, fmt.Errorf("limits.%.70s.rate.every_us: %d is not between 1 and %d", s.Name, s.Rate.EveryUS, most)
		}
		limit.Rate = quota.Rate{Amount: s.Rate.Amount, Every: time.Duration(s.Rate.EveryUS) * time.Microsecond}
	}
	limit.CountRefusals = s.CountRefusals
	if b := s.Ban; b != nil {
		const most = int64(quota.MaxBanSpan / time.Microsecond)
		if b.WithinUS < 1 || b.WithinUS > most || b.ForUS < 1 || b.ForUS > most {
			return quota.Limit{}, fmt.Errorf("limits.%.70s.ban: within_us %d or for_us %d is not between 1 and %d", s.Name, b.WithinUS, b.ForUS, most)
		}
		limit.Ban = quota.Ban{Refusals: b.Refusals, Within: time.Duration(b.WithinUS) * time.Microsecond, For: time.Duration(b.ForUS) * time.Microsecond}
	}
	if us := s.MaxWaitUS; us != nil {
		const most = int64(quota.MaxWait / time.Microsecond)
		if *us < 0 || *us > most {
			return quota.Limit{}, fmt.Errorf("limits.%.70s.max_wait_us: %d is not between 0 and %d", s.Name, *us, most)
		}
		wait := time.Duration(*us) * time.Microsecond
		limit.MaxWait = &wait
	}
	for word, percent := range s.KeepFor {
		priority, err := quota.ParsePriority(word)
		if err != nil {
			return quota.Limit{}, fmt.Errorf("limits.%.70s.keep_for: %w", s.Name, err)
		}
		if limit.KeepFor == nil {
			limit.KeepFor = map[quota.Priority]int{}
		}
		limit.KeepFor[priority] = percent
	}
	for _, rule := range s.Costs {
		limit.Costs = append(limit.Costs, quota.CostRule{Match: rule.Match, Weight: rule.Weight})
	}
	return limit, nil
}

// broken names the object, and cuts what the error quotes of it to a bounded
// length.
func broken(kind Kind, name string, err error) error {
	return fmt.Errorf("%w: %s %.140q: %.300s; upgrade this node, or apply the %s again", ErrBroken, kind, name, err.Error(), kind)
}
