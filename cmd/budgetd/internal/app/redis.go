package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/reservation/redisstore"
)

// openRedis connects the engine, after a look at the server.
func openRedis(ctx context.Context, c config.Config, registry prometheus.Registerer) (*redisstore.Store, error) {
	options, err := redisstore.Options(c.Redis.Reveal())
	if err != nil {
		return nil, &config.Error{Setting: "redis", Problem: err.Error()}
	}
	if problems := checkRedis(ctx, *options, c.Redis); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return redisstore.Connect(options, redisstore.Config{Prefix: c.KeyPrefix, Registerer: registry})
}

const (
	// minRedis is the oldest version that is tested: 7.0 brought functions of
	// scripts that the engine's scripts use.
	minRedisMajor = 7
	// checkIOTimeout is how long the look at the start may wait for a server:
	// unlike a call, it may.
	checkIOTimeout = 3 * time.Second
)

// checkRedis says everything that is wrong with a Redis for us, and changes
// nothing.
func checkRedis(ctx context.Context, options redis.UniversalOptions, address config.URL) []error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = checkIOTimeout, checkIOTimeout, checkIOTimeout, checkIOTimeout
	client := redis.NewUniversalClient(&options)
	defer client.Close()

	var mu sync.Mutex
	var problems []error
	add := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, fmt.Errorf("redis %s: "+format, append([]any{address}, args...)...))
	}
	cluster, isCluster := client.(*redis.ClusterClient)
	if !isCluster {
		single, ok := client.(*redis.Client)
		if !ok {
			return []error{fmt.Errorf("redis %s: a client of type %T is not foreseen", address, client)}
		}
		checkNode(ctx, single, false, add)
		return problems
	}
	checkCluster(ctx, cluster, add)
	if len(problems) > 0 {
		return problems
	}
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		checkNode(ctx, node, true, func(format string, args ...any) {
			add("node %s: "+format, append([]any{node.Options().Addr}, args...)...)
		})
		return nil
	})
	if err != nil {
		add("its nodes can't be listed: %s", redisCause(err))
	}
	return problems
}

func checkCluster(ctx context.Context, cluster *redis.ClusterClient, add func(string, ...any)) {
	info, err := cluster.ClusterInfo(ctx).Result()
	if err != nil {
		add("can't be asked for the state of the cluster: %s", redisCause(err))
		return
	}
	fields := infoFields(info)
	if state := fields["cluster_state"]; state != "ok" {
		add("the cluster is down: cluster_state is %.20q with %s of 16384 slots served; repair it with redis-cli --cluster check", state, fields["cluster_slots_ok"])
	}
}

func checkNode(ctx context.Context, node *redis.Client, inCluster bool, add func(string, ...any)) {
	text, err := node.Info(ctx, "server", "replication", "memory", "persistence").Result()
	if err != nil {
		add("%s", redisCause(err))
		return
	}
	info := infoFields(text)
	major, _, _ := strings.Cut(info["redis_version"], ".")
	if n, err := strconv.Atoi(major); err != nil || n < minRedisMajor {
		add("version %.20s is too old; use %d.0 or later", info["redis_version"], minRedisMajor)
	}
	if info["redis_mode"] == "cluster" && !inCluster {
		add("is a node of a Redis Cluster; add ?cluster=true to the URL")
	}
	if info["role"] != "" && info["role"] != "master" {
		add("is a replica, which can't be written to; give the address of the primary, or of Sentinels with ?master=NAME")
	}
	if info["loading"] == "1" {
		add("is still loading its data; start again when it is done")
	}
	policy := info["maxmemory_policy"]
	if policy == "" {
		// Where INFO does not say, CONFIG may, unless it is switched off.
		if answer, err := node.ConfigGet(ctx, "maxmemory-policy").Result(); err == nil {
			policy = answer["maxmemory-policy"]
		}
	}
	if policy != "" && policy != "noeviction" {
		add("its eviction policy is %.30q, which drops counters and reservations when memory is short; set maxmemory-policy to noeviction", policy)
	}
}

// infoFields parses the answer of INFO and CLUSTER INFO.
func infoFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// redisCause is an error of the client without what may hold the address with
// its password, and with what to do.
func redisCause(err error) string {
	switch {
	case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
		return "user or password is wrong or missing; put them into the URL"
	case redis.HasErrorPrefix(err, "NOPERM"):
		return "the user may not do what is needed; allow it +@all on the key prefix, or see the documentation for the list: " + err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "does not answer in time; check host, port and firewall"
	}
	return innermost(err)
}
