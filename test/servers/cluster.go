package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// clusterPrimaries is the smallest number of primaries that Redis Cluster is
// made for: with fewer, no majority is left when one is lost.
const clusterPrimaries = 3

// clusterSlots is Redis Cluster's fixed number of hash slots.
const clusterSlots = 16384

// RedisCluster is a Redis Cluster that a test may use but not stop.
type RedisCluster struct{ addrs []string }

// Addrs returns the nodes as host:port.
func (c *RedisCluster) Addrs() []string { return slices.Clone(c.addrs) }

// Client returns a client with go-redis's defaults, closed when the test ends.
func (c *RedisCluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(),
		// Its handshake races between connections (go-redis 9.23).
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Errorf("close the redis cluster client: %v", err)
		}
	})
	return client
}

var sharedCluster shared[*RedisCluster]

// SharedRedisCluster returns the test process's Redis Cluster of three
// primaries without replicas, started on first use, or the one that
// BUDGETD_TEST_REDIS_CLUSTER names. All its nodes know each other and answer
// for all slots. Keep to keys under [Prefix], and never flush it.
func SharedRedisCluster(tb testing.TB) *RedisCluster {
	tb.Helper()
	c, err := sharedCluster.get(func() (*RedisCluster, error) {
		if addrs := os.Getenv(EnvRedisCluster); addrs != "" {
			return outsideCluster(addrs)
		}
		nodes, err := startCluster(EnvRedisCluster, nil)
		if err != nil {
			return nil, err
		}
		return clusterOf(nodes), nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func outsideCluster(list string) (*RedisCluster, error) {
	addrs := strings.Split(list, ",")
	for i, addr := range addrs {
		addrs[i] = strings.TrimSpace(addr)
		if _, _, err := net.SplitHostPort(addrs[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", EnvRedisCluster, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	for _, addr := range addrs {
		if err := clusterNodeReady(ctx, addr, 0); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", EnvRedisCluster, addr, err)
		}
	}
	return &RedisCluster{addrs: addrs}, nil
}

// RedisClusterProcesses is a Redis Cluster that belongs to one test.
type RedisClusterProcesses struct {
	RedisCluster
	// Nodes are the primaries, in the order of Addrs and of their slots. A
	// node that was killed and restarted comes back with its slots and, as
	// nothing is kept on disk, without its keys.
	Nodes []*RedisProcess
}

// NewRedisCluster starts a Redis Cluster of three primaries for this test
// alone and stops it when the test ends. The arguments go to every node, as
// "--cluster-node-timeout", "2000" for a test of a lost node: the default of
// 15 s keeps a slow machine's cluster up.
func NewRedisCluster(tb testing.TB, args ...string) *RedisClusterProcesses {
	tb.Helper()
	nodes, err := startCluster("", args)
	if err != nil {
		tb.Fatal(err)
	}
	for _, node := range nodes {
		node.ownedBy(tb)
	}
	return &RedisClusterProcesses{RedisCluster: *clusterOf(nodes), Nodes: nodes}
}

// AwaitReady returns when every node answers and says that the cluster is up,
// as after a [RedisProcess.Restart].
func (c *RedisClusterProcesses) AwaitReady(tb testing.TB) {
	tb.Helper()
	if err := awaitCluster(c.addrs); err != nil {
		tb.Fatal(err)
	}
}

func clusterOf(nodes []*RedisProcess) *RedisCluster {
	c := &RedisCluster{}
	for _, node := range nodes {
		c.addrs = append(c.addrs, node.Addr())
	}
	return c
}

func startCluster(env string, extra []string) (nodes []*RedisProcess, err error) {
	defer func() {
		if err != nil {
			for _, node := range nodes {
				err = errors.Join(err, node.p.kill(), removeDir(node.p.dir))
			}
			nodes = nil
		}
	}()
	for range clusterPrimaries {
		node, err := startRedisNode(env, true, extra)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, node)
	}
	if err := joinCluster(nodes); err != nil {
		return nodes, fmt.Errorf("join the redis cluster: %w", err)
	}
	return nodes, awaitCluster(clusterOf(nodes).addrs)
}

// joinCluster gives each node its share of the slots and has it meet those
// before it.
func joinCluster(nodes []*RedisProcess) error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	for i, node := range nodes {
		c := redis.NewClient(&redis.Options{Addr: node.Addr(), DisableIdentity: true})
		defer c.Close()
		// Distinct epochs from the start: nodes that share one would have to
		// settle it among themselves first.
		if err := c.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		first, last := i*clusterSlots/len(nodes), (i+1)*clusterSlots/len(nodes)-1
		if err := c.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			return err
		}
		for _, other := range nodes[:i] {
			host, port, err := net.SplitHostPort(other.Addr())
			if err != nil {
				return err
			}
			if err := c.ClusterMeet(ctx, host, port).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitCluster waits until each node knows all others and all slots.
func awaitCluster(addrs []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for _, addr := range addrs {
		for {
			err := clusterNodeReady(ctx, addr, len(addrs))
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("redis cluster node %s is not ready within %s: %w", addr, startWithin, err)
			case <-tick.C:
			}
		}
	}
	return nil
}

// clusterNodeReady returns nil when the node says that the cluster is up, that
// every slot has an owner and, if nodes is not 0, that it knows that many nodes
// and none of them has failed or is still being met.
func clusterNodeReady(ctx context.Context, addr string, nodes int) error {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
	defer c.Close()
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	want := []string{"cluster_state:ok", fmt.Sprintf("cluster_slots_ok:%d", clusterSlots)}
	if nodes > 0 {
		want = append(want, fmt.Sprintf("cluster_known_nodes:%d", nodes), fmt.Sprintf("cluster_size:%d", nodes))
	}
	for _, line := range want {
		if !strings.Contains(info, line+"\r\n") {
			return fmt.Errorf("no %q in %q", line, info)
		}
	}
	if nodes == 0 {
		return nil
	}
	known, err := c.ClusterNodes(ctx).Result()
	if err != nil {
		return err
	}
	// The third word of a line holds the node's flags.
	for line := range strings.Lines(known) {
		words := strings.Fields(line)
		if len(words) < 8 {
			return fmt.Errorf("a node's line is too short: %q", line)
		}
		for flag := range strings.SplitSeq(words[2], ",") {
			if flag == "handshake" || flag == "noaddr" || strings.HasPrefix(flag, "fail") {
				return fmt.Errorf("a node is in state %q: %q", flag, line)
			}
		}
		if words[7] != "connected" {
			return fmt.Errorf("a link is not up: %q", line)
		}
	}
	return nil
}
