package faults

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// fault is one thing that goes wrong for a while.
type fault struct {
	name   string
	begins func(*run)
	ends   func(*run) // nil: it has no duration
	// loses says that Redis forgets what it knew, or a part of it, at begins.
	loses bool
	// spools says that answered Refunds may be in a spool only meanwhile.
	spools bool
}

var allFaults = []fault{
	{name: "redis killed, and back without a dump", loses: true,
		begins: func(r *run) { r.fleet.redis.Kill() }, ends: func(r *run) { r.fleet.redis.Restart() }},
	{name: "redis flushed", loses: true,
		begins: func(r *run) { r.fleet.redis.FlushAll() }},
	{name: "redis killed, and back with an older dump", loses: true,
		begins: func(r *run) { r.fleet.redis.Kill() }, ends: func(r *run) { r.fleet.setBack() }},
	{name: "postgres stopped", spools: true,
		begins: func(r *run) { r.fleet.postgres.Kill() }, ends: func(r *run) { r.fleet.postgres.Restart() }},
	{name: "a broker killed", spools: true,
		begins: func(r *run) { r.fleet.kill(r.victim()) }, ends: func(r *run) { r.fleet.start(r.dead) }},
	{name: "postgres stopped, redis flushed meanwhile", loses: true, spools: true,
		begins: func(r *run) {
			r.fleet.postgres.Kill()
			r.pause(time.Second, 2*time.Second)
			r.fleet.redis.FlushAll()
		},
		ends: func(r *run) { r.fleet.postgres.Restart() }},
	{name: "postgres stopped, a broker killed meanwhile", spools: true,
		begins: func(r *run) {
			r.fleet.postgres.Kill()
			r.pause(time.Second, 2*time.Second)
			r.fleet.kill(r.victim())
		},
		ends: func(r *run) {
			r.fleet.postgres.Restart()
			r.fleet.start(r.dead)
		}},
}

// run is one run of traffic and faults.
type run struct {
	fleet   *fleet
	traffic *traffic
	random  *rand.Rand // of the schedule alone
	until   time.Time
	dead    int // the broker that was killed last
	faults  map[string]int
}

// victim chooses the broker to be killed.
func (r *run) victim() int {
	r.dead = r.random.IntN(fleetSize)
	return r.dead
}

// pause lets traffic go on for a while that the seed decides. Here and in the
// callers' work time passes: that of servers can't be passed in.
func (r *run) pause(least, most time.Duration) {
	time.Sleep(least + time.Duration(r.random.Int64N(int64(most-least))))
}

// breakThings has every fault happen in turn, in another order each round,
// until the time is over. All servers run when it returns.
func (r *run) breakThings() {
	for round := 0; round == 0 || time.Now().Before(r.until); round++ {
		for _, i := range r.random.Perm(len(allFaults)) {
			if round > 0 && !time.Now().Before(r.until) {
				return
			}
			// The dump is as old as the fault before this one.
			r.fleet.save()
			r.pause(1500*time.Millisecond, 3*time.Second)
			f := allFaults[i]
			began := time.Now()
			f.begins(r)
			if f.loses {
				r.traffic.losses = append(r.traffic.losses, time.Now())
			}
			if f.ends != nil {
				r.pause(time.Second, 3*time.Second)
				f.ends(r)
			}
			if f.spools {
				r.traffic.outages = append(r.traffic.outages, outage{began, time.Now()})
			}
			r.faults[f.name]++
			r.fleet.tb.Logf("%6.1f s: %s, for %.1f s", time.Since(r.traffic.began).Seconds(), f.name, time.Since(began).Seconds())
		}
	}
}

func (r *run) String() string {
	text := ""
	for _, f := range allFaults {
		text += fmt.Sprintf("  %2d x %s\n", r.faults[f.name], f.name)
	}
	return text
}
