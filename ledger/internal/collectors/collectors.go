// Package collectors registers the metrics of the ledger's rooms.
package collectors

import "github.com/prometheus/client_golang/prometheus"

// Register registers all or none: a start that failed can be tried again.
func Register(registry prometheus.Registerer, all ...prometheus.Collector) error {
	for i, collector := range all {
		if err := registry.Register(collector); err != nil {
			for _, registered := range all[:i] {
				registry.Unregister(registered)
			}
			return err
		}
	}
	return nil
}
