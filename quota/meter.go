package quota

// Meter names what is counted. Besides the built-in meters any name that
// matches [a-z][a-z0-9_]{0,62} is a custom unit (pages, seconds, images).
type Meter string

// The built-in meters and their units.
const (
	MeterRequests     Meter = "requests"      // calls; 1 a call unless the caller says otherwise
	MeterTokens       Meter = "tokens"        // input plus output tokens
	MeterInputTokens  Meter = "input_tokens"  // tokens of the prompt, cached or not
	MeterOutputTokens Meter = "output_tokens" // tokens generated, reasoning included
	MeterCost         Meter = "cost"          // nano-USD
	MeterInFlight     Meter = "in_flight"     // slots; always 1 a call
)

// Amounts maps meters to amounts. A meter that is absent was not stated, which
// is not the same as a stated zero.
type Amounts map[Meter]Amount
