package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/faultstore"
	"github.com/budgetd/budgetd/reservation/memstore"
)

const (
	outageSeconds = 10
	outageFrom    = 3 // the second in which the store goes away
	outageTo      = 6 // the second in which it is back
)

// outageCalls are the calls of the one client.
func outageCalls(seed uint64) []time.Duration {
	return poisson(seeded(seed, 1), fleetCalls, outageSeconds*time.Second)
}

// onePolicy is a policy that stays.
type onePolicy struct{ policy *quota.Policy }

func (p onePolicy) Current() *quota.Policy { return p.policy }

// oneKey seals the tokens of reservations that nobody will show.
type oneKey struct{}

var tokenKey = []byte("a key of a simulation, no secret")

func (oneKey) Current() (uint16, []byte)     { return 1, tokenKey }
func (oneKey) ByID(id uint16) ([]byte, bool) { return tokenKey, id == 1 }

// runOutage lets brokers of the product share an engine that does not answer for
// three seconds, under a rule for that. No call ends within the picture.
func runOutage(seed uint64, kind quota.Kind, rule quota.DownRule, books ledger.Ledger, estimates *estimator.Estimator) (perSecond, error) {
	policy, err := quota.NewPolicy([]quota.Plan{{Name: "fleet", Limits: []quota.Limit{{
		Name: "calls", Meter: quota.MeterRequests, Kind: kind, WhenDown: rule,
		Rate: quota.Rate{Amount: fleetLimit, Every: time.Second},
	}}}}, nil, []quota.Account{{Name: account, Plan: "fleet"}}, 1)
	if err != nil {
		return nil, err
	}
	c := newClock()
	engine, err := memstore.New(memstore.Config{Clock: c.Now})
	if err != nil {
		return nil, err
	}
	store, err := faultstore.New(engine, faultstore.Config{Before: 1})
	if err != nil {
		return nil, err
	}
	store.SetEnabled(false)
	c.at(outageFrom*time.Second, func() error { store.SetEnabled(true); return nil })
	c.at(outageTo*time.Second, func() error { store.SetEnabled(false); return nil })

	brokers := make([]*reservation.Broker, fleetNodes)
	for i := range brokers {
		// The deadline is in real time, of which a simulation takes little.
		brokers[i] = reservation.NewBroker(
			reservation.Parts{Store: store, Ledger: books, Policies: onePolicy{policy}, Estimator: estimates, Keys: oneKey{}},
			reservation.Config{Now: c.Now, Deadline: time.Hour, Lease: time.Hour, Logger: slog.New(slog.DiscardHandler)},
		)
	}
	admitted, random := make(perSecond, outageSeconds), seeded(seed, 2)
	c.each(outageCalls(seed), func() error {
		decision, err := brokers[random.IntN(fleetNodes)].Reserve(context.Background(), reservation.Ask{Account: account})
		if errors.Is(err, reservation.ErrUnavailable) {
			return nil
		}
		if err == nil && decision.Grant != nil {
			admitted.count(c)
		}
		return err
	})
	err = c.run()
	for _, broker := range brokers {
		err = errors.Join(err, broker.Close(context.Background()))
	}
	return admitted, err
}

// runLocalOutage is the same where each node goes on with its share of the limit,
// in an engine of its own, while the shared one is away.
func runLocalOutage(seed uint64, kind quota.Kind) (perSecond, error) {
	c := newClock()
	shared, err := newLimiter(c, rateOf(kind, fleetLimit, time.Second))
	if err != nil {
		return nil, err
	}
	nodes := make([]*limiter, fleetNodes)
	for i := range nodes {
		if nodes[i], err = newLimiter(c, rateOf(kind, fleetLimit/fleetNodes, time.Second)); err != nil {
			return nil, err
		}
	}
	admitted, random := make(perSecond, outageSeconds), seeded(seed, 2)
	c.each(outageCalls(seed), func() error {
		asked := nodes[random.IntN(fleetNodes)]
		if second := int(c.elapsed() / time.Second); second < outageFrom || second >= outageTo {
			asked = shared
		}
		granted, err := asked.take()
		if granted {
			admitted.count(c)
		}
		return err
	})
	return admitted, c.run()
}

// temporaryLedger opens the embedded ledger on a file that goes away with done.
// A Reserve does not touch it, but a broker has one.
func temporaryLedger() (books ledger.Ledger, done func() error, err error) {
	folder, err := os.MkdirTemp("", "budgetd-simulate-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() error { return os.RemoveAll(folder) }
	path := filepath.Join(folder, "ledger.db")
	db, err := sqliteledger.OpenFile(path, 5*time.Second)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	_, err = migrations.Up(context.Background(), db, migrations.SQLite)
	if err := errors.Join(err, db.Close()); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make a ledger: %w", err), remove())
	}
	opened, err := sqliteledger.Open(context.Background(), sqliteledger.Config{Path: path})
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return opened, func() error { return errors.Join(opened.Close(), remove()) }, nil
}

// showOutage adds what each rule admits while the store is away.
func showOutage(r *Report, o Options) (err error) {
	books, done, err := temporaryLedger()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	estimates, err := estimator.New(estimator.Config{})
	if err != nil {
		return err
	}
	t := Table{
		Title:  fmt.Sprintf("the store down from second %d to second %d: admitted a second", outageFrom, outageTo),
		Header: []string{"algorithm", "rule", "before, from second 1", "down", "first second after", "later"},
	}
	asked := make(perSecond, outageSeconds)
	for _, at := range outageCalls(o.Seed) {
		asked[at/time.Second]++
	}
	for _, kind := range []struct {
		name string
		kind quota.Kind
	}{{"window", quota.KindFixedWindow}, {"bucket", quota.KindBucket}} {
		open, err := runOutage(o.Seed, kind.kind, quota.DownOpen, books, estimates)
		if err != nil {
			return err
		}
		closed, err := runOutage(o.Seed, kind.kind, quota.DownClosed, books, estimates)
		if err != nil {
			return err
		}
		local, err := runLocalOutage(o.Seed, kind.kind)
		if err != nil {
			return err
		}
		chart := Chart{
			Title: "The store down for 3 s: a " + kind.name + " of 100 a second, a client at 300", X: "second", Y: "admitted a second", Limit: fleetLimit,
			Lines: []Line{{"open", open}, {"closed", closed}, {"a share for each node", local}},
		}
		for _, rule := range chart.Lines {
			p := perSecond(rule.ASeconds)
			down, later := p.mean(outageFrom, outageTo), p.mean(outageTo+1, outageSeconds)
			t.row(kind.name, rule.Name, p.mean(1, outageFrom), down, p[outageTo], later)
			what := fmt.Sprintf("store down, %s, %s: admitted a second", kind.name, rule.Name)
			switch rule.Name {
			case "open":
				r.check(what+" of those asked", down, asked.mean(outageFrom, outageTo), 0)
			case "closed":
				r.check(what, down, 0, 0)
			}
			r.check(what+" when it is up again", later, fleetLimit, 0.01)
		}
		r.Charts = append(r.Charts, chart)
	}
	r.Tables = append(r.Tables, t)
	return nil
}
