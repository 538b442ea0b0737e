package redisstore

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/test/servers"
)

// tokens is a hold on a bucket of the account.
func tokens(amount quota.Amount, b quota.Bucket) reservation.Hold {
	return reservation.Hold{
		Counter: reservation.Counter{Limit: "tokens.00000000"}, Kind: quota.KindBucket,
		Amount: amount, Bucket: b, OnExpiry: quota.ExpiryGiveBack,
	}
}

// spend is a hold on a yearly quota of the account.
func spend(amount, most quota.Amount) reservation.Hold {
	return reservation.Hold{
		Counter: reservation.Counter{Limit: "spend.00000000"}, Kind: quota.KindQuota, Amount: amount, Max: most,
		Period: quota.Period{Key: "y2026-01-01", Start: time.Unix(0, 0).UTC(), End: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
}

func slot(most quota.Amount) reservation.Hold {
	return reservation.Hold{Counter: reservation.Counter{Limit: "in-flight.00000000"}, Kind: quota.KindSlots, Amount: 1, Max: most}
}

func asking(account string, holds ...reservation.Hold) reservation.ReserveRequest {
	return reservation.ReserveRequest{
		Account: account, ID: reservation.NewID(time.Now()), Holds: holds,
		Lease: time.Minute, Retention: time.Minute, Token: []byte("token"),
	}
}

func closing(r reservation.ReserveRequest, body byte, actual ...quota.Amount) reservation.RefundRequest {
	return reservation.RefundRequest{
		Account: r.Account, ID: r.ID, Lease: r.Lease, Retention: r.Retention, Token: r.Token,
		Body: reservation.Hash{body}, Actual: actual,
	}
}

func confirming(r reservation.RefundRequest) reservation.ConfirmRequest {
	return reservation.ConfirmRequest{
		Account: r.Account, ID: r.ID, Lease: r.Lease, Retention: r.Retention, Rank: 2,
		Body: r.Body, Actual: r.Actual, ClosedAt: time.Now(),
	}
}

func mustReserve(tb testing.TB, s reservation.Store, r reservation.ReserveRequest, want reservation.ReserveVerdict) reservation.ReserveAnswer {
	tb.Helper()
	answer, err := s.Reserve(within(tb, 30*time.Second), r)
	if err != nil || answer.Verdict != want {
		tb.Fatalf("Reserve: verdict %d, error %v; want verdict %d", answer.Verdict, err, want)
	}
	return answer
}

func mustRefund(tb testing.TB, s reservation.Store, r reservation.RefundRequest, want reservation.RefundVerdict) reservation.RefundAnswer {
	tb.Helper()
	answer, err := s.Refund(within(tb, 30*time.Second), r)
	if err != nil || answer.Verdict != want {
		tb.Fatalf("Refund: verdict %d, error %v; want verdict %d", answer.Verdict, err, want)
	}
	return answer
}

func mustConfirm(tb testing.TB, s reservation.Store, r reservation.ConfirmRequest, want reservation.ConfirmVerdict) {
	tb.Helper()
	verdict, err := s.Confirm(within(tb, 30*time.Second), r)
	if err != nil || verdict != want {
		tb.Fatalf("Confirm: verdict %d, error %v; want verdict %d", verdict, err, want)
	}
}

// seeded asks for a quota's ticket and seeds it.
func seeded(tb testing.TB, s reservation.Store, account string, h reservation.Hold, used quota.Amount) {
	tb.Helper()
	h.Amount = 1
	answer := mustReserve(tb, s, asking(account, h), reservation.Unseeded)
	ok, err := s.Seed(within(tb, 30*time.Second), reservation.SeedRequest{
		Account: account, Counter: h.Counter, Period: h.Period, Ticket: answer.Tickets[0].Ticket, Used: used, Version: 1,
	})
	if err != nil || !ok {
		tb.Fatalf("Seed: %v, error %v", ok, err)
	}
}

// eventually polls until done says true, for at most 30 s.
func eventually(tb testing.TB, what string, done func(ctx context.Context) bool) {
	tb.Helper()
	eventuallyIn(tb, 30*time.Second, what, done)
}

func eventuallyIn(tb testing.TB, span time.Duration, what string, done func(ctx context.Context) bool) {
	tb.Helper()
	ctx := within(tb, span)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("not within %s: %s", span, what)
		}
	}
}

// moveSlot moves the hash slot of a key with all its keys to another node, as
// redis-cli --cluster reshard does.
func moveSlot(tb testing.TB, key string, source, target *servers.RedisProcess, cluster *servers.RedisClusterProcesses) {
	tb.Helper()
	ctx := within(tb, 30*time.Second)
	from, to := source.Client(tb), target.Client(tb)
	do := func(c *redis.Client, command ...any) any {
		tb.Helper()
		got, err := c.Do(ctx, command...).Result()
		if err != nil {
			tb.Fatalf("%v: %v", command, err)
		}
		return got
	}
	number := do(from, "CLUSTER", "KEYSLOT", key)
	sourceID, targetID := do(from, "CLUSTER", "MYID"), do(to, "CLUSTER", "MYID")
	host, port, err := net.SplitHostPort(target.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	do(to, "CLUSTER", "SETSLOT", number, "IMPORTING", sourceID)
	do(from, "CLUSTER", "SETSLOT", number, "MIGRATING", targetID)
	keys := do(from, "CLUSTER", "GETKEYSINSLOT", number, 1000).([]any)
	do(from, append([]any{"MIGRATE", host, port, "", 0, 10000, "KEYS"}, keys...)...)
	for _, node := range append([]*servers.RedisProcess{target, source}, cluster.Nodes...) {
		do(node.Client(tb), "CLUSTER", "SETSLOT", number, "NODE", targetID)
	}
}

// drift rewrites a quota's counter, by other means than the scripts, to hold
// that much more.
func drift(tb testing.TB, s *Store, account string, c reservation.Counter, period quota.Period, held, unposted quota.Amount) {
	tb.Helper()
	ctx := within(tb, 10*time.Second)
	p := s.account(account)
	where, ref := s.place(p, quota.KindQuota, c)
	n, err := s.nodeFor(ctx, p.hash())
	if err != nil {
		tb.Fatal(err)
	}
	var raw []byte
	if where == inField {
		raw, err = n.client.HGet(ctx, p.hash(), ref).Bytes()
	} else {
		raw, err = n.client.Get(ctx, ref).Bytes()
	}
	if err != nil {
		tb.Fatalf("the counter %q: %v", ref, err)
	}
	in := reply{rest: raw}
	var out args
	out.int(in.int()) // the layout
	for len(in.rest) > 0 && in.err == nil {
		key := in.bytes()
		out.bytes(key)
		for i := 1; i < 9; i++ {
			value := in.int()
			if string(key) == period.Key && i == 7 {
				value += int64(held)
			}
			if string(key) == period.Key && i == 8 {
				value += int64(unposted)
			}
			out.int(value)
		}
	}
	if in.err != nil {
		tb.Fatal(in.err)
	}
	if where == inField {
		err = n.client.HSet(ctx, p.hash(), ref, []byte(out)).Err()
	} else {
		err = n.client.Set(ctx, ref, []byte(out), redis.KeepTTL).Err()
	}
	if err != nil {
		tb.Fatal(err)
	}
}
