package simulate

import "fmt"

// Options are what a simulation depends on.
type Options struct {
	Seed uint64 // of all traffic: the same seed gives the same figures

	// Traces is a folder with code.csv and conv.csv of the Azure LLM inference
	// traces of 2023; "": they are generated in their shape.
	Traces string
}

// Scenario is one thing to be shown.
type Scenario struct {
	Name  string
	Title string
	Help  string // what is shown, for people
	Show  func(Options) (*Report, error)
}

// Scenarios are all of them, in the order in which they are shown.
func Scenarios() []Scenario {
	return []Scenario{
		{
			"algorithms", "Six algorithms, one limit",
			`What "10 per 10 s" comes to with each algorithm: the most calls that begin in any
span of ten seconds, with a burst at the boundary of two spans, a burst and then a
steady stream, and a burst of twice the limit.`, runAlgorithms,
		},
		{
			"fleet", "One limit on ten nodes",
			`A limit of 100 a second and a client that calls 300 times a second, over ten
nodes: each counts alone, each has its part of the limit, all ask one store, or
each counts alone and syncs with the others every so often. And the store down
for three seconds, under each rule for that.`, runFleet,
		},
		{
			"race", "Check-then-act against one atomic step",
			`One limit of 100 a second in a store that is a round trip away. Whoever reads
the count and writes one more a round trip later overwrites what others wrote
meanwhile. The engine asks and counts in one step.`, runRaces,
		},
		{
			"naive", "Failures of a naive limiter",
			`A count of ten in ten seconds for each client, as one writes it first: at the
boundary of two spans, on four servers, behind a proxy, and in a shared store
that is read and then written. Beside it the engine, asked the same.`, runNaive,
		},
		{
			"fair", "Fair shares of a pool",
			`Accounts of a pool that ask for more than its limit, with fair and without: what
each gets a second beside its max-min share, how long its first admission takes,
and what is lost by it. And a greedy account that is alone until four others come.`, runFair,
		},
		{
			"holds", "What each way of holding lets through",
			`Traces of model calls are replayed through the engine with each way of holding
tokens until a call's use is known, beside an oracle that knows it before.
--traces names a folder with code.csv and conv.csv, as Azure publishes them;
without it traces of their shape are generated.`, runHolds,
		},
	}
}

// Run runs the scenario.
func (s Scenario) Run(o Options) (*Report, error) {
	r, err := s.Show(o)
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", s.Name, err)
	}
	r.Scenario, r.Title, r.Seed = s.Name, s.Title, o.Seed
	return r, nil
}
