package servers_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/test/servers"
)

func TestSharedRedisIsOneServer(t *testing.T) {
	a, b := servers.SharedRedis(t), servers.SharedRedis(t)
	if a != b {
		t.Fatalf("two servers: %s and %s", a.Addr(), b.Addr())
	}
	key := servers.Prefix(t)
	set(t, a.Client(t), key)
	if got := b.Client(t).Del(t.Context(), key).Val(); got != 1 {
		t.Fatalf("removed %d keys, want 1", got)
	}
}

func TestRedisRefusesRatherThanEvicts(t *testing.T) {
	policy := servers.NewRedis(t).Client(t).ConfigGet(t.Context(), "maxmemory-policy").Val()
	if policy["maxmemory-policy"] != "noeviction" {
		t.Fatalf("maxmemory-policy is %v", policy)
	}
	policy = servers.NewRedis(t, "--maxmemory-policy", "allkeys-lru").Client(t).ConfigGet(t.Context(), "maxmemory-policy").Val()
	if policy["maxmemory-policy"] != "allkeys-lru" {
		t.Fatalf("an argument did not override the default: %v", policy)
	}
}

func TestRedisOfAnOwnIsNotTheSharedOne(t *testing.T) {
	own, shared := servers.NewRedis(t), servers.SharedRedis(t)
	key := servers.Prefix(t)
	set(t, own.Client(t), key)
	if n := shared.Client(t).Exists(t.Context(), key).Val(); n != 0 {
		t.Fatal("a key of the test's own server is in the shared one")
	}
	own.FlushAll()
	if n := own.Client(t).DBSize(t.Context()).Val(); n != 0 {
		t.Fatalf("%d keys after FlushAll", n)
	}
}

func TestRedisKillAndRestart(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		kept int64
	}{
		{"nothing on disk", nil, 0},
		{"append-only file", []string{"--appendonly", "yes", "--appendfsync", "always"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := servers.NewRedis(t, c.args...)
			client := r.Client(t)
			key := servers.Prefix(t)
			set(t, client, key)
			before, addr := r.PID(), r.Addr()

			r.Kill()
			if alive(before) {
				t.Fatal("the process is there after Kill")
			}
			if r.PID() != 0 {
				t.Fatalf("PID is %d after Kill", r.PID())
			}
			if err := client.Ping(t.Context()).Err(); err == nil {
				t.Fatal("a killed server answered")
			}

			r.Restart()
			if r.Addr() != addr {
				t.Fatalf("restarted at %s, was at %s", r.Addr(), addr)
			}
			if got, err := client.Exists(t.Context(), key).Result(); err != nil || got != c.kept {
				t.Fatalf("%d keys after the restart (error: %v), want %d", got, err, c.kept)
			}
		})
	}
}

func TestRedisFreezeAndThaw(t *testing.T) {
	r := servers.NewRedis(t)
	client := redis.NewClient(&redis.Options{
		Addr: r.Addr(), MaxRetries: -1, DialerRetries: 1, ReadTimeout: 200 * time.Millisecond, DisableIdentity: true,
	})
	defer client.Close()
	set(t, client, "k")
	r.Freeze()
	if err := client.Get(t.Context(), "k").Err(); err == nil {
		t.Fatal("a frozen server answered")
	}
	r.Thaw()
	if err := r.Client(t).Get(t.Context(), "k").Err(); err != nil {
		t.Fatalf("after Thaw: %v", err)
	}
}

func TestFrozenRedisIsStopped(t *testing.T) {
	var pid int
	t.Run("frozen", func(t *testing.T) {
		r := servers.NewRedis(t)
		pid = r.PID()
		r.Freeze()
	})
	if alive(pid) {
		t.Fatal("a frozen server outlived its test")
	}
}

func TestSharedRedisCluster(t *testing.T) {
	cluster := servers.SharedRedisCluster(t)
	if again := servers.SharedRedisCluster(t); again != cluster {
		t.Fatal("two clusters")
	}
	if n := len(cluster.Addrs()); n != 3 {
		t.Fatalf("%d nodes, want 3", n)
	}
	for _, addr := range cluster.Addrs() {
		c := redis.NewClient(&redis.Options{Addr: addr})
		defer c.Close()
		shards, err := c.ClusterShards(t.Context()).Result()
		if err != nil || len(shards) != 3 {
			t.Fatalf("%s: shards %v (error: %v)", addr, shards, err)
		}
		slices.SortFunc(shards, func(a, b redis.ClusterShard) int { return int(a.Slots[0].Start - b.Slots[0].Start) })
		next := int64(0)
		for i, s := range shards {
			at := net.JoinHostPort(s.Nodes[0].Endpoint, strconv.FormatInt(s.Nodes[0].Port, 10))
			if len(s.Slots) != 1 || s.Slots[0].Start != next || at != cluster.Addrs()[i] {
				t.Fatalf("%s: shards %v", addr, shards)
			}
			next = s.Slots[0].End + 1
		}
		if next != 16384 {
			t.Fatalf("%s: slots end at %d", addr, next)
		}
	}

	client := cluster.Client(t)
	prefix := servers.Prefix(t)
	nodes := map[string]int{}
	for i := range 64 {
		key := prefix + "{" + string(rune('A'+i)) + "}"
		set(t, client, key)
		node, err := client.MasterForKey(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		nodes[node.Options().Addr]++
		if err := client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if len(nodes) != 3 {
		t.Fatalf("64 keys went to %v, want all three nodes", nodes)
	}
}

func TestRedisClusterLosesANodeAndGetsItBack(t *testing.T) {
	cluster := servers.NewRedisCluster(t, "--cluster-node-timeout", "1000")
	cluster.Nodes[1].Kill()
	other := cluster.Nodes[0].Client(t)
	within(t, 30*time.Second, "the cluster notices the lost node", func() bool {
		return strings.Contains(other.ClusterInfo(t.Context()).Val(), "cluster_state:fail")
	})
	cluster.Nodes[1].Restart()
	cluster.AwaitReady(t)
	client := cluster.Client(t)
	for i := range 16 {
		set(t, client, "{"+string(rune('A'+i))+"}")
	}
}

func set(t *testing.T, c redis.Cmdable, key string) {
	t.Helper()
	if err := c.Set(context.Background(), key, "v", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
}

// within polls until the condition holds.
func within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(limit)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
