package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/test/servers"
)

func TestCheck(t *testing.T) {
	ctx := within(t, 30*time.Second)
	t.Run("healthy", func(t *testing.T) {
		s := open(t, patient(t, servers.SharedRedis(t).URL()), Config{})
		if p := s.Check(ctx); len(p) != 0 {
			t.Errorf("problems of a healthy server: %v", p)
		}
		c := open(t, patientCluster(t, servers.SharedRedisCluster(t).Addrs()), Config{})
		if p := c.Check(ctx); len(p) != 0 {
			t.Errorf("problems of a healthy cluster: %v", p)
		}
	})
	t.Run("eviction", func(t *testing.T) {
		s := open(t, patient(t, servers.NewRedis(t, "--maxmemory-policy", "allkeys-lru").URL()), Config{})
		wantProblem(t, s.Check(ctx), "maxmemory-policy")
	})
	t.Run("cluster node as single", func(t *testing.T) {
		s := open(t, patient(t, "redis://"+servers.SharedRedisCluster(t).Addrs()[0]), Config{})
		wantProblem(t, s.Check(ctx), "node of a Cluster")
	})
	t.Run("cluster with slots missing", func(t *testing.T) {
		cluster := servers.NewRedisCluster(t)
		admin := cluster.Nodes[0].Client(t)
		if err := admin.ClusterDelSlotsRange(ctx, 0, 100).Err(); err != nil {
			t.Fatal(err)
		}
		s := open(t, patientCluster(t, cluster.Addrs()), Config{})
		wantProblem(t, s.Check(ctx), "slots")
	})
	t.Run("replica", func(t *testing.T) {
		server := servers.NewRedis(t)
		if err := server.Client(t).ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil {
			t.Fatal(err)
		}
		s := open(t, patient(t, server.URL()), Config{})
		wantProblem(t, s.Check(ctx), "role")
	})
	t.Run("no scripts", func(t *testing.T) {
		server := servers.NewRedis(t)
		if err := server.Client(t).Do(ctx, "ACL", "SETUSER", "weak", "on", ">secret", "~*", "+@all", "-@scripting").Err(); err != nil {
			t.Fatal(err)
		}
		s := open(t, patient(t, strings.Replace(server.URL(), "redis://", "redis://weak:secret@", 1)), Config{})
		problems := s.Check(ctx)
		wantProblem(t, problems, "may not run scripts")
		for _, p := range problems {
			if strings.Contains(p.String(), "secret") {
				t.Errorf("the password is in %q", p)
			}
		}
	})
}

func wantProblem(t *testing.T, problems []Problem, text string) {
	t.Helper()
	if len(problems) == 0 || !strings.Contains(problems[0].What, text) || problems[0].Do == "" {
		t.Errorf("problems %v, want one that says %q and what to do", problems, text)
	}
}

func TestOptions(t *testing.T) {
	for address, want := range map[string]func(*redis.UniversalOptions) bool{
		"redis://localhost": func(o *redis.UniversalOptions) bool {
			return o.Addrs[0] == "localhost:6379" && o.MaxRetries == -1 && o.DialerRetries == 1 && o.ContextTimeoutEnabled &&
				o.DialTimeout == DefaultDialTimeout && o.ReadTimeout == DefaultIOTimeout && o.WriteTimeout == DefaultIOTimeout && o.PoolTimeout == DefaultPoolTimeout
		},
		"redis://user:p%40ss:word@h:1/3": func(o *redis.UniversalOptions) bool {
			return o.Username == "user" && o.Password == "p@ss:word" && o.Addrs[0] == "h:1" && o.DB == 3
		},
		"redis://:secret@h": func(o *redis.UniversalOptions) bool { return o.Username == "" && o.Password == "secret" },
		"rediss://h:1?skip_verify=true": func(o *redis.UniversalOptions) bool {
			return o.TLSConfig != nil && o.TLSConfig.InsecureSkipVerify
		},
		"rediss://h": func(o *redis.UniversalOptions) bool { return o.TLSConfig != nil && !o.TLSConfig.InsecureSkipVerify },
		"redis://a:1,b:2,c?cluster=true": func(o *redis.UniversalOptions) bool {
			return o.IsClusterMode && len(o.Addrs) == 3 && o.Addrs[2] == "c:6379"
		},
		"redis://a,b:2?master=main":              func(o *redis.UniversalOptions) bool { return o.MasterName == "main" && o.Addrs[0] == "a:26379" },
		"redis://[::1]:7000":                     func(o *redis.UniversalOptions) bool { return o.Addrs[0] == "[::1]:7000" },
		"redis://[::1]":                          func(o *redis.UniversalOptions) bool { return o.Addrs[0] == "[::1]:6379" },
		"redis://h?read_timeout=40ms":            func(o *redis.UniversalOptions) bool { return o.ReadTimeout == 40*time.Millisecond },
		"redis://h?pool_size=9":                  func(o *redis.UniversalOptions) bool { return o.PoolSize == 9 },
		"redis://h?sentinel_password=x&master=m": func(o *redis.UniversalOptions) bool { return o.SentinelPassword == "x" },
	} {
		opts, err := Options(address)
		if err != nil || !want(opts) {
			t.Errorf("%s: %+v, error %v", address, opts, err)
		}
	}
	for address, say := range map[string]string{
		"":                                    "redis://",
		"http://h":                            "redis://",
		"redis://":                            "host is empty",
		"redis://a,b":                         "cluster=true",
		"redis://a?nonsense=1":                "nonsense",
		"redis://a?cluster=perhaps":           "cluster",
		"redis://a?master=":                   "master",
		"redis://a?cluster=true&master=m":     "exclude",
		"redis://a/x":                         "database",
		"redis://a/-1":                        "database",
		"redis://a/1?cluster=true":            "database 0",
		"redis://u:hunter2%zz@a":              "escape",
		"redis://u:hunter2@a?read_timeout=1h": "read_timeout",
		"redis://u:hunter2@a?read_timeout=0":  "read_timeout",
		"redis://a?pool_size=0":               "pool_size",
		"redis://a?skip_verify=true":          "rediss",
		"redis://a?x=%zz":                     "parameters",
	} {
		_, err := Options(address)
		if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one that says %q and not the password", address, err, say)
		}
	}
}

func FuzzOptions(f *testing.F) {
	f.Add("redis://u:p@h:1,g:2/0?cluster=true&read_timeout=3ms")
	f.Fuzz(func(t *testing.T, address string) {
		opts, err := Options(address)
		if (err == nil) != (opts != nil) || err == nil && len(opts.Addrs) == 0 {
			t.Errorf("%q: %v, %v", address, opts, err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	opts, err := Options("redis://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	for say, cfg := range map[string]Config{
		"hash tags": {Prefix: "a{b}:"},
		"at most":   {Prefix: strings.Repeat("p", 65)},
		"QuotaIdle": {QuotaIdle: time.Millisecond},
	} {
		if _, err := Connect(opts, cfg); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%+v: error %v, want one that says %q", cfg, err, say)
		}
	}
}
