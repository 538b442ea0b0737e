package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/budgetd/budgetd/concurrency"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/alerts"
	"github.com/budgetd/budgetd/ledger/spool"
	"github.com/budgetd/budgetd/reservation/redisstore"
)

// Setting is one thing that an operator may set of a broker.
type Setting = SettingOf[Config]

// SettingOf is one thing that an operator may set, of what C configures.
type SettingOf[C any] struct {
	Name   string // in the file
	Type   string // "text", "address", "file", "duration", "number", "bytes", "switch", "choice", "price", "URL", "list"
	Bound  string // what is accepted
	Doc    string // what it does, in sentences
	Usage  string // what it does, in a few words, for --help
	Secret bool   // the value may hold a password and is never printed

	standard func() string
	shown    string // the default as documents show it, when it depends on the machine
	prefix   string // of the environment variable, after BUDGETD_
	set      func(*C, string) error
	get      func(*C) string
}

// Default returns the value that holds when nothing is set, as it would be
// written; "" stands for nothing.
func (s SettingOf[C]) Default() string { return s.standard() }

// ShownDefault returns the default as documents show it: the same on every
// machine.
func (s SettingOf[C]) ShownDefault() string {
	if s.shown != "" {
		return s.shown
	}
	return s.standard()
}

// Env returns the name of the environment variable.
func (s SettingOf[C]) Env() string { return "BUDGETD_" + s.prefix + strings.ToUpper(s.Name) }

// Flag returns the name of the flag, without dashes.
func (s SettingOf[C]) Flag() string { return strings.ReplaceAll(s.Name, "_", "-") }

// Value returns the setting as c has it, as it would be written; of a secret
// what may be printed.
func (s SettingOf[C]) Value(c *C) string { return s.get(c) }

// Settings returns all settings of a broker, in the order of the documentation.
func Settings() []Setting { return append([]Setting(nil), settings...) }

// AsideConnections is how many connections to PostgreSQL what takes seconds has
// for itself, beside postgres_connections: reports, audits of entries, and
// corrections of prices. More of them at once would only slow each other down.
const AsideConnections = 4

// The bounds of the settings.
const (
	minDeadline, maxDeadline               = 5 * time.Millisecond, 10 * time.Second
	minLedgerDeadline, maxLedgerDeadline   = 100 * time.Millisecond, time.Minute
	minPostgresConnections                 = 4
	maxPostgresConnections                 = 1000
	maxShutdownGrace                       = 10 * time.Minute
	minMaxInFlight, maxMaxInFlight         = 16, 1_000_000
	minMaxRequestBytes, maxMaxRequestBytes = 64 << 10, 64 << 20
	minLedgerQueue, maxLedgerQueue         = ledger.DefaultMaxBatch, 1_000_000
	maxLedgerRetention                     = 100 * 365 * 24 * time.Hour
	minSpoolMaxBytes, maxSpoolMaxBytes     = spool.MinMaxBytes, 1 << 40
	maxRestoreMax                          = 10_000_000
	maxAuditRate                           = 1000
	maxMaxHeld                             = 100_000
)

var settings = []Setting{
	{
		Name: "listen", Type: "address", Bound: "host:port; port 0 takes a free one",
		Usage:    "address of the API, `host:port`",
		Doc:      "Where the API listens. An address that other machines reach should come with tls_cert and tls_key, or be behind something that ends TLS: API keys travel on it.",
		standard: fixed("127.0.0.1:8080"),
		set: func(c *Config, v string) error {
			c.Listen = v
			return checkAddress(v)
		},
		get: func(c *Config) string { return c.Listen },
	},
	{
		Name: "ops_listen", Type: "address", Bound: "host:port, or empty",
		Usage:    "address of metrics, health and profiles, `host:port`",
		Doc:      "Where /metrics, /healthz, /readyz and, if switched on, /debug/pprof/ are served, without TLS and without a key. Empty: on the API's address, and then metrics and profiles only when that address is loopback.",
		standard: fixed(""),
		set: func(c *Config, v string) error {
			c.OpsListen = v
			if v == "" {
				return nil
			}
			return checkAddress(v)
		},
		get: func(c *Config) string { return c.OpsListen },
	},
	{
		Name: "tls_cert", Type: "file", Bound: "a PEM file; with tls_key",
		Usage:    "certificate chain for TLS, a PEM `file`",
		Doc:      "The certificate chain that the API is served with, over TLS 1.2 or later. A renewed file is taken over within ten seconds, without a restart. Empty: no TLS.",
		standard: fixed(""),
		set:      func(c *Config, v string) error { c.TLSCert = v; return nil },
		get:      func(c *Config) string { return c.TLSCert },
	},
	{
		Name: "tls_key", Type: "file", Bound: "a PEM file; with tls_cert",
		Usage:    "private key of the certificate, a PEM `file`",
		Doc:      "The private key of tls_cert.",
		standard: fixed(""),
		set:      func(c *Config, v string) error { c.TLSKey = v; return nil },
		get:      func(c *Config) string { return c.TLSKey },
	},
	{
		Name: "data", Type: "file", Bound: "a directory; made if it is missing",
		Usage:    "`directory` of what this broker keeps on its disk",
		Doc:      "What this broker keeps on its disk. Without postgres that is everything: plans, keys and the ledger, in one SQLite file. With postgres it is the spool, where Refunds wait while PostgreSQL is away. The first start without an admin key leaves one in its file admin-key, for its owner only, unless a terminal shows it. The directory must be on a local disk that outlives the process, and only one broker at a time may use it.",
		standard: defaultData, shown: "$XDG_STATE_HOME/budgetd",
		set: func(c *Config, v string) error {
			c.Data = v
			if v == "" {
				return errors.New("is empty; name a directory")
			}
			return nil
		},
		get: func(c *Config) string { return c.Data },
	},
	{
		Name: "demo", Type: "switch", Bound: "true or false",
		Usage:    "start with one account and one key, both \"demo\"; loopback only",
		Doc:      "Starts with the demo policy, if there is none, and lets in the key \"demo\" for the account \"demo\" from this machine. listen must be loopback.",
		standard: fixed("false"),
		set:      boolean(func(c *Config) *bool { return &c.Demo }),
		get:      func(c *Config) string { return strconv.FormatBool(c.Demo) },
	},
	{
		Name: "redis", Type: "URL", Secret: true, Bound: "redis:// or rediss:// URL, or empty; needs postgres",
		Usage:    "`URL` of the Redis that brokers share; none: this broker's memory",
		Doc:      "The Redis that keeps reservations and counters for all brokers: redis://user:password@host:port/db, rediss:// for TLS. redis://host1:port,host2:port?cluster=true is a Redis Cluster by some of its nodes, redis://host1:port,host2:port?master=NAME the master that these Sentinels name. Timeouts are tight by default, and are set with the parameters dial_timeout, read_timeout, write_timeout and pool_timeout. Empty: this broker's memory, for a broker that runs alone.",
		standard: fixed(""),
		set: func(c *Config, v string) error {
			c.Redis = NewURL(v)
			return checkRedis(v)
		},
		get: func(c *Config) string { return c.Redis.String() },
	},
	{
		Name: "postgres", Type: "URL", Secret: true, Bound: "postgres:// URL or keywords (host=... dbname=...), or empty; needs redis or single_node",
		Usage:    "`URL` of the PostgreSQL that keeps plans, keys and the ledger",
		Doc:      "The PostgreSQL (14 or later) that keeps plans, keys and the ledger: postgres://user:password@host:port/database. The password may also come from PGPASSWORD or ~/.pgpass. Empty: the embedded database in data.",
		standard: fixed(""),
		set: func(c *Config, v string) error {
			c.Postgres = NewURL(v)
			return checkPostgres(v)
		},
		get: func(c *Config) string { return c.Postgres.String() },
	},
	{
		Name: "postgres_connections", Type: "number", Bound: "4 to 1000",
		Usage:    "connections to PostgreSQL for what callers wait for, a `number`",
		Doc:      "How many connections to PostgreSQL this broker opens at most for what callers wait for. Reports, audits of entries and corrections of prices have 4 more, so that Refunds never wait for them, and one listens for changes: max_connections of the server must have room for 5 more than this for each broker. Two are enough for any number of Refunds, which share transactions; the others read quotas, keys and the policy, and keep alerts.",
		standard: fixed("16"),
		set:      number(func(c *Config) *int { return &c.PostgresConnections }, minPostgresConnections, maxPostgresConnections),
		get:      func(c *Config) string { return strconv.Itoa(c.PostgresConnections) },
	},
	{
		Name: "single_node", Type: "switch", Bound: "true or false; only with postgres and without redis",
		Usage:    "this is the only broker on its PostgreSQL; no Redis needed",
		Doc:      "Says that no other broker uses the same PostgreSQL, so that counters may live in this broker's memory. With two brokers each would grant every limit in full: without Redis, postgres is refused unless this is stated.",
		standard: fixed("false"),
		set:      boolean(func(c *Config) *bool { return &c.SingleNode }),
		get:      func(c *Config) string { return strconv.FormatBool(c.SingleNode) },
	},
	{
		Name: "key_prefix", Type: "text", Bound: "1 to 64 of letters, digits, '.', '_', ':' and '-'",
		Usage:    "`prefix` of every key in Redis",
		Doc:      "What every key in Redis begins with. Brokers that share a Redis and a PostgreSQL share it; another budgetd in the same Redis needs another.",
		standard: fixed("budgetd:"),
		set: func(c *Config, v string) error {
			c.KeyPrefix = v
			if !prefixes.MatchString(v) {
				return errors.New("is not a prefix; use 1 to 64 letters, digits, '.', '_', ':' and '-'")
			}
			return nil
		},
		get: func(c *Config) string { return c.KeyPrefix },
	},
	{
		Name: "policy", Type: "file", Bound: "a policy file, or empty; not with demo",
		Usage:    "policy `file` that is applied at every start",
		Doc:      "Plans, pools and accounts in the form of \"budgetd apply\", applied at every start; the broker does not start with a faulty one. Empty: what the store holds. See policy.md for the language.",
		standard: fixed(""),
		set:      func(c *Config, v string) error { c.Policy = v; return nil },
		get:      func(c *Config) string { return c.Policy },
	},
	{
		Name: "deadline", Type: "duration", Bound: "5ms to 10s",
		Usage:    "`time` in which Reserve answers, whatever Redis does",
		Doc:      "How long Reserve may take, whatever Redis and PostgreSQL do. When it has passed each limit's own rule (when_down) decides.",
		standard: fixed("50ms"),
		set:      duration(func(c *Config) *time.Duration { return &c.Deadline }, minDeadline, maxDeadline),
		get:      func(c *Config) string { return shortDuration(c.Deadline) },
	},
	{
		Name: "ledger_deadline", Type: "duration", Bound: "100ms to 1m",
		Usage:    "`time` that a Refund waits for the ledger",
		Doc:      "How long a Refund or Charge may wait for the ledger to keep it. After that it is answered unavailable, and is to be repeated.",
		standard: fixed("5s"),
		set:      duration(func(c *Config) *time.Duration { return &c.LedgerDeadline }, minLedgerDeadline, maxLedgerDeadline),
		get:      func(c *Config) string { return shortDuration(c.LedgerDeadline) },
	},
	{
		Name: "ledger_queue", Type: "number", Bound: "512 to 1000000",
		Usage:    "Refunds that may wait for the ledger at once, a `number`",
		Doc:      "How many closings may wait for the ledger's next transaction. A transaction takes up to 512 of them. A Refund or Charge that finds no room is answered unavailable at once, and is to be repeated.",
		standard: fixed("8192"),
		set:      number(func(c *Config) *int { return &c.LedgerQueue }, minLedgerQueue, maxLedgerQueue),
		get:      func(c *Config) string { return strconv.Itoa(c.LedgerQueue) },
	},
	{
		Name: "ledger_retention", Type: "duration", Bound: "0s, or 960h (40 days) to 876000h; above 0s only with postgres",
		Usage:    "`time` that the ledger keeps a month after its end; 0s: for ever",
		Doc:      "How long the ledger keeps the closings and entries of a month after its end. Then the month's partitions are detached and stay as tables of their own, to be archived or dropped; what they charged stays in the sums and in the reports. A Refund for a reservation of a month that is not kept is refused for good, so the least is 40 days: leases, repeated Refunds and spools of nodes that were down may come late. It only ever takes effect forwards: what was detached does not come back with a longer time. 0s: every month is kept.",
		standard: fixed("0s"),
		set: func(c *Config, v string) error {
			if err := duration(func(c *Config) *time.Duration { return &c.LedgerRetention }, 0, maxLedgerRetention)(c, v); err != nil {
				return err
			}
			if c.LedgerRetention != 0 && c.LedgerRetention < ledger.MinRetention {
				return fmt.Errorf("is less than %s, 40 days, within which late Refunds may come; use more, or 0s to keep every month", shortDuration(ledger.MinRetention))
			}
			return nil
		},
		get: func(c *Config) string { return shortDuration(c.LedgerRetention) },
	},
	{
		Name: "spool_max_bytes", Type: "bytes", Bound: "1048576 to 1099511627776",
		Usage:    "largest spool, in `bytes`",
		Doc:      "How large the spool in data may grow, in bytes: the Refunds that are acknowledged while PostgreSQL is away, about 2 KB each. Beyond it Refunds are answered unavailable until PostgreSQL is back. Its disk needs about 10 MB more. Only with postgres.",
		standard: fixed("1073741824"),
		set:      number(func(c *Config) *int { return &c.SpoolMaxBytes }, minSpoolMaxBytes, maxSpoolMaxBytes),
		get:      func(c *Config) string { return strconv.Itoa(c.SpoolMaxBytes) },
	},
	{
		Name: "lease", Type: "duration", Bound: "1ms to 24h",
		Usage:    "lease of callers that name none, a `time`",
		Doc:      "How long a reservation lives when the caller does not say. What a crashed caller held is back after that.",
		standard: fixed("1m"),
		set:      duration(func(c *Config) *time.Duration { return &c.Lease }, concurrency.MinLease, concurrency.MaxLease),
		get:      func(c *Config) string { return shortDuration(c.Lease) },
	},
	{
		Name: "retention", Type: "duration", Bound: "1s to 24h",
		Usage:    "`time` that idempotency keys outlive their lease",
		Doc:      "How long a reservation and its idempotency key are remembered after the lease has ended. The ledger remembers closings for good.",
		standard: fixed("10m"),
		set:      duration(func(c *Config) *time.Duration { return &c.Retention }, concurrency.MinRetention, concurrency.MaxRetention),
		get:      func(c *Config) string { return shortDuration(c.Retention) },
	},
	{
		Name: "restore_max", Type: "number", Bound: "0 to 10000000",
		Usage:    "open reservations to bring back when Redis lost its data, a `number`",
		Doc:      "How many open reservations this broker remembers, so that it can bring them back when Redis has lost its data or was rolled back. Each takes about half a kilobyte of memory. Beyond it those whose lease ends first are left out. 0: none. Without redis there is nothing to bring back and none are remembered.",
		standard: fixed("100000"),
		set:      number(func(c *Config) *int { return &c.RestoreMax }, 0, maxRestoreMax),
		get:      func(c *Config) string { return strconv.Itoa(c.RestoreMax) },
	},
	{
		Name: "audit_rate", Type: "number", Bound: "0 to 1000",
		Usage:    "accounts a second that are audited in the background, a `number`",
		Doc:      "How many accounts a second are audited in the background, at most: usage rows against the engine's counters, counters against the records they count, and at a tenth of the rate the entries of the ledger. An audit never takes more than a hundredth of the time of what it reads. 0: none; newer usage rows are still brought to the engine, and \"budgetd audit\" works.",
		standard: fixed("10"),
		set:      number(func(c *Config) *int { return &c.AuditRate }, 0, maxAuditRate),
		get:      func(c *Config) string { return strconv.Itoa(c.AuditRate) },
	},
	{
		Name: "max_in_flight", Type: "number", Bound: "16 to 1000000",
		Usage:    "calls under way before more are turned away, a `number`",
		Doc:      "How many calls may be under way at once. Beyond it calls are answered unavailable at once. An eighth is kept for Refund and Renew, so that what is held can always come back.",
		standard: fixed("4096"),
		set:      number(func(c *Config) *int { return &c.MaxInFlight }, minMaxInFlight, maxMaxInFlight),
		get:      func(c *Config) string { return strconv.Itoa(c.MaxInFlight) },
	},
	{
		Name: "max_held", Type: "number", Bound: "0 to 100000",
		Usage:    "calls that are held for slots at once, a `number`",
		Doc:      "How many Reserves with a maxWait this broker holds at once until slots come free for them, at most half of max_in_flight, among which they count. Beyond it a call that slots refuse is refused at once, with when to come back. 0: none is held.",
		standard: fixed("1000"),
		set:      number(func(c *Config) *int { return &c.MaxHeld }, 0, maxMaxHeld),
		get:      func(c *Config) string { return strconv.Itoa(c.MaxHeld) },
	},
	{
		Name: "max_request_bytes", Type: "bytes", Bound: "65536 to 67108864",
		Usage:    "largest request, in `bytes`",
		Doc:      "How large one request may be, in bytes, compressed or not. Requests with prompts need room; a larger one is refused before it is read.",
		standard: fixed("8388608"),
		set:      number(func(c *Config) *int { return &c.MaxRequestBytes }, minMaxRequestBytes, maxMaxRequestBytes),
		get:      func(c *Config) string { return strconv.Itoa(c.MaxRequestBytes) },
	},
	{
		Name: "quota_exhausted_status", Type: "choice", Bound: "429 or 403",
		Usage:    "HTTP `status` of a quota that is used up: 429 or 403",
		Doc:      "How a quota that is used up is answered: 429 (resource_exhausted), which clients take for a limit that comes back, or 403 (permission_denied), which they don't try again. The detail of the error is the same.",
		standard: fixed("429"),
		set: func(c *Config, v string) error {
			if v != "429" && v != "403" {
				return errors.New("is no status of a refusal; use 429 or 403")
			}
			c.QuotaStatus, _ = strconv.Atoi(v)
			return nil
		},
		get: func(c *Config) string { return strconv.Itoa(c.QuotaStatus) },
	},
	{
		Name: "max_retry_after", Type: "duration", Bound: "1s to 24h",
		Usage:    "longest `time` that callers are told to wait for a quota",
		Doc:      "How long at most callers are told to wait for a quota. When its period ends later, the refusal says that it is not retryable and when the quota resets, and Retry-After is this time: how often at most to look whether a grant or a larger plan has come.",
		standard: fixed("1h"),
		set:      duration(func(c *Config) *time.Duration { return &c.MaxRetryAfter }, time.Second, 24*time.Hour),
		get:      func(c *Config) string { return shortDuration(c.MaxRetryAfter) },
	},
	{
		Name: "retry_jitter", Type: "number", Bound: "0 to 100",
		Usage:    "`percent` of a window by which callers that it refused are spread",
		Doc:      "Callers that a window or a used up quota refused are told to come back when it allows and a little later, each by another time, so that they do not all come at once: up to this many percent of the window, 30 s at most, and never earlier. It is in retryAt, Retry-After and the text of the refusal; RateLimit and resetsAt tell when the limit itself resets. Buckets and slots give their capacity back little by little, and are told as they are. 0: everybody is told the same instant.",
		standard: fixed("10"),
		set:      number(func(c *Config) *int { return &c.RetryJitter }, 0, 100),
		get:      func(c *Config) string { return strconv.Itoa(c.RetryJitter) },
	},
	{
		Name: "ratelimit_account", Type: "choice", Bound: "domain, entry or key",
		Usage:    "what names the account in Envoy's rate limit calls: domain, entry or key",
		Doc:      "What names the account in calls of Envoy's rate limit protocol: the domain; the descriptor entry \"account\", which then every descriptor has; or the API key, which then is for one account only. With entry and key the domain is the label domain. See gateways.md.",
		standard: fixed("domain"),
		set: func(c *Config, v string) error {
			c.RateLimitAccount = v
			if v != "domain" && v != "entry" && v != "key" {
				return errors.New("names no account; use domain, entry or key")
			}
			return nil
		},
		get: func(c *Config) string { return c.RateLimitAccount },
	},
	{
		Name: "webhook_url", Type: "URL", Secret: true, Bound: "https:// or http:// URL, or empty; with webhook_secret",
		Usage:    "`URL` that alerts of quotas are posted to",
		Doc:      "Where alerts of quotas are posted, signed with webhook_secret. Set it alike on every broker: each sends what any of them has raised. Only scheme and host are shown, since a path may be a secret. Empty: alerts are raised and posted nowhere. See alerts.md.",
		standard: fixed(""),
		set: func(c *Config, v string) error {
			c.WebhookURL = NewEndpoint(v)
			if v == "" {
				return nil
			}
			_, err := alerts.ParseURL(v)
			return err
		},
		get: func(c *Config) string { return c.WebhookURL.String() },
	},
	{
		Name: "webhook_secret", Type: "text", Secret: true, Bound: "one secret of 24 to 256 bytes, or two with a space between, or empty; with webhook_url",
		Usage:    "`secret` that alerts are signed with; better in the environment",
		Doc:      "The secret that alerts are signed with: whsec_ and base64, as of echo whsec_$(openssl rand -base64 32), or a plain text without spaces. With two, each signs, so that receivers can go over from one to the other. Other users of the machine can see flags: use the environment or the file.",
		standard: fixed(""),
		set: func(c *Config, v string) error {
			c.WebhookSecret = NewSecret(v)
			_, err := alerts.ParseSecrets(v)
			return err
		},
		get: func(c *Config) string { return c.WebhookSecret.String() },
	},
	{
		Name: "prices", Type: "file", Bound: "a YAML file, or empty",
		Usage:    "`file` of models and prices that go before the embedded catalogue",
		Doc:      "Models and prices of your own, which go before the embedded catalogue. Empty: the catalogue as it is.",
		standard: fixed(""),
		set:      func(c *Config, v string) error { c.Prices = v; return nil },
		get:      func(c *Config) string { return c.Prices },
	},
	{
		Name: "unknown_model_price", Type: "price", Bound: "dollars per million tokens, $0.000000001 to $1000, or empty",
		Usage:    "`dollars` per million tokens for unknown models; none: they are refused",
		Doc:      "What every token of a model costs that the catalogue does not know, in dollars per million tokens: set it to the dearest that you could be billed. Empty: calls of unknown models are refused. An unknown model is never free.",
		standard: fixed(""),
		set:      setUnknownModelPrice,
		get:      getUnknownModelPrice,
	},
	{
		Name: "log_level", Type: "choice", Bound: "debug, info, warn or error",
		Usage:    "least `level` that is logged: debug, info, warn or error",
		Doc:      "The least that is logged. Prompts, keys and passwords are never logged at any level.",
		standard: fixed("info"),
		set:      func(c *Config, v string) error { return setLogLevel(&c.LogLevel, v) },
		get:      func(c *Config) string { return strings.ToLower(c.LogLevel.String()) },
	},
	{
		Name: "log_format", Type: "choice", Bound: "auto, text or json",
		Usage:    "`form` of the log: auto, text or json",
		Doc:      "How the log on stderr is written. auto is text on a terminal and JSON elsewhere.",
		standard: fixed("auto"),
		set:      func(c *Config, v string) error { return setLogFormat(&c.LogFormat, v) },
		get:      func(c *Config) string { return c.LogFormat },
	},
	{
		Name: "pprof", Type: "switch", Bound: "true or false; only on a loopback address",
		Usage:    "serve profiles under /debug/pprof/; loopback only",
		Doc:      "Serves Go's profiles under /debug/pprof/ beside the metrics. The address that they are on must be loopback.",
		standard: fixed("false"),
		set:      boolean(func(c *Config) *bool { return &c.Pprof }),
		get:      func(c *Config) string { return strconv.FormatBool(c.Pprof) },
	},
	{
		Name: "shutdown_grace", Type: "duration", Bound: "0s to 10m",
		Usage:    "`time` that calls under way get to finish at shutdown",
		Doc:      "How long calls under way may take to finish after SIGTERM or SIGINT. A second signal ends the process at once; what was acknowledged is kept in either case.",
		standard: fixed("10s"),
		set:      duration(func(c *Config) *time.Duration { return &c.ShutdownGrace }, 0, maxShutdownGrace),
		get:      func(c *Config) string { return shortDuration(c.ShutdownGrace) },
	},
}

var prefixes = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

func setLogLevel(to *slog.Level, v string) error {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if v == strings.ToLower(level.String()) {
			*to = level
			return nil
		}
	}
	return errors.New("is not a level; use debug, info, warn or error")
}

func setLogFormat(to *string, v string) error {
	*to = v
	if v != "auto" && v != "text" && v != "json" {
		return errors.New("is not a form; use auto, text or json")
	}
	return nil
}

func fixed(value string) func() string { return func() string { return value } }

// defaultData follows the XDG base directory specification: state that should
// outlive a restart belongs under $XDG_STATE_HOME, else ~/.local/state.
func defaultData() string {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "budgetd")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "budgetd")
	}
	return "budgetd-data"
}

func boolean[C any](field func(*C) *bool) func(*C, string) error {
	return func(c *C, v string) error {
		switch v {
		case "true":
			*field(c) = true
		case "false":
			*field(c) = false
		default:
			return errors.New("is neither true nor false")
		}
		return nil
	}
}

func number[C any](field func(*C) *int, least, most int) func(*C, string) error {
	return func(c *C, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("is not a whole number; use %d to %d", least, most)
		}
		if n < least || n > most {
			return fmt.Errorf("is out of bounds; use %d to %d", least, most)
		}
		*field(c) = n
		return nil
	}
}

func duration[C any](field func(*C) *time.Duration, least, most time.Duration) func(*C, string) error {
	return func(c *C, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil {
			return fmt.Errorf("is not a time with a unit, such as 500ms, 10s or 5m; use %s to %s", shortDuration(least), shortDuration(most))
		}
		if d < least || d > most {
			return fmt.Errorf("is out of bounds; use %s to %s", shortDuration(least), shortDuration(most))
		}
		*field(c) = d
		return nil
	}
}

// shortDuration writes a duration without units that are zero: 10m, not 10m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("is not host:port, such as 127.0.0.1:8080 or [::1]:8080")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("has a port that is not 0 to 65535")
	}
	return nil
}

// IsLoopback says whether only this machine can reach the address host:port.
// Of names only "localhost" is taken to be loopback.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// checkRedis refuses an address without repeating it, since it may hold a
// password.
func checkRedis(text string) error {
	if text == "" {
		return nil
	}
	if _, rest, ok := strings.Cut(text, "://"); ok {
		// A password with a bare '/' or '?' would be taken for a database.
		if end := strings.IndexAny(rest, "/?"); end >= 0 && strings.Contains(rest[end:], "@") {
			return errors.New("has an '@' after the host; percent-encode special characters of the user and the password")
		}
	}
	if _, err := redisstore.Options(text); err != nil {
		return fmt.Errorf("can't be used: %s", strings.TrimPrefix(err.Error(), "redis URL: "))
	}
	return nil
}

func checkPostgres(text string) error {
	if text == "" {
		return nil
	}
	if strings.Contains(text, "pool_max_conns=") {
		return errors.New("has pool_max_conns, which would hold for reports and for Refunds alike; leave it out and set postgres_connections")
	}
	if u, err := url.Parse(text); err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") {
		return nil
	}
	if strings.Contains(text, "://") || !strings.Contains(text, "=") {
		return errors.New("is not a URL such as postgres://user:password@host:5432/database, nor keywords such as host=... dbname=...; percent-encode special characters of a URL's password")
	}
	return nil
}

func hasFreePort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port == "0"
}
