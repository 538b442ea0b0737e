package simulate

import (
	"math/rand/v2"
	"slices"
	"time"
)

// seeded is the random source of one part of a scenario: parts that draw from
// sources of their own don't change each other's traffic.
func seeded(seed, part uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, part)) }

// poisson are the instants at which calls come, from the beginning of a
// simulation, independently of each other and perSecond of them on average.
func poisson(random *rand.Rand, perSecond float64, span time.Duration) []time.Duration {
	var instants []time.Duration
	for at := 0.0; ; {
		at += random.ExpFloat64() / perSecond
		instant := time.Duration(at * float64(time.Second))
		if instant >= span {
			return instants
		}
		instants = append(instants, instant)
	}
}

// burst are so many calls at one instant.
func burst(at time.Duration, calls int) []time.Duration {
	instants := make([]time.Duration, calls)
	for i := range instants {
		instants[i] = at
	}
	return instants
}

// perSecond is what was admitted in each second.
type perSecond []float64

func (p perSecond) count(c *clock) {
	if second := int(c.elapsed() / time.Second); second < len(p) {
		p[second]++
	}
}

// mean of the seconds from one to another, which is left out.
func (p perSecond) mean(from, to int) float64 {
	sum := 0.0
	for _, value := range p[from:to] {
		sum += value
	}
	return sum / float64(to-from)
}

// most is the largest of the seconds from one on.
func (p perSecond) most(from int) float64 { return slices.Max(p[from:]) }

// regular are instants at equal distances, from the first until a span is over.
func regular(first, every, span time.Duration) []time.Duration {
	var instants []time.Duration
	for at := first; at < span; at += every {
		instants = append(instants, at)
	}
	return instants
}
