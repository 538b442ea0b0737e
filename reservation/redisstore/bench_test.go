package redisstore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/test/servers"
)

// classicBucket is the single token bucket that many limiters use: text
// fields, TIME, HMGET, HSET, PEXPIRE.
const classicBucket = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local v = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local capacity, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, ts = tonumber(v[1]) or capacity, tonumber(v[2]) or now
tokens = math.min(capacity, tokens + (now - ts) * rate / 1000000)
local allowed = tokens >= cost
if allowed then tokens = tokens - cost end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'ts', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate * 1000))
return {allowed and 1 or 0, math.floor(tokens)}`

const benchDepth = 64 // commands a pipeline

// benchPlan is 4 buckets, a slot and a quota.
func benchPlan(now time.Time) []reservation.Hold {
	var holds []reservation.Hold
	for i := range 4 {
		holds = append(holds, reservation.Hold{
			Counter: reservation.Counter{Limit: fmt.Sprintf("bucket%d.%08x", i, i)}, Kind: quota.KindBucket, Amount: 1,
			Bucket: quota.Bucket{Capacity: 1 << 40, Refill: 1000, PerMicros: 3}, OnExpiry: quota.ExpiryGiveBack,
		})
	}
	return append(holds,
		reservation.Hold{Counter: reservation.Counter{Limit: "in-flight.00000001"}, Kind: quota.KindSlots, Amount: 1, Max: 1 << 40},
		reservation.Hold{
			Counter: reservation.Counter{Limit: "spend.00000001"}, Kind: quota.KindQuota, Amount: 1, Max: 1 << 50,
			Period: quota.Period{Key: "y2026-01-01", Start: now.AddDate(-1, 0, 0), End: now.AddDate(1, 0, 0)},
		})
}

type bench struct {
	*testing.B
	s      *Store
	client *redis.Client
	holds  []reservation.Hold
}

func newBench(b *testing.B) *bench {
	server := servers.NewRedis(b)
	s := open(b, patient(b, server.URL()), Config{})
	x := &bench{b, s, server.Client(b), benchPlan(time.Now())}
	x.seed("acme")
	return x
}

// seed gives an account's quota its counter.
func (x *bench) seed(account string) {
	ctx := context.Background()
	answer, err := x.s.Reserve(ctx, x.ask(account, time.Now()))
	if err != nil || answer.Verdict != reservation.Unseeded {
		x.Fatalf("verdict %d, error %v", answer.Verdict, err)
	}
	spend := x.holds[5]
	if ok, err := x.s.Seed(ctx, reservation.SeedRequest{Account: account, Counter: spend.Counter, Period: spend.Period, Ticket: answer.Tickets[0].Ticket}); err != nil || !ok {
		x.Fatalf("seeded: %v, error %v", ok, err)
	}
}

func (x *bench) ask(account string, minted time.Time) reservation.ReserveRequest {
	return reservation.ReserveRequest{
		Account: account, ID: reservation.NewID(minted), Holds: x.holds, Lease: time.Minute, Retention: time.Minute,
		Token: make([]byte, 200),
	}
}

// command is a script call as the store sends it, for pipelines.
type command struct {
	digest string
	keys   []string
	arg    []byte
}

func (x *bench) reserveCommand(r reservation.ReserveRequest) command {
	keys, arg := x.s.reserveCall(x.s.account(r.Account), &r, commit, wholeChoice(r.Output))
	return command{x.s.single.loaded.Load().digests[scriptReserve], keys, arg}
}

func (x *bench) refundCommand(r reservation.ReserveRequest) command {
	keys, arg := x.s.refundCall(x.s.account(r.Account), &reservation.RefundRequest{
		Account: r.Account, ID: r.ID, Lease: r.Lease, Retention: r.Retention, Token: r.Token,
		Actual: []quota.Amount{1, 1, 0, 0, 0, 1},
	})
	return command{x.s.single.loaded.Load().digests[scriptRefund], keys, arg}
}

// micros returns the server's own time in scripts, in us a call: what Redis
// counts for EVALSHA since the last reset.
func (x *bench) micros(calls int) float64 {
	stats, err := x.client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		x.Fatal(err)
	}
	var n, us int64
	var per float64
	if _, err := fmt.Sscanf(infoField(stats, "cmdstat_evalsha"), "calls=%d,usec=%d,usec_per_call=%f", &n, &us, &per); err != nil {
		x.Fatal(err)
	}
	if int(n) != calls {
		x.Fatalf("%d calls were counted, not %d", n, calls)
	}
	return float64(us) / float64(n)
}

// run sends commands in pipelines and returns the script time of one, in us.
func (x *bench) run(commands []command) float64 {
	ctx := context.Background()
	if err := x.client.ConfigResetStat(ctx).Err(); err != nil {
		x.Fatal(err)
	}
	for start := 0; start < len(commands); start += benchDepth {
		if _, err := x.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, c := range commands[start:min(start+benchDepth, len(commands))] {
				if c.arg == nil {
					p.EvalSha(ctx, c.digest, c.keys, 1000000, 1000, 1)
				} else {
					p.EvalSha(ctx, c.digest, c.keys, c.arg)
				}
			}
			return nil
		}); err != nil {
			x.Fatal(err)
		}
	}
	return x.micros(len(commands))
}

// load gives a script to Redis and returns its digest.
func (x *bench) load(text string) string {
	digest, err := x.client.ScriptLoad(context.Background(), text).Result()
	if err != nil {
		x.Fatal(err)
	}
	return digest
}

// BenchmarkScripts compares, in one run and round by round, the time inside
// Redis of Reserve and Refund (4 buckets, a slot and a quota, 1,000 of them open) with
// a classic single token bucket and with a script that does nothing.
func BenchmarkScripts(b *testing.B) {
	x := newBench(b)
	classic, nothing := x.load(classicBucket), x.load("return 1")
	var times [4]samples
	for b.Loop() {
		var reserves, refunds, buckets, returns []command
		now := time.Now()
		for range benchDepth {
			r := x.ask("acme", now)
			reserves = append(reserves, x.reserveCommand(r))
			refunds = append(refunds, x.refundCommand(r))
			buckets = append(buckets, command{classic, []string{"classic"}, nil})
			returns = append(returns, command{nothing, []string{"classic"}, nil})
		}
		for i, commands := range [][]command{reserves, refunds, buckets, returns} {
			times[i] = append(times[i], x.run(commands))
		}
	}
	reserve, refund, bucket, nop := times[0].median(), times[1].median(), times[2].median(), times[3].median()
	b.ReportMetric(reserve, "reserve-us")
	b.ReportMetric(refund, "refund-us")
	b.ReportMetric(bucket, "classic-us")
	b.ReportMetric(nop, "return1-us")
	b.ReportMetric(reserve/bucket, "reserve/classic")
	b.ReportMetric(refund/bucket, "refund/classic")
	b.ReportMetric(reserve/nop, "reserve/return1")
	b.ReportMetric(0, "ns/op")
}

// output makes an ask choose between least and 1,000 tokens in its first bucket.
func output(r reservation.ReserveRequest, least, forecast int64) reservation.ReserveRequest {
	r.Holds = slices.Clone(r.Holds)
	r.Holds[0].Amount = 1000
	slopes := make([]reservation.Slope, len(r.Holds))
	slopes[0] = reservation.Slope{PerToken: 1, Per: 1, Weight: 1, Tolerance: 1 << 30}
	r.Output = &reservation.Output{Asked: 1000, Least: least, Forecast: forecast, Slopes: slopes}
	return r
}

// BenchmarkHolds shows the time inside Redis of a Reserve by the way it holds its
// output, round by round with a script that does nothing: the worst case, the
// worst case in a bucket in which a forecast is open, the largest output that fits,
// and a forecast. Scripts leave garbage that later ones clear away: each way has a
// Redis of its own, and what comes before "return 1" is as in BenchmarkScripts.
func BenchmarkHolds(b *testing.B) {
	plain := func(r reservation.ReserveRequest) reservation.ReserveRequest { return r }
	forecast := func(r reservation.ReserveRequest) reservation.ReserveRequest { return output(r, 1000, 100) }
	for _, way := range []struct {
		name   string
		beside bool // a forecast is open
		ask    func(reservation.ReserveRequest) reservation.ReserveRequest
	}{
		{"worst-case", false, plain},
		{"worst-case-beside-forecast", true, plain},
		{"largest-that-fits", false, func(r reservation.ReserveRequest) reservation.ReserveRequest { return output(r, 1, 1000) }},
		{"forecast", false, forecast},
	} {
		b.Run(way.name, func(b *testing.B) {
			x := newBench(b)
			ctx := context.Background()
			if way.beside {
				open := forecast(x.ask("acme", time.Now()))
				open.Lease = 24 * time.Hour
				if answer, err := x.s.Reserve(ctx, open); err != nil || !slices.Contains(answer.Decided.Forecast, true) {
					b.Fatalf("no forecast is held: %+v, error %v", answer, err)
				}
			}
			classic, nothing := x.load(classicBucket), x.load("return 1")
			var times, returns samples
			for b.Loop() {
				var reserves, refunds, buckets, nothings []command
				now := time.Now()
				for range benchDepth {
					r := way.ask(x.ask("acme", now))
					reserves = append(reserves, x.reserveCommand(r))
					refunds = append(refunds, x.refundCommand(r))
					buckets = append(buckets, command{classic, []string{"classic"}, nil})
					nothings = append(nothings, command{nothing, []string{"classic"}, nil})
				}
				times = append(times, x.run(reserves))
				x.run(refunds)
				x.run(buckets)
				returns = append(returns, x.run(nothings))
			}
			b.ReportMetric(times.median(), "reserve-us")
			b.ReportMetric(returns.median(), "return1-us")
			b.ReportMetric(times.median()/returns.median(), "reserve/return1")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// samples are times of one pipeline each. Their median is what a pipeline
// takes that no other process interrupts.
type samples []float64

func (s samples) median() float64 {
	slices.Sort(s)
	return s[len(s)/2]
}

// long is an ask with a lease of an hour.
func (x *bench) long() reservation.ReserveRequest {
	r := x.ask("acme", time.Now())
	r.Lease = time.Hour
	return r
}

// fill opens that many reservations in the account.
func (x *bench) fill(open int) {
	for done := 0; done < open; {
		var commands []command
		for range min(16*benchDepth, open-done) {
			commands = append(commands, x.reserveCommand(x.long()))
		}
		x.run(commands)
		done += len(commands)
	}
}

// BenchmarkAudit shows how long one Audit blocks Redis, by the open
// reservations of the account. (Each has 4 buckets, a slot and a quota.)
func BenchmarkAudit(b *testing.B) {
	for _, open := range []int{1, 1000, reservation.MaxAuditRecords} {
		b.Run(fmt.Sprint(open), func(b *testing.B) {
			x := newBench(b)
			x.fill(open)
			ctx := context.Background()
			request := reservation.AuditRequest{Account: "acme", Counters: []reservation.AuditCounter{{Counter: x.holds[5].Counter, Period: x.holds[5].Period}}}
			var times samples
			for b.Loop() {
				if err := x.client.ConfigResetStat(ctx).Err(); err != nil {
					b.Fatal(err)
				}
				answer, err := x.s.Audit(ctx, request)
				if err != nil || answer.Records != open || answer.TooMany {
					b.Fatalf("%d records, error %v", answer.Records, err)
				}
				times = append(times, x.micros(1))
			}
			b.ReportMetric(times.median(), "audit-us")
			b.ReportMetric(times.median()/float64(open), "us/record")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkOpen shows what a Reserve and a Refund cost inside Redis with many
// reservations open in the account.
func BenchmarkOpen(b *testing.B) {
	for _, open := range []int{1, 1000, 100000} {
		b.Run(fmt.Sprint(open), func(b *testing.B) {
			x := newBench(b)
			x.fill(open)
			var times [2]samples
			for b.Loop() {
				var reserves, refunds []command
				for range benchDepth {
					r := x.long()
					reserves = append(reserves, x.reserveCommand(r))
					refunds = append(refunds, x.refundCommand(r))
				}
				times[0] = append(times[0], x.run(reserves))
				times[1] = append(times[1], x.run(refunds))
			}
			b.ReportMetric(times[0].median(), "reserve-us")
			b.ReportMetric(times[1].median(), "refund-us")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkReserveRefund is a pair of calls from Go, one caller, one account.
func BenchmarkReserveRefund(b *testing.B) {
	x := newBench(b)
	ctx := context.Background()
	for b.Loop() {
		r := x.ask("acme", time.Now())
		answer, err := x.s.Reserve(ctx, r)
		if err != nil || answer.Verdict != reservation.Granted {
			b.Fatalf("verdict %d, error %v", answer.Verdict, err)
		}
		refund, err := x.s.Refund(ctx, reservation.RefundRequest{
			Account: r.Account, ID: r.ID, Lease: r.Lease, Retention: r.Retention, Token: r.Token, Actual: []quota.Amount{1, 1, 0, 0, 0, 1},
		})
		if err != nil || refund.Verdict != reservation.RefundSettled {
			b.Fatalf("verdict %d, error %v", refund.Verdict, err)
		}
	}
}
