package replay

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota"
)

// Assumption says in words what a replay assumes of durations.
const Assumption = "a call takes 0.5 s + 20 ms per generated token, in the trace's time (assumed: a trace has no durations)"

// MaxSpeed bounds how much faster than in the trace time may pass.
const MaxSpeed = 10_000

// maxRun bounds how long a replay takes.
const maxRun = 24 * time.Hour

// Schedule turns the time of a trace into that of the replay.
type Schedule struct {
	First time.Time // the trace's first instant
	Speed int64     // how many times faster time passes, 1 to MaxSpeed
}

// Arrival is when after the start a request comes.
func (s Schedule) Arrival(r trace.Request) time.Duration {
	return r.At.Sub(s.First) / time.Duration(s.Speed)
}

// Duration is how long the call of a request takes.
func (s Schedule) Duration(r trace.Request) time.Duration {
	return trace.Duration(r.Generated) / time.Duration(s.Speed)
}

// Bucket is a limit on the rate of tokens in the trace's time, as a limit of
// the replay's time: it refills as many times faster as time passes, and holds
// as much as in the trace.
func (s Schedule) Bucket(rate quota.Rate) (quota.Limit, error) {
	if rate.Amount > quota.MaxAmount/quota.Amount(s.Speed) {
		return quota.Limit{}, fmt.Errorf("%s at %d times the speed is above the largest amount, %d", quota.FormatRate(quota.MeterTokens, rate), s.Speed, quota.MaxAmount)
	}
	return quota.Limit{
		Name: "tokens", Meter: quota.MeterTokens, Kind: quota.KindBucket,
		Rate: quota.Rate{Amount: rate.Amount * quota.Amount(s.Speed), Every: rate.Every}, Burst: rate.Amount,
	}, nil
}

// ParseShare reads "2%" or "0.5%", in parts of a million.
func ParseShare(text string) (int64, error) {
	number, ok := strings.CutSuffix(text, "%")
	whole, fraction, _ := strings.Cut(number, ".")
	if !ok || whole == "" || len(whole) > 3 || len(fraction) > 4 || strings.Trim(whole+fraction, "0123456789") != "" || strings.HasSuffix(number, ".") {
		return 0, fmt.Errorf("%q is not a share such as 2%% or 0.5%%, with at most four decimals", text)
	}
	parts, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", 4-len(fraction)), 10, 64)
	if err != nil || parts > million {
		return 0, fmt.Errorf("%q is not between 0%% and 100%%", text)
	}
	return parts, nil
}

const million = 1_000_000

// draw picks exactly need of the next left requests, every choice being as
// likely as any other: Knuth, The Art of Computer Programming, volume 2, 3.4.2,
// algorithm S.
type draw struct {
	rng        *rand.Rand
	need, left int64
}

// newDraw picks share parts of a million of the requests, rounded to the
// nearest and at least one when share is not 0.
func newDraw(seed uint64, share, requests int64) *draw {
	need := (requests*share + million/2) / million
	if share > 0 {
		need = min(max(need, 1), requests)
	}
	return &draw{rng: rand.New(rand.NewPCG(seed, 0x6b696c6c)), need: need, left: requests}
}

// next says whether the next request is picked.
func (d *draw) next() bool {
	if d.left <= 0 {
		return false
	}
	picked := d.rng.Int64N(d.left) < d.need
	d.left--
	if picked {
		d.need--
	}
	return picked
}
