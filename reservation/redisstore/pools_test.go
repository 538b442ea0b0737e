package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/storetest"
	"github.com/budgetd/budgetd/test/servers"
)

// clusterStores opens stores on the shared Cluster that share a prefix, as
// several brokers do.
func clusterStores(t *testing.T, n int, clock func() time.Time) []*Store {
	t.Helper()
	prefix := servers.Prefix(t)
	stores := make([]*Store, n)
	for i := range stores {
		stores[i] = open(t, patientCluster(t, servers.SharedRedisCluster(t).Addrs()), Config{Prefix: prefix, Clock: clock})
	}
	return stores
}

func pooled(h reservation.Hold, pool string) reservation.Hold {
	h.Pool = pool
	return h
}

func askingAt(clock *storetest.Clock, account string, holds ...reservation.Hold) reservation.ReserveRequest {
	r := asking(account, holds...)
	r.ID = reservation.NewID(clock.Now())
	return r
}

func wantRemaining(t *testing.T, s *Store, account string, holds []reservation.Hold, want ...quota.Amount) {
	t.Helper()
	levels, _, err := s.Levels(within(t, 30*time.Second), account, holds)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range want {
		if levels[i].Remaining != w {
			t.Errorf("hold %d (pool %q): %d remain, want %d", i, holds[i].Pool, levels[i].Remaining, w)
		}
	}
}

// TestPoolLegsAreUndone: what the account refuses, replays or has no seed for
// leaves the pools as they were, and an id that may not hold again.
func TestPoolLegsAreUndone(t *testing.T) {
	clock := storetest.NewClock()
	s := clusterStores(t, 1, clock.Now)[0]
	shared, workers := pooled(tokens(10, slowBucket), "openai"), pooled(slot(3), "slow")
	own := tokens(600, slowBucket)
	holds := []reservation.Hold{shared, own, workers}

	first := askingAt(clock, "acme", holds...)
	first.Key = "key"
	mustReserve(t, s, first, reservation.Granted)
	wantRemaining(t, s, "acme", holds, 990, 400, 2)

	refused := askingAt(clock, "acme", holds...)
	if answer := mustReserve(t, s, refused, reservation.Refused); answer.Refusal.Hold != 1 {
		t.Errorf("hold %d refused", answer.Refusal.Hold)
	}
	wantRemaining(t, s, "acme", holds, 990, 400, 2)
	// A leg's script that runs late finds the tombstone.
	mustReserve(t, s, refused, reservation.Closed)
	wantRemaining(t, s, "acme", holds, 990, 400, 2)

	again := first
	again.ID = reservation.NewID(clock.Now())
	if answer := mustReserve(t, s, again, reservation.Replayed); answer.Record.State != reservation.StateHeld {
		t.Errorf("state %d", answer.Record.State)
	}
	wantRemaining(t, s, "acme", holds, 990, 400, 2)

	unseeded := askingAt(clock, "acme", shared, spend(1, 100))
	mustReserve(t, s, unseeded, reservation.Unseeded)
	wantRemaining(t, s, "acme", holds, 990, 400, 2)

	// The strictest refusal is found across the legs: here the pool's.
	tight := askingAt(clock, "globex", pooled(tokens(1000, slowBucket), "openai"), tokens(1000, quota.Bucket{Capacity: 1000, Refill: 1, PerMicros: 1}))
	if answer := mustReserve(t, s, tight, reservation.Refused); answer.Refusal.Hold != 0 || answer.Refusal.Remaining != 990 {
		t.Errorf("refusal %+v", answer.Refusal)
	}
	// A refusing pool still leaves the ticket that the account needs.
	both := askingAt(clock, "initech", pooled(tokens(1000, slowBucket), "openai"), spend(1, 100))
	ticket := mustReserve(t, s, both, reservation.Unseeded).Tickets[0]
	ok, err := s.Seed(within(t, 10*time.Second), reservation.SeedRequest{Account: "initech", Counter: both.Holds[1].Counter, Period: both.Holds[1].Period, Ticket: ticket.Ticket})
	if err != nil || !ok {
		t.Errorf("seed: %v, error %v", ok, err)
	}
	// And the key is known, whatever the pool says.
	full := first
	full.ID = reservation.NewID(clock.Now())
	full.Holds = []reservation.Hold{pooled(tokens(1000, slowBucket), "openai"), own, workers}
	mustReserve(t, s, full, reservation.Replayed)
}

// TestPoolLegsFollowTheAccount: Refund, Renew, Charge and Confirm reach the
// pools.
func TestPoolLegsFollowTheAccount(t *testing.T) {
	clock := storetest.NewClock()
	s := clusterStores(t, 1, clock.Now)[0]
	ctx := within(t, time.Minute)
	holds := []reservation.Hold{pooled(tokens(100, slowBucket), "openai"), pooled(slot(3), "openai"), tokens(100, slowBucket)}

	r := askingAt(clock, "acme", holds...)
	mustReserve(t, s, r, reservation.Granted)
	clock.Add(50 * time.Second)
	answer, err := s.Renew(ctx, reservation.RenewRequest{Account: "acme", ID: r.ID, Lease: 5 * time.Minute})
	if err != nil || answer.State != reservation.StateHeld || !answer.ExpiresAt.Equal(clock.Now().Add(5*time.Minute)) {
		t.Fatalf("renew: %+v, error %v", answer, err)
	}
	clock.Add(4 * time.Minute)
	if _, err := s.Sweep(ctx, 10); err != nil {
		t.Fatal(err)
	}
	wantRemaining(t, s, "acme", holds, 900, 2, 900)

	refunded := mustRefund(t, s, closing(r, 1, 30, 0, 40), reservation.RefundSettled)
	for i, want := range []quota.Amount{970, 3, 960} {
		if refunded.Levels[i].Remaining != want {
			t.Errorf("level %d after the refund: %d, want %d", i, refunded.Levels[i].Remaining, want)
		}
	}
	wantRemaining(t, s, "acme", holds, 970, 3, 960)
	// The ledger had another winner.
	won := confirming(closing(r, 2, 50, 0, 60))
	mustConfirm(t, s, won, reservation.ConfirmAdopted)
	wantRemaining(t, s, "acme", holds, 950, 3, 940)
	// A repetition changes nothing.
	mustConfirm(t, s, won, reservation.ConfirmStopped)
	mustRefund(t, s, closing(r, 2, 50, 0, 60), reservation.RefundSame)
	wantRemaining(t, s, "acme", holds, 950, 3, 940)

	charge := askingAt(clock, "acme", holds...)
	charge.Settle = &reservation.Settlement{}
	mustReserve(t, s, charge, reservation.Granted)
	wantRemaining(t, s, "acme", holds, 850, 3, 840)
	clock.Add(10 * time.Second)
	if _, err := s.Sweep(ctx, 10); err != nil {
		t.Fatal(err)
	}
	wantRemaining(t, s, "acme", holds, 850, 3, 840)
}

// TestPoolLegsExpire: a leg ends by charging a second after its account's
// lease, and what the ledger confirms then gives the hold back.
func TestPoolLegsExpire(t *testing.T) {
	clock := storetest.NewClock()
	s := clusterStores(t, 1, clock.Now)[0]
	ctx := within(t, time.Minute)
	holds := []reservation.Hold{pooled(tokens(100, slowBucket), "openai"), pooled(slot(3), "openai"), tokens(100, slowBucket)}
	crashed := askingAt(clock, "acme", holds...)
	mustReserve(t, s, crashed, reservation.Granted)
	late := askingAt(clock, "acme", holds...)
	mustReserve(t, s, late, reservation.Granted)

	clock.Add(time.Minute)
	swept, err := s.Sweep(ctx, 10)
	if err != nil || swept.Expired != 2 || len(swept.Pending) != 2 {
		t.Fatalf("sweep: %d expired, %d pending, error %v", swept.Expired, len(swept.Pending), err)
	}
	wantRemaining(t, s, "acme", holds, 800, 1, 1000) // the account's is back, the pool's still held
	clock.Add(poolMargin)
	if swept, err = s.Sweep(ctx, 10); err != nil || swept.Expired != 0 {
		t.Fatalf("sweep: %d expired, error %v", swept.Expired, err)
	}
	wantRemaining(t, s, "acme", holds, 800, 3, 1000) // slots are free, tokens charged

	expired := reservation.ConfirmRequest{
		Account: "acme", ID: crashed.ID, Lease: crashed.Lease, Retention: crashed.Retention, Rank: 1, Actual: []quota.Amount{0, 0, 0}, ClosedAt: clock.Now(),
	}
	mustConfirm(t, s, expired, reservation.ConfirmAdopted)
	wantRemaining(t, s, "acme", holds, 900, 3, 1000)
	// Late truth, before and after the ledger confirmed the expiry.
	mustRefund(t, s, closing(late, 1, 10, 0, 10), reservation.RefundSettled)
	wantRemaining(t, s, "acme", holds, 990, 3, 990)
	mustRefund(t, s, closing(crashed, 1, 20, 0, 20), reservation.RefundSettled)
	wantRemaining(t, s, "acme", holds, 970, 3, 970)
}

// TestPoolLegWithoutAccount: a broker that dies between the legs leaves the
// pool charged when the leg's lease ends, never free.
func TestPoolLegWithoutAccount(t *testing.T) {
	clock := storetest.NewClock()
	s := clusterStores(t, 1, clock.Now)[0]
	holds := []reservation.Hold{pooled(tokens(100, slowBucket), "openai"), pooled(slot(1), "openai")}
	r := askingAt(clock, "acme", holds...)
	legs := s.legs(r.Holds)
	if answer, _, err := s.reserveLeg(within(t, 10*time.Second), &r, &legs[0], commit, 0); err != nil || answer.Verdict != reservation.Granted {
		t.Fatalf("verdict %d, error %v", answer.Verdict, err)
	}
	wantRemaining(t, s, "acme", holds, 900, 0)
	mustReserve(t, s, askingAt(clock, "globex", holds...), reservation.Refused)
	clock.Add(r.Lease + poolMargin)
	if _, err := s.Sweep(within(t, 10*time.Second), 10); err != nil {
		t.Fatal(err)
	}
	wantRemaining(t, s, "acme", holds, 900, 1)
	if record, err := s.Lookup(within(t, 10*time.Second), "acme", r.ID); err != nil || record.State != reservation.StateUnknown {
		t.Errorf("state %d, error %v", record.State, err)
	}
}

// TestPoolNeverOver: brokers that race for a pool from many accounts, with
// refusals, refunds and replays between, never hold more than it has.
func TestPoolNeverOver(t *testing.T) {
	stores := clusterStores(t, 3, nil)
	workers := pooled(slot(5), "workers")
	var inFlight, over, granted atomic.Int64
	var wait sync.WaitGroup
	for caller := range 24 {
		wait.Go(func() {
			s := stores[caller%len(stores)]
			account := fmt.Sprintf("account%d", caller)
			for round := range 12 {
				own := tokens(quota.Amount(round%3), quota.Bucket{Capacity: 1, Refill: 1, PerMicros: 1}) // 2 never fits
				r := asking(account, workers, own)
				answer, err := s.Reserve(context.Background(), r)
				if err != nil {
					t.Errorf("reserve: %v", err)
					return
				}
				if answer.Verdict != reservation.Granted {
					continue
				}
				granted.Add(1)
				if inFlight.Add(1) > 5 {
					over.Add(1)
				}
				if _, err := s.Lookup(context.Background(), account, r.ID); err != nil { // some work
					t.Errorf("lookup: %v", err)
				}
				inFlight.Add(-1)
				if refund, err := s.Refund(context.Background(), closing(r, 1, 0, own.Amount)); err != nil || refund.Verdict != reservation.RefundSettled {
					t.Errorf("refund: verdict %d, error %v", refund.Verdict, err)
				}
			}
		})
	}
	wait.Wait()
	if over.Load() > 0 {
		t.Errorf("%d grants beyond the pool", over.Load())
	}
	if granted.Load() == 0 {
		t.Error("nothing was granted")
	}
	wantRemaining(t, stores[0], "acme", []reservation.Hold{workers}, 5)

	// And without refunds exactly what it has.
	bucket := pooled(tokens(100, slowBucket), "bucket")
	var got atomic.Int64
	for caller := range 24 {
		wait.Go(func() {
			answer, err := stores[caller%len(stores)].Reserve(context.Background(), asking(fmt.Sprintf("account%d", caller), bucket))
			if err != nil {
				t.Errorf("reserve: %v", err)
			}
			if answer.Verdict == reservation.Granted {
				got.Add(1)
			}
		})
	}
	wait.Wait()
	if got.Load() != 10 {
		t.Errorf("%d reserves of 100 from a pool of 1000 passed", got.Load())
	}
}

// TestClusterNodeRestarts: one node that lost its data is noticed by itself.
func TestClusterNodeRestarts(t *testing.T) {
	cluster := servers.NewRedisCluster(t)
	s := open(t, patientCluster(t, cluster.Addrs()), Config{})
	ctx := within(t, time.Minute)
	h := spend(1, 1<<40)
	lost := cluster.Nodes[1]
	var there, elsewhere string
	for i := 0; there == "" || elsewhere == ""; i++ {
		account := fmt.Sprintf("account%d", i)
		seeded(t, s, account, h, 0)
		mustReserve(t, s, asking(account, h), reservation.Granted)
		n, err := s.nodeFor(ctx, s.account(account).hash())
		if err != nil {
			t.Fatal(err)
		}
		if n.address == lost.Addr() {
			there = account
		} else {
			elsewhere = account
		}
	}
	lost.Restart()
	cluster.AwaitReady(t)
	mustReserve(t, s, asking(there, h), reservation.Unseeded)
	mustReserve(t, s, asking(elsewhere, h), reservation.Granted)
}

// TestSlotMoves: a shard's slot that moves to another primary is followed, and
// its quotas are seeded anew there.
func TestSlotMoves(t *testing.T) {
	cluster := servers.NewRedisCluster(t)
	s := open(t, patientCluster(t, cluster.Addrs()), Config{})
	ctx := within(t, time.Minute)
	h := spend(1, 1<<40)
	seeded(t, s, "acme", h, 0)
	held := asking("acme", h, tokens(100, slowBucket))
	mustReserve(t, s, held, reservation.Granted)

	from, err := s.nodeFor(ctx, s.account("acme").hash())
	if err != nil {
		t.Fatal(err)
	}
	var source, target *servers.RedisProcess
	for _, node := range cluster.Nodes {
		if node.Addr() == from.address {
			source = node
		} else {
			target = node
		}
	}
	moveSlot(t, s.account("acme").hash(), source, target, cluster)
	mustReserve(t, s, asking("acme", h), reservation.Unseeded)
	mustRefund(t, s, closing(held, 1, 1, 40), reservation.RefundSettled)
	wantRemaining(t, s, "acme", []reservation.Hold{tokens(0, slowBucket)}, 960)
}
