package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/quota/policystore"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
)

// openServers opens the store and the engine, or says everything that is wrong
// with both at once.
func (a *App) openServers(ctx context.Context, options Options) (*Stores, reservation.Store, error) {
	var problems []error
	if err := os.MkdirAll(a.config.Data, 0o700); err != nil {
		return nil, nil, fmt.Errorf("data: make the directory: %w; name one that this broker may write to, on a disk that outlives it", err)
	}
	unlock, err := lockDir(a.config.Data)
	if err != nil {
		return nil, nil, err
	}
	a.opened("the lock of the data directory", unlock)
	stores, err := openStores(ctx, a.config, auth.KeysConfig{
		Clock: options.Clock, Registerer: a.registry, Log: a.log,
		// A key that is not known here yet takes a read of the store, for which
		// a call waits half as long as for its decision.
		Wait: min(max(a.config.Deadline/2, time.Millisecond), 2*time.Second),
	}, options.Clock)
	if err != nil {
		problems = append(problems, err)
	} else {
		a.opened("the database", stores.Close)
	}
	engine, err := a.openEngine(ctx, options.Clock)
	if err != nil {
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return nil, nil, lines(flatten(problems))
	}
	return stores, engine, nil
}

// flatten turns joined errors into a list.
func flatten(errs []error) []error {
	var flat []error
	for _, err := range errs {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			flat = append(flat, flatten(joined.Unwrap())...)
			continue
		}
		flat = append(flat, err)
	}
	return flat
}

func (a *App) openEngine(ctx context.Context, clock func() time.Time) (reservation.Store, error) {
	if a.config.Redis.IsSet() {
		engine, err := openRedis(ctx, a.config, a.registry, a.log)
		if err != nil {
			return nil, err
		}
		a.opened("the engine", engine.Close)
		guard := reservation.GuardConfig{Registerer: a.registry, Logger: a.log}
		if engine.IsCluster() {
			guard.Failures = reservation.NeverOpen
		}
		return reservation.Guard(engine, guard), nil
	}
	engine, err := memstore.New(memstore.Config{Clock: clock, Registerer: a.registry})
	if err != nil {
		return nil, err
	}
	a.opened("the engine", engine.Close)
	return engine, nil
}

// newEstimator counts and prices with the prices of the policy, the catalogue
// and what the operator adds to that.
func (a *App) newEstimator(policies reservation.Policies, prices *estimator.Overrides) (*estimator.Estimator, error) {
	catalogue, err := estimator.EmbeddedCatalogue()
	if err != nil {
		return nil, err
	}
	if prices != nil {
		catalogue = catalogue.With(*prices)
	}
	settings := estimator.Config{Catalogue: catalogue, Policy: policies.Current, Registerer: a.registry, Now: time.Now}
	if price := a.config.UnknownModelPrice; price > 0 {
		settings.UnknownModel = &estimator.Ceiling{Input: price, Output: price}
	}
	return estimator.New(settings)
}

// loadPolicy applies what the configuration brings: the demo's policy where
// there is no demo account yet, or the policy file.
func (a *App) loadPolicy(ctx context.Context, stores *Stores, file *policyfile.Document) error {
	switch {
	case a.config.Demo:
		present, err := stores.Policies.Load(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", stores.Where, err)
		}
		if _, known := present.Accounts[quota.DemoAccount]; known {
			return nil
		}
		demo := quota.DemoPolicy()
		_, err = stores.Policies.Apply(ctx, &policyfile.Document{
			Plans:    slices.Collect(maps.Values(demo.Plans)),
			Accounts: slices.Collect(maps.Values(demo.Accounts)),
		}, policystore.Options{By: "budgetd serve --demo"})
		if err != nil {
			return fmt.Errorf("apply the demo policy: %w", err)
		}
	case file != nil:
		return a.applyPolicyFile(ctx, stores, file)
	}
	return nil
}

func (a *App) applyPolicyFile(ctx context.Context, stores *Stores, document *policyfile.Document) error {
	change, err := stores.Policies.Apply(ctx, document, policystore.Options{By: "budgetd serve --policy"})
	switch {
	case errors.Is(err, policystore.ErrUnavailable):
		return fmt.Errorf("%s: %w", stores.Where, err)
	case err != nil:
		return &config.Error{Setting: "policy", Value: a.config.Policy, Problem: "can't be applied:\n" + err.Error()}
	}
	for _, warning := range change.Warnings {
		a.log.Warn("the policy file: "+warning, "file", a.config.Policy)
	}
	if change.Changes() {
		a.log.Info("the policy file was applied", "file", a.config.Policy, "version", change.Version)
	}
	return nil
}
