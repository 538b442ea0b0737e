package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Redis is a Redis server that a test may use but not stop.
type Redis struct {
	url  string
	addr string
}

// Addr returns host:port.
func (r *Redis) Addr() string { return r.addr }

// URL returns the server as a redis:// URL, with the password if it has one.
func (r *Redis) URL() string { return r.url }

// Client returns a client with go-redis's defaults, closed when the test ends.
func (r *Redis) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	opts, err := redis.ParseURL(r.url)
	if err != nil {
		tb.Fatalf("redis URL: %v", err)
	}
	// Its handshake races between connections (go-redis 9.23).
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c := redis.NewClient(opts)
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("close the redis client: %v", err)
		}
	})
	return c
}

var sharedRedis shared[*Redis]

// SharedRedis returns the test process's Redis, started on first use, or the
// one that BUDGETD_TEST_REDIS names. Tests that run in parallel share it, and
// other processes may share one from outside: keep to keys under [Prefix], and
// never flush it.
func SharedRedis(tb testing.TB) *Redis {
	tb.Helper()
	r, err := sharedRedis.get(func() (*Redis, error) {
		if url := os.Getenv(EnvRedis); url != "" {
			return outsideRedis(url)
		}
		p, err := startRedis(EnvRedis)
		if err != nil {
			return nil, err
		}
		return &p.Redis, nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func outsideRedis(url string) (*Redis, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EnvRedis, err)
	}
	c := redis.NewClient(opts)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("%s: ping %s: %w", EnvRedis, opts.Addr, err)
	}
	return &Redis{url: url, addr: opts.Addr}, nil
}

// RedisProcess is a Redis server that belongs to one test.
type RedisProcess struct {
	Redis
	tb testing.TB
	p  *process
}

// NewRedis starts a Redis for this test alone and stops it when the test ends.
// It keeps nothing on disk, evicts nothing and listens on 127.0.0.1; further
// arguments to redis-server override that, as in
//
//	servers.NewRedis(t, "--appendonly", "yes", "--appendfsync", "always")
//
// A password or TLS cannot be asked for this way.
func NewRedis(tb testing.TB, args ...string) *RedisProcess {
	tb.Helper()
	r, err := startRedis("", args...)
	if err != nil {
		tb.Fatal(err)
	}
	r.ownedBy(tb)
	return r
}

// ownedBy has the server stop with the test.
func (r *RedisProcess) ownedBy(tb testing.TB) {
	r.tb = tb
	tb.Cleanup(func() { stopOwned(tb, r.p) })
}

// stopOwned stops a test's server, shows its log if the test failed, and
// removes its directory.
func stopOwned(tb testing.TB, p *process) {
	tb.Helper()
	if err := p.kill(); err != nil {
		tb.Error(err)
	}
	if tb.Failed() {
		tb.Logf("the end of the log of %s at %s:\n%s", p.name, p.addr(), tail(p.logFrom(0)))
	}
	if err := removeDir(p.dir); err != nil {
		tb.Error(err)
	}
}

func startRedis(env string, extra ...string) (*RedisProcess, error) {
	return startRedisNode(env, false, extra)
}

func startRedisNode(env string, cluster bool, extra []string) (*RedisProcess, error) {
	bin, err := redisBinary(env)
	if err != nil {
		return nil, err
	}
	dir, err := here.newDir("redis")
	if err != nil {
		return nil, err
	}
	p := &process{
		name: "redis-server",
		dir:  dir,
		end:  syscall.SIGKILL,
		command: func(port int) *exec.Cmd {
			args := []string{
				"--port", strconv.Itoa(port),
				"--bind", "127.0.0.1",
				"--dir", dir,
				"--save", "",
				"--appendonly", "no",
				"--maxmemory-policy", "noeviction",
				"--daemonize", "no",
			}
			if cluster {
				args = append(args,
					"--cluster-enabled", "yes",
					"--cluster-config-file", "nodes.conf",
					"--cluster-announce-ip", "127.0.0.1")
			}
			return exec.Command(bin, append(args, extra...)...)
		},
		answers: redisAnswers,
	}
	if err := p.startAnywhere(cluster); err != nil {
		return nil, errors.Join(err, removeDir(dir))
	}
	return &RedisProcess{Redis: Redis{url: "redis://" + p.addr() + "/0", addr: p.addr()}, p: p}, nil
}

// redisAnswers returns nil when the Redis with that process id has loaded its
// data and serves on port. The id matters: when somebody else took the port,
// it is their server that answers, until ours has noticed and ended.
func redisAnswers(ctx context.Context, pid, port int) error {
	c := redis.NewClient(&redis.Options{Addr: loopback(port), MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
	defer c.Close()
	if err := c.Ping(ctx).Err(); err != nil {
		return err
	}
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(info) {
		if got, ok := strings.CutPrefix(strings.TrimSpace(line), "process_id:"); ok {
			if got != strconv.Itoa(pid) {
				return fmt.Errorf("%w: by process %s", errPortTaken, got)
			}
			return nil
		}
	}
	return fmt.Errorf("no process_id in %q", info)
}

// Kill ends the server with SIGKILL and returns when it is gone.
func (r *RedisProcess) Kill() {
	r.tb.Helper()
	if err := r.p.kill(); err != nil {
		r.tb.Fatal(err)
	}
}

// Restart kills the server if it runs, starts it at the same address and
// returns when it answers. What it remembers is what its arguments had it keep
// on disk: by default nothing.
func (r *RedisProcess) Restart() {
	r.tb.Helper()
	if err := r.p.restart(); err != nil {
		r.tb.Fatal(err)
	}
}

// Freeze stops the server with SIGSTOP: connections stay open, new ones are
// accepted by the kernel, and nothing is answered until [RedisProcess.Thaw].
func (r *RedisProcess) Freeze() {
	r.tb.Helper()
	if err := r.p.signal(syscall.SIGSTOP); err != nil {
		r.tb.Fatal(err)
	}
}

// Thaw lets a frozen server go on.
func (r *RedisProcess) Thaw() {
	r.tb.Helper()
	if err := r.p.signal(syscall.SIGCONT); err != nil {
		r.tb.Fatal(err)
	}
}

// FlushAll removes every key.
func (r *RedisProcess) FlushAll() {
	r.tb.Helper()
	c := r.Client(r.tb)
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	if err := c.FlushAll(ctx).Err(); err != nil {
		r.tb.Fatalf("flush redis: %v", err)
	}
}

// PID returns the process id, 0 while the server is down.
func (r *RedisProcess) PID() int { return r.p.pid() }
