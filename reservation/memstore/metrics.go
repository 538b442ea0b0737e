package memstore

import "github.com/prometheus/client_golang/prometheus"

// collector reads the engine's sizes when it is scraped, so that no call pays
// for them.
type collector struct {
	store        *Store
	accounts     *prometheus.Desc
	counters     *prometheus.Desc
	reservations *prometheus.Desc
}

func newCollector(s *Store) *collector {
	return &collector{
		store:        s,
		accounts:     prometheus.NewDesc("budgetd_memstore_accounts", "Accounts that the memory engine has state of.", nil, nil),
		counters:     prometheus.NewDesc("budgetd_memstore_counters", "Counters of limits in the memory engine, pools included.", nil, nil),
		reservations: prometheus.NewDesc("budgetd_memstore_reservations", "Reservations in the memory engine: held ones, closed ones that wait for the ledger, and confirmed ones that are remembered.", []string{"state"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	to <- c.accounts
	to <- c.counters
	to <- c.reservations
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	n := c.store.sizes()
	gauge := func(desc *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(c.accounts, n.accounts)
	gauge(c.counters, n.counters)
	gauge(c.reservations, n.open, "held")
	gauge(c.reservations, n.waiting, "waiting")
	gauge(c.reservations, n.kept, "confirmed")
}

// sizes are how much of what there is.
type sizes struct{ accounts, pools, counters, due, open, waiting, kept int }

func (s *Store) sizes() sizes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sizes{
		accounts: len(s.accounts), pools: len(s.pools), counters: s.counters, due: len(s.due),
		open: s.open, waiting: s.waiting, kept: s.kept,
	}
}
