package traces

// levels are the probabilities at which Quantiles are taken.
var levels = [...]float64{0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1}

// Quantiles are the values of a sorted column at floor(p * n), the last at n-1,
// for each level p.
type Quantiles [len(levels)]int64

// Shape is the distribution of a published trace.
type Shape struct {
	Gap       Quantiles // time between requests, in units of 100 ns, a trace's own
	Context   Quantiles // tokens read
	Generated Quantiles // tokens written
}

// The shapes of the two traces: a code-completion service, whose requests come
// in bursts and write little, and a chat service.
var (
	Code = Shape{
		Gap:       Quantiles{60, 880, 20770, 638120, 1039980, 4008460, 22051670, 827521590, 2171689520},
		Context:   Quantiles{3, 75, 578, 1469, 2745, 7315, 7436, 7437, 7437},
		Generated: Quantiles{6, 6, 9, 13, 24, 90, 252, 831, 1899},
	}
	Conv = Shape{
		Gap:       Quantiles{20, 63200, 482720, 1184240, 2467330, 5652340, 8908680, 14309970, 43145790},
		Context:   Quantiles{2, 181, 396, 1020, 1189, 4083, 4142, 6212, 14050},
		Generated: Quantiles{7, 41, 85, 129, 395, 451, 601, 954, 1000},
	}
)
