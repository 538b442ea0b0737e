package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/budgetd/budgetd/estimator"
)

// A file of prices that changes prices the next call; one that is broken or
// gone changes nothing and says so, once.
func TestPricesAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	model := func(input string) string {
		return "models: [{provider: acme, id: m, usd_per_million: {input: " + input + ", output: 1}}]"
	}
	base, err := estimator.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f, err := newPriceFile(path, base, prometheus.NewPedanticRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	write(model("1"))
	first, err := f.read()
	if err != nil {
		t.Fatal(err)
	}
	e, err := estimator.New(estimator.Config{Catalogue: first})
	if err != nil {
		t.Fatal(err)
	}
	costs := func(want estimator.PerMillion, broken float64) {
		t.Helper()
		f.look(e)
		m, ok := e.Catalogue().Lookup("acme", "m")
		if !ok || m.Price.Base.Input != want*1_000_000_000 || testutil.ToFloat64(f.broken) != broken {
			t.Errorf("input costs %d, %t, broken %g; want $%d and %g", m.Price.Base.Input, ok, testutil.ToFloat64(f.broken), want, broken)
		}
	}
	costs(1, 0)
	write(model("2"))
	costs(2, 0)
	write(model("-3"))
	costs(2, 1)
	costs(2, 1)
	if n := strings.Count(log.String(), "can't be used"); n != 1 {
		t.Errorf("said %d times that the file is broken, want once: %s", n, log.String())
	}
	write(model("2"))
	costs(2, 0)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	costs(2, 1)
	write(model("4"))
	costs(4, 0)
}
