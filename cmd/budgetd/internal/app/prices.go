package app

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/estimator"
)

// lookAtPricesEvery is how often the file of prices is read again.
const lookAtPricesEvery = 10 * time.Second

// priceFile is the operator's file of prices, which may change while the broker
// runs. A file that can't be used changes nothing.
type priceFile struct {
	path    string
	base    *estimator.Catalogue
	text    []byte // as it was read last, good or bad
	problem string // of what was read last
	broken  prometheus.Gauge
	log     *slog.Logger
}

// newPriceFile is nil where the operator has no file of prices.
func (a *App) newPriceFile() (*priceFile, error) {
	if a.config.Prices == "" {
		return nil, nil
	}
	base, err := estimator.EmbeddedCatalogue()
	if err != nil {
		return nil, err
	}
	return newPriceFile(a.config.Prices, base, a.registry, a.log)
}

func newPriceFile(path string, base *estimator.Catalogue, registry prometheus.Registerer, log *slog.Logger) (*priceFile, error) {
	f := &priceFile{path: path, base: base, log: log, broken: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "budgetd_prices_file_broken",
		Help: "1 while the file of prices can't be used and those that it had before stand, else 0.",
	})}
	return f, registry.Register(f.broken)
}

// read returns the catalogue with what the file states, nil when the file is as
// it was.
func (f *priceFile) read() (*estimator.Catalogue, error) {
	text, err := readBounded(f.path, maxPricesBytes)
	if err != nil {
		f.text = nil
		return nil, &config.Error{Setting: "prices", Value: f.path, Problem: err.Error()}
	}
	if f.text != nil && bytes.Equal(text, f.text) && f.problem == "" {
		return nil, nil
	}
	f.text = text
	overrides, err := estimator.ParseOverrides(text)
	if err != nil {
		return nil, &config.Error{Setting: "prices", Value: f.path, Problem: err.Error()}
	}
	return f.base.With(overrides), nil
}

// look reads the file again and gives the estimator what it states.
func (f *priceFile) look(e *estimator.Estimator) {
	catalogue, err := f.read()
	if err != nil {
		f.broken.Set(1)
		if err.Error() != f.problem {
			f.problem = err.Error()
			f.log.Error("the file of prices can't be used; the prices that it had before stand", "error", err)
		}
		return
	}
	f.broken.Set(0)
	f.problem = ""
	if catalogue != nil && catalogue.Version() != e.Catalogue().Version() {
		e.Reprice(catalogue)
		f.log.Info("the file of prices was read again", "version", catalogue.Version())
	}
}

// follow looks at the file until ctx ends.
func (f *priceFile) follow(ctx context.Context, e *estimator.Estimator) {
	ticker := time.NewTicker(lookAtPricesEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.look(e)
		}
	}
}
