// Package apptest starts brokers with the embedded engine in the process of a test. For
// brokers in a process of their own see test/broker.
package apptest

import (
	"context"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/quota/policystore"
)

// startTimeout bounds the start of a broker, and its end.
const startTimeout = time.Minute

// Start starts a demo broker on a free port, with a policy in place of the demo's, and
// closes it at the end of the test. change may set more of its configuration.
func Start(t testing.TB, policy string, options app.Options, change ...func(*config.Config)) *app.App {
	t.Helper()
	c := config.Default()
	c.Listen, c.Demo, c.Data = "127.0.0.1:0", true, t.TempDir()
	c.Deadline = 5 * time.Second // the tests share a few cores with everything else
	for _, f := range change {
		f(&c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	document, err := policyfile.Parse([]byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	stores, err := app.OpenStores(ctx, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = stores.Policies.Apply(ctx, document, policystore.Options{By: "test"})
	stores.Close()
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.Start(ctx, c, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Errorf("close the broker: %v", err)
		}
	})
	return a
}
