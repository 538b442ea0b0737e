package simulate

import (
	"fmt"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

const (
	algorithmLimit = 10
	algorithmSpan  = 10 * time.Second
)

// algorithm is a way to read "10 per 10 s".
type algorithm struct {
	name      string
	hold      reservation.Hold
	published float64 // most that are known to be admitted in a span
}

func algorithms() []algorithm {
	of := func(kind quota.Kind) reservation.Hold { return rateOf(kind, algorithmLimit, algorithmSpan) }
	return []algorithm{
		{"token bucket", of(quota.KindBucket), 19},
		{"GCRA", of(quota.KindGCRA), 19},
		{"leaky queue", of(quota.KindLeakyQueue), 10},
		{"fixed window", of(quota.KindFixedWindow), 20},
		{"sliding log", of(quota.KindSlidingLog), 10},
		{"sliding counter", of(quota.KindSlidingCounter), 19},
	}
}

// trafficked is a traffic with its name.
type trafficked struct {
	name  string
	calls []time.Duration
}

func algorithmTraffics() []trafficked {
	boundary := algorithmSpan
	before := boundary - 100*time.Millisecond
	return []trafficked{
		{"ten at 9.9 s, ten at 10.0 s", append(burst(before, 10), burst(boundary, 10)...)},
		{"ten at 9.9 s, then ten a second", append(burst(before, 10), regular(boundary, 100*time.Millisecond, 3*algorithmSpan)...)},
		{"twenty at 5 s", burst(boundary/2, 20)},
	}
}

// admissions are the instants at which calls of a traffic begin, in order, and how
// many were refused.
func (a algorithm) admissions(traffic []time.Duration) (begun []time.Duration, refused int, err error) {
	c := newClock()
	l, err := newLimiter(c, a.hold)
	if err != nil {
		return nil, 0, err
	}
	c.each(traffic, func() error {
		answer, err := l.ask("")
		switch {
		case err != nil:
			return err
		case answer.Verdict == reservation.Refused:
			refused++
		default:
			begun = append(begun, answer.StartAt.Sub(began))
		}
		return nil
	})
	return begun, refused, c.run()
}

// mostIn is the most instants in any half-open span of a length. They are in
// order.
func mostIn(instants []time.Duration, span time.Duration) int {
	most, first := 0, 0
	for i, at := range instants {
		for instants[first]+span <= at {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// runAlgorithms shows what six algorithms make of one limit.
func runAlgorithms(Options) (*Report, error) {
	r := &Report{}
	t := Table{
		Title:  fmt.Sprintf("%d per %s: most calls that begin in any %s", algorithmLimit, algorithmSpan, algorithmSpan),
		Header: []string{"algorithm"},
	}
	traffics := algorithmTraffics()
	for _, traffic := range traffics {
		t.Header = append(t.Header, traffic.name)
	}
	t.Header = append(t.Header, "worst", "most in any 1 s")
	chart := Chart{Title: "10 per 10 s: most calls that begin in any 10 s, worst of three traffics", X: "algorithm", Y: "calls", Limit: algorithmLimit}
	for _, a := range algorithms() {
		cells, worst, inSecond := []any{a.name}, 0, 0
		for _, traffic := range traffics {
			begun, _, err := a.admissions(traffic.calls)
			if err != nil {
				return nil, err
			}
			most := mostIn(begun, algorithmSpan)
			cells, worst, inSecond = append(cells, most), max(worst, most), max(inSecond, mostIn(begun, time.Second))
		}
		t.row(append(cells, worst, inSecond)...)
		chart.Bars = append(chart.Bars, Bar{a.name, float64(worst)})
		r.check(a.name+": most admitted in any 10 s", float64(worst), a.published, 0)
		if a.hold.Kind == quota.KindSlidingCounter {
			r.check(a.name+": most admitted in any 1 s", float64(inSecond), algorithmLimit, 0)
		}
	}
	r.Tables, r.Charts = []Table{t}, []Chart{chart}
	return r, showExamples(r)
}
