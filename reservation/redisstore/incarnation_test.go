package redisstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/test/servers"
)

var slowBucket = quota.Bucket{Capacity: 1000, Refill: 1, PerMicros: 86_400_000_000}

// TestLostDataIsNoticed: whatever makes Redis forget or go back, no quota is
// granted from before seeding it anew.
func TestLostDataIsNoticed(t *testing.T) {
	cases := map[string]struct {
		args []string
		lose func(t *testing.T, server *servers.RedisProcess, s *Store, admin *redis.Client)
		want reservation.ReserveVerdict
	}{
		"restart": {lose: func(t *testing.T, server *servers.RedisProcess, s *Store, admin *redis.Client) {
			server.Restart()
		}, want: reservation.Unseeded},
		"FLUSHALL": {lose: func(t *testing.T, server *servers.RedisProcess, s *Store, admin *redis.Client) {
			server.FlushAll()
		}, want: reservation.Unseeded},
		"SCRIPT FLUSH loses no data": {lose: func(t *testing.T, server *servers.RedisProcess, s *Store, admin *redis.Client) {
			if err := admin.ScriptFlush(within(t, 10*time.Second)).Err(); err != nil {
				t.Fatal(err)
			}
		}, want: reservation.Granted},
		"restored dump": {args: []string{"--dbfilename", "dump.rdb"}, lose: func(t *testing.T, server *servers.RedisProcess, s *Store, admin *redis.Client) {
			if err := admin.Save(within(t, 10*time.Second)).Err(); err != nil {
				t.Fatal(err)
			}
			mustReserve(t, s, asking("acme", spend(30, 100)), reservation.Granted) // not in the dump
			server.Kill()
			server.Restart()
			if n := admin.DBSize(within(t, 10*time.Second)).Val(); n == 0 {
				t.Fatal("the dump was not restored")
			}
		}, want: reservation.Unseeded},
		"demoted and promoted": {args: []string{"--enable-debug-command", "yes"}, lose: func(t *testing.T, server *servers.RedisProcess, s *Store, admin *redis.Client) {
			ctx := within(t, 10*time.Second)
			if err := admin.Do(ctx, "DEBUG", "CHANGE-REPL-ID").Err(); err != nil {
				t.Fatal(err)
			}
			if err := admin.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
				t.Fatal(err)
			}
		}, want: reservation.Unseeded},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := servers.NewRedis(t, c.args...)
			s := open(t, patient(t, server.URL()), Config{})
			admin := server.Client(t)
			seeded(t, s, "acme", spend(0, 100), 10)
			mustReserve(t, s, asking("acme", spend(30, 100)), reservation.Granted)
			c.lose(t, server, s, admin)
			answer := mustReserve(t, s, asking("acme", spend(1, 100)), c.want)
			if c.want == reservation.Unseeded && len(answer.Tickets) != 1 {
				t.Errorf("%d tickets", len(answer.Tickets))
			}
		})
	}
}

// TestLookNoticesOldConnections: a process whose history changed while its
// connections stayed open is noticed by the look in the background.
func TestLookNoticesOldConnections(t *testing.T) {
	server := servers.NewRedis(t, "--enable-debug-command", "yes")
	s := open(t, patient(t, server.URL()), Config{VerifyEvery: time.Millisecond})
	seeded(t, s, "acme", spend(0, 1<<40), 0)
	if err := server.Client(t).Do(within(t, 10*time.Second), "DEBUG", "CHANGE-REPL-ID").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new history is noticed", func(ctx context.Context) bool {
		answer, err := s.Reserve(ctx, asking("acme", spend(1, 1<<40)))
		if err != nil {
			t.Fatal(err)
		}
		return answer.Verdict == reservation.Unseeded
	})
}

// TestTicketOfAnotherIncarnation: a seed that was asked for before the data
// was lost does not land.
func TestTicketOfAnotherIncarnation(t *testing.T) {
	server := servers.NewRedis(t)
	s := open(t, patient(t, server.URL()), Config{})
	h := spend(1, 100)
	before := mustReserve(t, s, asking("acme", h), reservation.Unseeded)
	server.Restart()
	mustReserve(t, s, asking("acme", h), reservation.Unseeded)
	ok, err := s.Seed(within(t, 10*time.Second), reservation.SeedRequest{Account: "acme", Counter: h.Counter, Period: h.Period, Ticket: before.Tickets[0].Ticket})
	if err != nil || ok {
		t.Fatalf("a ticket from before the restart was accepted: %v, error %v", ok, err)
	}
}

// TestFrozenServer: with the tight options a call ends with its deadline or
// before, says that the engine is unavailable, and works again after.
func TestFrozenServer(t *testing.T) {
	server := servers.NewRedis(t)
	opts, err := Options(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, opts, Config{})
	r := asking("acme", tokens(1, slowBucket))
	eventually(t, "the first grant", func(ctx context.Context) bool {
		answer, err := s.Reserve(ctx, r)
		return err == nil && (answer.Verdict == reservation.Granted || answer.Verdict == reservation.Closed)
	})
	server.Freeze()
	const deadline = 50 * time.Millisecond
	for name, call := range map[string]func(ctx context.Context) error{
		"Reserve": func(ctx context.Context) error {
			_, err := s.Reserve(ctx, asking("acme", tokens(1, slowBucket)))
			return err
		},
		"Refund": func(ctx context.Context) error { _, err := s.Refund(ctx, closing(r, 1, 1)); return err },
		"Sweep":  func(ctx context.Context) error { _, err := s.Sweep(ctx, 10); return err },
		"Ping":   s.Ping,
	} {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		start := time.Now()
		err := call(ctx)
		took := time.Since(start)
		cancel()
		if !errors.Is(err, reservation.ErrUnavailable) {
			t.Errorf("%s: error %v", name, err)
		}
		// The rest is for a machine on which much else runs.
		if took > deadline+500*time.Millisecond {
			t.Errorf("%s took %s, beyond its deadline of %s", name, took, deadline)
		}
	}
	server.Thaw()
	eventually(t, "the server is used again", func(ctx context.Context) bool {
		answer, err := s.Reserve(ctx, asking("acme", tokens(1, slowBucket)))
		return err == nil && answer.Verdict == reservation.Granted
	})
}

// TestAwayServer: New and Connect need no server; calls say that it is away.
func TestAwayServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	s := open(t, patient(t, "redis://"+address), Config{})
	if _, err := s.Reserve(within(t, 10*time.Second), asking("acme", tokens(1, slowBucket))); !errors.Is(err, reservation.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	problems := s.Check(within(t, 10*time.Second))
	if len(problems) != 1 || !strings.Contains(problems[0].What, "does not answer") {
		t.Errorf("problems %v", problems)
	}
}

// TestReplicaIsReadOnly: a demoted primary is unavailable, and noticed.
func TestReplicaIsReadOnly(t *testing.T) {
	server := servers.NewRedis(t)
	s := open(t, patient(t, server.URL()), Config{})
	mustReserve(t, s, asking("acme", tokens(1, slowBucket)), reservation.Granted)
	admin := server.Client(t)
	if err := admin.ReplicaOf(within(t, 10*time.Second), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reserve(within(t, 10*time.Second), asking("acme", tokens(1, slowBucket))); !errors.Is(err, reservation.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if err := admin.ReplicaOf(within(t, 10*time.Second), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	mustReserve(t, s, asking("acme", tokens(1, slowBucket)), reservation.Granted)
}
