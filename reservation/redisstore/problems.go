package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Problem is something about a Redis that keeps it from being a budgetd engine,
// or from keeping its promises.
type Problem struct {
	Server string // host:port
	What   string // what is wrong
	Do     string // what to do about it
}

// String is one line.
func (p Problem) String() string { return fmt.Sprintf("redis %s: %s; %s", p.Server, p.What, p.Do) }

// oldestMajor is the oldest major version of Redis whose commands the scripts
// need (PEXPIRE with GT and NX).
const oldestMajor = 7

// Check looks at every primary and returns what is wrong, in the order of the
// servers; none when all is well. It is for the start of a broker: a server
// that does not answer is a problem, not an error.
func (s *Store) Check(ctx context.Context) []Problem {
	if s.cluster == nil {
		return checkServer(ctx, s.single.client, false)
	}
	var mu sync.Mutex
	var problems []Problem
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		found := checkServer(ctx, c, true)
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, found...)
		return nil
	})
	if err != nil {
		problems = append(problems, Problem{
			Server: strings.Join(s.cluster.Options().Addrs, ","), What: fmt.Sprintf("the cluster does not answer (%v)", err),
			Do: "start it, or correct the addresses in the redis URL",
		})
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return strings.Compare(a.Server, b.Server) })
	return problems
}

func checkServer(ctx context.Context, c *redis.Client, cluster bool) []Problem {
	address := c.Options().Addr
	info, err := c.Info(ctx).Result()
	if err != nil {
		return []Problem{silent(address, err)}
	}
	var problems []Problem
	add := func(what, do string) { problems = append(problems, Problem{address, what, do}) }

	version := infoField(info, "redis_version")
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	if err != nil || major < oldestMajor {
		add(fmt.Sprintf("its version is %q", version), fmt.Sprintf("upgrade it to %d.0 or newer", oldestMajor))
	}
	if policy := infoField(info, "maxmemory_policy"); policy != "noeviction" {
		add(fmt.Sprintf("its maxmemory-policy is %q, so that it may drop counters and reservations", policy), "set maxmemory-policy noeviction")
	}
	if role := infoField(info, "role"); role != "master" {
		add(fmt.Sprintf("its role is %q", role), "name the primary in the redis URL, or let Sentinels name it with master=name")
	}
	if infoField(info, "run_id") == "" || infoField(info, "master_replid") == "" {
		add("it does not say its run_id and master_replid, by which lost data is noticed", "use a Redis that shows both in INFO")
	}
	isCluster := infoField(info, "cluster_enabled") == "1"
	switch {
	case isCluster && !cluster:
		add("it is a node of a Cluster", "add cluster=true to the redis URL")
	case !isCluster && cluster:
		add("it is not a node of a Cluster", "leave cluster=true out of the redis URL")
	case cluster:
		problems = append(problems, checkCluster(ctx, c, address)...)
	}
	if err := c.Do(ctx, "EVAL", "return redis.call('TIME')[1]", 0).Err(); err != nil {
		if redis.IsPermissionError(err) || redis.HasErrorPrefix(err, "NOPERM") {
			add("the user may not run scripts", "grant +@scripting, +@all on the keys of the prefix, +info and +cluster to it (ACL SETUSER)")
		} else {
			add(fmt.Sprintf("it does not run a script (%v)", err), "see its log")
		}
	}
	return problems
}

func checkCluster(ctx context.Context, c *redis.Client, address string) []Problem {
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return []Problem{silent(address, err)}
	}
	if state := infoField(info, "cluster_state"); state != "ok" {
		return []Problem{{address, fmt.Sprintf("its cluster_state is %q, with %s of 16384 slots served", state, infoField(info, "cluster_slots_ok")), "give every slot a primary that is up (redis-cli --cluster check, then --cluster fix)"}}
	}
	if slots := infoField(info, "cluster_slots_ok"); slots != "16384" {
		return []Problem{{address, fmt.Sprintf("only %s of 16384 slots are served", slots), "give every slot a primary that is up (redis-cli --cluster check, then --cluster fix)"}}
	}
	return nil
}

func silent(address string, err error) Problem {
	var answered redis.Error
	switch {
	case redis.IsAuthError(err):
		return Problem{address, "it refuses the user or password", "correct them in the redis URL"}
	case redis.IsPermissionError(err):
		return Problem{address, fmt.Sprintf("the user may not ask what is needed (%v)", err), "grant +@scripting, +@all on the keys of the prefix, +info and +cluster to it (ACL SETUSER)"}
	case redis.IsLoadingError(err):
		return Problem{address, "it is loading its data", "wait until it has"}
	case errors.As(err, &answered):
		return Problem{address, fmt.Sprintf("it answers an error (%v)", err), "see its log"}
	}
	return Problem{address, fmt.Sprintf("it does not answer (%v)", err), "start it, or correct the address in the redis URL"}
}
