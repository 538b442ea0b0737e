package simulate

import (
	"fmt"
	"strings"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// showExamples adds three examples that can be worked out by hand.
func showExamples(r *Report) error {
	t := Table{Title: "worked examples", Header: []string{"limit", "calls", "found"}}
	for _, show := range []func(*Report, *Table) error{exampleGCRA, exampleQueue, exampleCounter} {
		if err := show(r, &t); err != nil {
			return err
		}
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// exampleGCRA: one a second with a burst of three.
func exampleGCRA(r *Report, t *Table) error {
	hold := rateOf(quota.KindGCRA, 1, time.Second)
	hold.Bucket = quota.Limit{Kind: quota.KindGCRA, Rate: quota.Rate{Amount: 1, Every: time.Second}, Burst: 3}.Bucket()
	begun, refused, err := algorithm{hold: hold}.admissions(append(burst(0, 4), burst(time.Second, 2)...))
	if err != nil {
		return err
	}
	t.row("GCRA, 1/s, burst 3", "four at 0 s, two at 1 s", fmt.Sprintf("begin at %s; refused: %d", seconds(begun), refused))
	r.check("GCRA 1/s, burst 3: admitted at 0 s", float64(countAt(begun, 0)), 3, 0)
	r.check("GCRA 1/s, burst 3: admitted at 1 s", float64(countAt(begun, time.Second)), 1, 0)
	r.check("GCRA 1/s, burst 3: refused", float64(refused), 2, 0)
	return nil
}

// exampleQueue: a leaky queue of five, one a second.
func exampleQueue(r *Report, t *Table) error {
	hold := rateOf(quota.KindLeakyQueue, 1, time.Second)
	hold.Bucket.Capacity = 5
	begun, refused, err := algorithm{hold: hold}.admissions(burst(0, 8))
	if err != nil {
		return err
	}
	t.row("leaky queue of 5, 1/s", "eight at 0 s", fmt.Sprintf("begin at %s; refused: %d", seconds(begun), refused))
	for wait := range 5 {
		r.check(fmt.Sprintf("queue of 5, 1/s: calls that wait %d s", wait), float64(countAt(begun, time.Duration(wait)*time.Second)), 1, 0)
	}
	r.check("queue of 5, 1/s: refused", float64(refused), 3, 0)
	return nil
}

// exampleCounter: 80 in the last minute, of which six tenths still count, and 30 in
// this one.
func exampleCounter(r *Report, t *Table) error {
	c := newClock()
	l, err := newLimiter(c, rateOf(quota.KindSlidingCounter, 100, time.Minute))
	if err != nil {
		return err
	}
	var left quota.Amount
	c.at(30*time.Second, func() error { return l.charge(80) })
	c.at(84*time.Second, func() error { return l.charge(30) })
	c.at(84*time.Second, func() (err error) { left, err = l.remaining(); return err })
	if err := c.run(); err != nil {
		return err
	}
	t.row("sliding counter, 100/min", "80 in a minute, 30 by 24 s of the next", fmt.Sprintf("counts %d", 100-left))
	r.check("sliding counter, 80 x 0.6 + 30", float64(100-left), 78, 0)
	return nil
}

func countAt(instants []time.Duration, at time.Duration) int {
	count := 0
	for _, instant := range instants {
		if instant == at {
			count++
		}
	}
	return count
}

func seconds(instants []time.Duration) string {
	var texts []string
	for _, at := range instants {
		texts = append(texts, at.String())
	}
	return strings.Join(texts, " ")
}
