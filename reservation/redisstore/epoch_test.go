package redisstore

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/test/servers"
)

// epochNow sweeps once.
func epochNow(tb testing.TB, s *Store) string {
	tb.Helper()
	answer, err := s.Sweep(within(tb, 30*time.Second), 100)
	if err != nil {
		tb.Fatalf("Sweep: %v", err)
	}
	return answer.Epoch
}

// restoring is the Restore of what was asked, with a lease of a minute from now.
func restoring(r reservation.ReserveRequest) reservation.RestoreRequest {
	return reservation.RestoreRequest{
		Account: r.Account, ID: r.ID, Holds: r.Holds, ExpiresAt: time.Now().Add(time.Minute),
		Retention: r.Retention, Key: r.Key, Body: r.Body, Token: r.Token,
	}
}

func mustRestore(tb testing.TB, s reservation.Store, r reservation.ReserveRequest, want reservation.RestoreVerdict) {
	tb.Helper()
	verdict, err := s.Restore(within(tb, 30*time.Second), restoring(r))
	if err != nil || verdict != want {
		tb.Fatalf("Restore: verdict %d, error %v; want verdict %d", verdict, err, want)
	}
}

// quotaLevel is what the account's quota shows.
func quotaLevel(tb testing.TB, s reservation.Store, account string) reservation.Level {
	tb.Helper()
	levels, _, err := s.Levels(within(tb, 30*time.Second), account, []reservation.Hold{spend(0, 100)})
	if err != nil {
		tb.Fatalf("Levels: %v", err)
	}
	return levels[0]
}

// pair is a store whose server may be replaced, as Sentinels do, and a second
// broker's over the same.
type pair struct {
	address atomic.Pointer[string]
	one     *Store
	other   *Store
}

// lead makes all connections go to a server from now on.
func (p *pair) lead(server *servers.RedisProcess) {
	address := server.Addr()
	p.address.Store(&address)
}

func newPair(tb testing.TB, server *servers.RedisProcess) *pair {
	p := &pair{}
	p.lead(server)
	opts := patient(tb, server.URL())
	opts.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, *p.address.Load())
	}
	config := Config{Prefix: servers.Prefix(tb)}
	p.one, p.other = open(tb, opts, config), open(tb, opts, config)
	return p
}

// TestLostHoldsComeBack: whatever Redis loses, the next sweep of every broker
// shows another epoch, quotas are seeded before the next grant, and a restored
// hold counts again, while one that the data still has stays as it is.
func TestLostHoldsComeBack(t *testing.T) {
	onDisk := []string{"--dbfilename", "dump.rdb"}
	cases := map[string]struct {
		args    []string
		prepare func(t *testing.T, server *servers.RedisProcess, admin *redis.Client)
		lose    func(t *testing.T, server *servers.RedisProcess)
		kept    bool // the first reservation, made before prepare, survives
		replica bool // a replica that is behind is promoted, and loses the last writes
	}{
		"FLUSHALL":               {lose: func(t *testing.T, server *servers.RedisProcess) { server.FlushAll() }},
		"restart without a dump": {lose: func(t *testing.T, server *servers.RedisProcess) { server.Restart() }},
		"restart with an older dump": {
			args: onDisk, kept: true,
			prepare: func(t *testing.T, server *servers.RedisProcess, admin *redis.Client) {
				if err := admin.Save(within(t, 10*time.Second)).Err(); err != nil {
					t.Fatal(err)
				}
			},
			lose: func(t *testing.T, server *servers.RedisProcess) { server.Restart() },
		},
		// An operator puts an old backup into the place of the dump.
		"an older dump is put in place": {
			args: onDisk, kept: true,
			prepare: func(t *testing.T, server *servers.RedisProcess, admin *redis.Client) {
				ctx := within(t, 10*time.Second)
				if err := admin.Save(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				dump := dumpOf(t, admin)
				data, err := os.ReadFile(dump)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(dump+".backup", data, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			lose: func(t *testing.T, server *servers.RedisProcess) {
				admin := server.Client(t)
				if err := admin.Save(within(t, 10*time.Second)).Err(); err != nil { // the newest
					t.Fatal(err)
				}
				dump := dumpOf(t, admin)
				server.Kill()
				if err := os.Rename(dump+".backup", dump); err != nil {
					t.Fatal(err)
				}
				server.Restart()
			},
		},
		"failover": {args: []string{"--repl-diskless-sync-delay", "0"}, kept: true, replica: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := servers.NewRedis(t, c.args...)
			admin := server.Client(t)
			p := newPair(t, server)
			seeded(t, p.one, "acme", spend(0, 100), 10)
			early := asking("acme", spend(20, 100), slot(2))
			mustReserve(t, p.one, early, reservation.Granted)
			before := epochNow(t, p.one)
			if other := epochNow(t, p.other); before == "" || other != before {
				t.Fatalf("two brokers see the epochs %q and %q", before, other)
			}
			var replica *servers.RedisProcess
			if c.replica {
				replica = servers.NewRedis(t)
				follow(t, replica, server)
			}
			if c.prepare != nil {
				c.prepare(t, server, admin)
			}
			if again := epochNow(t, p.one); again != before {
				t.Fatalf("the epoch changed to %q, and nothing was lost", again)
			}
			late := asking("acme", spend(30, 100), slot(2))
			mustReserve(t, p.other, late, reservation.Granted) // will be lost

			if c.lose != nil {
				c.lose(t, server)
			}
			if c.replica {
				server.Kill()
				p.lead(replica)
				if err := replica.Client(t).ReplicaOf(within(t, 10*time.Second), "NO", "ONE").Err(); err != nil {
					t.Fatal(err)
				}
			}

			after := epochNow(t, p.other)
			if after == "" || after == before {
				t.Errorf("the epoch is %q, as before", after)
			}
			if one := epochNow(t, p.one); one != after {
				t.Errorf("two brokers see the epochs %q and %q", one, after)
			}
			if again := epochNow(t, p.other); again != after {
				t.Errorf("the epoch changed to %q, and nothing was lost since", again)
			}
			mustReserve(t, p.one, asking("acme", spend(1, 100)), reservation.Unseeded)
			want := reservation.Restored
			if c.kept {
				want = reservation.RestoreKnown
			}
			mustRestore(t, p.one, early, want)
			mustRestore(t, p.other, late, reservation.Restored)
			mustRestore(t, p.one, late, reservation.RestoreKnown)
			if l := quotaLevel(t, p.one, "acme"); l.Seeded || l.Held != 50 {
				t.Errorf("the quota shows %+v, want 50 held and no seed", l)
			}
			seeded(t, p.one, "acme", spend(0, 100), 10)
			if l := quotaLevel(t, p.other, "acme"); !l.Seeded || l.Held != 50 || l.Remaining != 40 {
				t.Errorf("after the seed the quota shows %+v, want 50 held and 40 left", l)
			}
			mustReserve(t, p.one, asking("acme", slot(2)), reservation.Refused)
			mustRefund(t, p.other, closing(late, 1, 25, 0), reservation.RefundSettled)
			if l := quotaLevel(t, p.other, "acme"); l.Held != 20 || l.Unposted != 25 {
				t.Errorf("after a Refund the quota shows %+v", l)
			}
		})
	}
}

// dumpOf is the path of a server's dump.
func dumpOf(t *testing.T, admin *redis.Client) string {
	t.Helper()
	ctx := within(t, 10*time.Second)
	dir := admin.ConfigGet(ctx, "dir").Val()["dir"]
	name := admin.ConfigGet(ctx, "dbfilename").Val()["dbfilename"]
	if dir == "" || name == "" {
		t.Fatal("the server does not say where its dump is")
	}
	return filepath.Join(dir, name)
}

// follow makes a server a replica of another until it has its data, and then
// cuts it off: what is written from then on it never sees.
func follow(t *testing.T, replica, primary *servers.RedisProcess) {
	t.Helper()
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 30*time.Second)
	admin := replica.Client(t)
	if err := admin.ReplicaOf(ctx, host, port).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica is in step", func(ctx context.Context) bool {
		info := admin.Info(ctx, "replication").Val()
		of := primary.Client(t).Info(ctx, "replication").Val()
		return infoField(info, "master_link_status") == "up" && infoField(info, "slave_repl_offset") == infoField(of, "master_repl_offset")
	})
	if err := admin.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
}

// TestClusterEpoch: the epoch of a Cluster changes with any primary's data; a
// primary that is away changes nothing, and the others are swept meanwhile.
func TestClusterEpoch(t *testing.T) {
	cluster := servers.NewRedisCluster(t, "--cluster-node-timeout", "60000")
	config := Config{Prefix: servers.Prefix(t)}
	one := open(t, patientCluster(t, cluster.Addrs()), config)
	other := open(t, patientCluster(t, cluster.Addrs()), config)
	before := epochNow(t, one)
	if again := epochNow(t, other); before == "" || again != before {
		t.Fatalf("two brokers see the epochs %q and %q", before, again)
	}
	cluster.Nodes[1].FlushAll()
	flushed := epochNow(t, one)
	if again := epochNow(t, other); flushed == before || again != flushed {
		t.Fatalf("after FLUSHALL on one primary: %q and %q, before %q", flushed, again, before)
	}

	// An account on each primary, with a lease that ends at once.
	held := map[string]reservation.ReserveRequest{}
	on := map[*node]string{}
	for i := 0; len(on) < len(cluster.Nodes); i++ {
		account := string(rune('a'+i%26)) + string(rune('a'+i/26))
		n, err := one.nodeFor(within(t, 10*time.Second), one.account(account).hash())
		if err != nil {
			t.Fatal(err)
		}
		if on[n] == "" {
			on[n] = account
			r := asking(account, tokens(1, slowBucket))
			r.Lease = time.Millisecond
			mustReserve(t, one, r, reservation.Granted)
			held[account] = r
		}
	}
	cluster.Nodes[1].Kill()
	gone := ""
	for n, account := range on {
		if n.address == cluster.Nodes[1].Addr() {
			gone = account
		}
	}
	expired := map[string]bool{}
	eventually(t, "the accounts on the primaries that are up are swept", func(ctx context.Context) bool {
		answer, err := one.Sweep(ctx, 100)
		if err != nil {
			t.Fatalf("a sweep fails while one primary is away: %v", err)
		}
		if answer.Epoch != flushed {
			t.Fatalf("the epoch is %q while a primary is away, and was %q", answer.Epoch, flushed)
		}
		for _, p := range answer.Pending {
			expired[p.Account] = true
		}
		return len(expired) == 2
	})
	if expired[gone] {
		t.Errorf("account %q of the primary that is away was swept", gone)
	}
	// Who has never seen that primary does not know.
	late := open(t, patientCluster(t, cluster.Addrs()), config)
	if answer, err := late.Sweep(within(t, 30*time.Second), 100); err != nil || answer.Epoch != "" {
		t.Errorf("a broker that has not seen every primary says the epoch %q, error %v", answer.Epoch, err)
	}
	cluster.Nodes[1].Restart()
	cluster.AwaitReady(t)
	restarted := ""
	eventually(t, "the primary that lost its data changes the epoch", func(ctx context.Context) bool {
		answer, err := one.Sweep(ctx, 100)
		restarted = answer.Epoch
		return err == nil && restarted != flushed
	})
	if again := epochNow(t, late); again != restarted {
		t.Errorf("two brokers see the epochs %q and %q", again, restarted)
	}
}

// TestSweepGoesOnBesideDamage: an account whose state was damaged by other
// hands keeps no other from being swept.
func TestSweepGoesOnBesideDamage(t *testing.T) {
	server := servers.NewRedis(t)
	s := open(t, patient(t, server.URL()), Config{})
	ctx := within(t, 30*time.Second)
	for _, account := range []string{"acme", "globex"} {
		r := asking(account, tokens(1, slowBucket))
		r.Lease = time.Millisecond
		mustReserve(t, s, r, reservation.Granted)
	}
	p := s.account("acme") // the earlier due
	if err := server.Client(t).HSet(ctx, p.hash(), "m", "\xc1").Err(); err != nil {
		t.Fatal(err)
	}
	found := false
	eventually(t, "the other account is swept", func(ctx context.Context) bool {
		answer, err := s.Sweep(ctx, 100)
		found = found || answer.Expired == 1
		return err == nil && found
	})
	// Alone, it is an error that says what is wrong, beside the epoch.
	answer, err := s.Sweep(ctx, 100)
	if err == nil || answer.Epoch == "" {
		t.Errorf("error %v, epoch %q", err, answer.Epoch)
	}
}

// TestRestoreOnCluster: both the account's part and the pools' legs come back,
// together or where one of the nodes alone lost its data.
func TestRestoreOnCluster(t *testing.T) {
	cluster := servers.NewRedisCluster(t)
	s := open(t, patientCluster(t, cluster.Addrs()), Config{})
	holds := []reservation.Hold{pooled(tokens(10, slowBucket), "openai"), tokens(100, slowBucket), pooled(slot(3), "slow")}
	r := asking("acme", holds...)
	r.Lease = 10 * time.Second
	mustReserve(t, s, r, reservation.Granted)
	wantRemaining(t, s, "acme", holds, 990, 900, 2)
	flush := func(keys ...string) {
		ctx := within(t, 10*time.Second)
		for _, key := range keys {
			n, err := s.nodeFor(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.client.FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, node := range cluster.Nodes {
		node.FlushAll()
	}
	mustRestore(t, s, r, reservation.Restored)
	wantRemaining(t, s, "acme", holds, 990, 900, 2)
	mustRestore(t, s, r, reservation.RestoreKnown)
	wantRemaining(t, s, "acme", holds, 990, 900, 2)

	// Only a pool's node.
	if where(t, s, s.pool("openai").hash()) == where(t, s, s.account("acme").hash()) {
		t.Fatal("the test wants the pool elsewhere than the account")
	}
	flush(s.pool("openai").hash())
	mustRestore(t, s, r, reservation.RestoreKnown)
	if got := mustLevel(t, s, "acme", holds[0]); got != 990 {
		t.Errorf("a pool whose node lost its data shows %d, want 990", got)
	}
	// Settled: the legs are settled too, and a late Restore brings nothing.
	mustRefund(t, s, closing(r, 1, 4, 40, 0), reservation.RefundSettled)
	wantRemaining(t, s, "acme", holds, 996, 960, 3)
	mustRestore(t, s, r, reservation.RestoreKnown)
	wantRemaining(t, s, "acme", holds, 996, 960, 3)
}

func where(t *testing.T, s *Store, key string) string {
	t.Helper()
	n, err := s.nodeFor(within(t, 10*time.Second), key)
	if err != nil {
		t.Fatal(err)
	}
	return n.address
}

func mustLevel(t *testing.T, s *Store, account string, h reservation.Hold) quota.Amount {
	t.Helper()
	levels, _, err := s.Levels(within(t, 30*time.Second), account, []reservation.Hold{h})
	if err != nil {
		t.Fatal(err)
	}
	return levels[0].Remaining
}
