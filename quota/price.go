package quota

import "time"

// ModelPrice is what a model costs from an instant on, as an operator states
// it. It stands before the catalogue's price.
type ModelPrice struct {
	Provider string
	Model    string
	From     time.Time // the reservations that are made from it on pin this price
	// Rates are nano-USD per million tokens, by class: input, output, and where
	// stated cache_read, cache_write, cache_write_1h, reasoning.
	Rates map[string]NanoUSD
}
