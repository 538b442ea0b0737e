package config_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/estimator"
)

// env is an environment of its own: nothing of the machine's.
func env(t testing.TB, pairs ...string) func(string) (string, bool) {
	t.Helper()
	values := map[string]string{"XDG_CONFIG_HOME": t.TempDir()}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

func flags(t testing.TB, arguments ...string) *pflag.FlagSet {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(set)
	if err := set.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return set
}

// Each fixture has one fault and says in its first line how it is reported.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d fixtures, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(text), "\n")
			want, ok := strings.CutPrefix(first, "# want: ")
			if !ok {
				t.Fatalf("the fixture does not say what it wants: %s", first)
			}
			want = strings.ReplaceAll(want, "FILE", file)
			_, err = config.Load(flags(t, "--config", file), env(t))
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Fatalf("%v\nwant %s...", err, want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("one fault is reported as several:\n%v", err)
			}
			if strings.Contains(err.Error(), "SECR") {
				t.Errorf("the error tells the password: %v", err)
			}
			var fault *config.Error
			if !errors.As(err, &fault) {
				t.Errorf("not a config.Error: %T", err)
			}
		})
	}
}

// All faults are told at once.
func TestAllFaults(t *testing.T) {
	_, err := config.Load(flags(t, "--deadline", "1h", "--listen", "nowhere"), env(t, "BUDGETD_LEASE", "0s"))
	for _, want := range []string{`deadline: "1h" (from --deadline)`, `listen: "nowhere" (from --listen)`, `lease: "0s" (from BUDGETD_LEASE)`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not tell %s", err, want)
		}
	}
}

// A flag wins over the environment, that over the file, that over the default.
func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "budgetd.yaml")
	if err := os.WriteFile(file, []byte("deadline: 11ms\nlease: 11s\nretention: 11m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(
		flags(t, "--config", file, "--deadline", "33ms"),
		env(t, "BUDGETD_DEADLINE", "22ms", "BUDGETD_LEASE", "22s", "BUDGETD_RETENTION", ""))
	if err != nil {
		t.Fatal(err)
	}
	if c.Deadline != 33*time.Millisecond || c.Lease != 22*time.Second || c.Retention != 11*time.Minute || c.LedgerDeadline != config.Default().LedgerDeadline {
		t.Errorf("deadline %v, lease %v, retention %v, ledger_deadline %v", c.Deadline, c.Lease, c.Retention, c.LedgerDeadline)
	}
}

// The file in $XDG_CONFIG_HOME is read if it is there; a file that was named
// must be there.
func TestWhichFile(t *testing.T) {
	home := t.TempDir()
	if c, err := config.Load(flags(t), env(t, "XDG_CONFIG_HOME", home)); err != nil || c != config.Default() {
		t.Errorf("without a file: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(home, "budgetd"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "budgetd", "budgetd.yaml"), []byte("pprof: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := config.Load(flags(t), env(t, "XDG_CONFIG_HOME", home)); err != nil || !c.Pprof {
		t.Errorf("the default file was not read: %v", err)
	}
	missing := filepath.Join(home, "none.yaml")
	for _, load := range []func() (config.Config, error){
		func() (config.Config, error) { return config.Load(flags(t, "--config", missing), env(t)) },
		func() (config.Config, error) { return config.Load(nil, env(t, "BUDGETD_CONFIG", missing)) },
	} {
		if _, err := load(); err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("a missing file: %v", err)
		}
	}
}

// A store command does not need a broker's Redis; a broker does.
func TestLoadForStore(t *testing.T) {
	set := flags(t, "--postgres", "postgres://h/db")
	if _, err := config.LoadForStore(set, env(t)); err != nil {
		t.Error(err)
	}
	if _, err := config.Load(set, env(t)); err == nil {
		t.Error("a broker with postgres alone is let go")
	}
	if _, err := config.LoadForStore(flags(t, "--data", ""), env(t)); err == nil {
		t.Error("a faulty setting is let go")
	}
}

// Every setting goes round: what Value writes, the setter reads back.
func TestSettings(t *testing.T) {
	standard := config.Default()
	if err := standard.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	other := map[string]string{
		"listen": "127.0.0.1:9999", "ops_listen": "127.0.0.1:9998", "tls_cert": "c.pem", "tls_key": "k.pem",
		"data": "/tmp/x", "demo": "true", "redis": "redis://h:6379/2", "postgres": "postgres://h:5432/db", "postgres_connections": "9",
		"single_node": "true", "key_prefix": "p.", "policy": "p.yaml", "deadline": "70ms", "ledger_deadline": "3s",
		"lease": "1h30m", "retention": "1h", "ledger_queue": "512", "ledger_retention": "2160h", "spool_max_bytes": "1048576", "restore_max": "5", "audit_rate": "0", "max_in_flight": "77", "max_held": "7", "max_request_bytes": "100000", "quota_exhausted_status": "403", "max_retry_after": "10m", "retry_jitter": "25", "ratelimit_account": "key", "prices": "x.yaml",
		"webhook_url": "https://h:8443", "webhook_secret": "a-text-of-24-bytes-or-more",
		"unknown_model_price": "$75.50", "log_level": "debug", "log_format": "json", "pprof": "true", "shutdown_grace": "0s",
	}
	for _, s := range config.Settings() {
		value, known := other[s.Name]
		if !known {
			t.Errorf("%s: the test has no value for it", s.Name)
			continue
		}
		c, err := config.LoadForStore(flags(t, "--"+s.Flag()+"="+value), env(t))
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if s.Name == "webhook_secret" {
			value = "[hidden]" // all of it
		}
		if got := s.Value(&c); got != value {
			t.Errorf("%s: set to %q, shown as %q", s.Name, value, got)
		}
		if c == standard {
			t.Errorf("%s: setting it changes nothing", s.Name)
		}
		if got := s.Value(&standard); got != s.Default() {
			t.Errorf("%s: the default is %q and shown as %q", s.Name, s.Default(), got)
		}
	}
	if c, err := config.LoadForStore(flags(t, "--unknown-model-price", "$0.000000001"), env(t)); err != nil || c.UnknownModelPrice != estimator.PerMillion(1) {
		t.Errorf("the least price: %v, %v", c.UnknownModelPrice, err)
	}
	if c, err := config.Load(flags(t, "--pprof"), env(t)); err != nil || !c.Pprof {
		t.Errorf("a switch without a value: %v", err)
	}
}

// No way of showing an address shows its password.
func TestURLHidesPassword(t *testing.T) {
	for text, want := range map[string]string{
		"redis://user:PASS@h:6379/2":                      "redis://h:6379/2",
		"redis://:PASS@h1:6379,h2:6379?cluster=true":      "redis://h1:6379,h2:6379",
		"redis://h:6379?sentinel_password=PASS":           "redis://h:6379",
		"rediss://user:P@SS:PASS@[::1]:6379":              "rediss://[::1]:6379",
		"redis://user:PASS":                               "[hidden]",
		"postgres://u:PASS@h:5432/db?sslpassword=PASS":    "postgres://h:5432/db",
		"postgres://h/db?password=PASS":                   "postgres://h/db",
		"host=h port=5432 user=u password=PASS dbname=db": "host=h port=5432 dbname=db",
		"host=h password='PASS host=PASS'":                "[hidden]",
		"password=PASS":                                   "[hidden]",
		"":                                                "",
	} {
		u := config.NewURL(text)
		var logged bytes.Buffer
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "url", u)
		marshalled, err := u.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		for _, shown := range []string{u.String(), fmt.Sprint(u), fmt.Sprintf("%v %+v %#v %s %q %x", u, u, u, u, u, u), fmt.Sprintf("%+v", struct{ U config.URL }{u}), logged.String(), string(marshalled)} {
			if strings.Contains(shown, "PASS") {
				t.Errorf("%s is shown as %s", text, shown)
			}
		}
		if u.String() != want {
			t.Errorf("%s is shown as %s, want %s", text, u, want)
		}
		if u.Reveal() != text || u.IsSet() != (text != "") {
			t.Errorf("%s is kept as %s", text, u.Reveal())
		}
	}
}

// A webhook's secret is never shown, nor is more of its address than the host.
func TestSecretIsHidden(t *testing.T) {
	for _, c := range []struct {
		secret config.Secret
		want   string
	}{
		{config.NewSecret("PASS"), "[hidden]"},
		{config.NewSecret(""), ""},
		{config.NewEndpoint("https://h:8443/PASS?x=PASS"), "https://h:8443"},
		{config.NewEndpoint("https://u:PASS@[::1]/"), "https://[::1]"},
		{config.NewEndpoint("https://PA SS"), "[hidden]"},
		{config.NewEndpoint("PASS"), "[hidden]"},
		{config.NewEndpoint(""), ""},
	} {
		var logged bytes.Buffer
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "secret", c.secret)
		marshalled, err := c.secret.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		shown := fmt.Sprintf("%v %+v %#v %s %q %x", c.secret, c.secret, c.secret, c.secret, c.secret, c.secret) +
			fmt.Sprintf("%+v", struct{ S config.Secret }{c.secret}) + logged.String() + string(marshalled)
		if strings.Contains(shown, "PASS") || c.secret.String() != c.want {
			t.Errorf("shown as %s and %s, want %s", c.secret, shown, c.want)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example:1": false, "127.0.0.1": false,
	} {
		if got := config.IsLoopback(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

var update = flag.Bool("update", false, "write docs/configuration.md")

// docs/configuration.md is what the table says.
func TestDocumentation(t *testing.T) {
	const path = "../../../../docs/configuration.md"
	want := config.Documentation()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the settings say; run: go test ./cmd/budgetd/internal/config -run Documentation -update", path)
	}
}

// What nothing reads is told, with the name that may have been meant, and without
// its value.
func TestUnknownVariables(t *testing.T) {
	environ := []string{
		"BUDGETD_LISTN=SECRET", "BUDGETD_PROXY_BROKR=x", "BUDGETD_SEVER=x", "BUDGETD_SOMETHING_ELSE=x",
		"BUDGETD_LISTEN=x", "BUDGETD_PROXY_BROKER=x", "BUDGETD_SERVER=x", "BUDGETD_KEY=x", "BUDGETD_CONFIG=x", "BUDGETD_PROXY_CONFIG=x",
		"BUDGETD_TEST_REDIS=x", "BUDGETD_EMPTY=", "PATH=x", "MY_BUDGETD_LISTN=x",
		"BUDGETD_SERVICE_HOST=x", "BUDGETD_SERVICE_PORT=x", "BUDGETD_SERVICE_PORT_HTTP=x", "BUDGETD_PORT=x",
		"BUDGETD_PORT_8080_TCP=x", "BUDGETD_PORT_8080_TCP_ADDR=x", "BUDGETD_PROXY_PORT_8081_TCP_PROTO=x",
	}
	want := []string{
		`the environment variable "BUDGETD_LISTN" is no setting; did you mean BUDGETD_LISTEN?`,
		`the environment variable "BUDGETD_PROXY_BROKR" is no setting; did you mean BUDGETD_PROXY_BROKER?`,
		`the environment variable "BUDGETD_SEVER" is no setting; did you mean BUDGETD_SERVER?`,
		`the environment variable "BUDGETD_SOMETHING_ELSE" is no setting; docs/configuration.md lists them`,
	}
	if got := config.UnknownVariables(environ); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("BUDGETD_X%d=1", i))
	}
	if got := config.UnknownVariables(many); len(got) != 10 {
		t.Errorf("%d variables are told", len(got))
	}
}
