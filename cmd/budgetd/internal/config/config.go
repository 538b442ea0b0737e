package config

import (
	"log/slog"
	"time"

	"github.com/budgetd/budgetd/estimator"
)

// ExitCode is what a process ends with whose configuration is refused:
// EX_CONFIG of sysexits.h.
const ExitCode = 78

// Config is what budgetd runs with. [Load] makes and validates it. What each
// field means, its default and its bounds are in the table of [Settings].
type Config struct {
	Listen    string // host:port of the API
	OpsListen string // host:port of metrics, health and profiles; "" for the API's port
	TLSCert   string // file; "" for no TLS
	TLSKey    string // file

	Data                string // directory of what this broker keeps on its disk
	Demo                bool
	SingleNode          bool
	Redis               URL
	Postgres            URL
	PostgresConnections int    // at most, beside AsideConnections and one that listens
	KeyPrefix           string // of every key in Redis
	Policy              string // file applied at start; "" for none

	Deadline       time.Duration
	LedgerDeadline time.Duration
	Lease          time.Duration
	Retention      time.Duration

	LedgerQueue     int           // closings
	LedgerRetention time.Duration // 0: for ever
	SpoolMaxBytes   int           // bytes

	RestoreMax int // open reservations remembered
	AuditRate  int // accounts a second; 0: no audits in the background

	MaxInFlight     int           // calls
	MaxHeld         int           // calls that wait for slots; 0: none
	MaxRequestBytes int           // bytes
	QuotaStatus     int           // HTTP status of a quota that is used up: 429 or 403
	MaxRetryAfter   time.Duration // that callers are told to wait for a quota
	RetryJitter     int           // percent of a window by which those it refused are spread

	RateLimitAccount string // what names the account in Envoy's calls: "domain", "entry", "key"

	WebhookURL    Secret // where alerts are posted; not set: nowhere
	WebhookSecret Secret // as alerts.ParseSecrets reads it

	Prices            string               // file of price overrides; "" for none
	UnknownModelPrice estimator.PerMillion // nano-USD per million tokens; 0: unknown models are refused

	LogLevel      slog.Level
	LogFormat     string // "auto", "text" or "json"
	Pprof         bool
	ShutdownGrace time.Duration
}

// Default returns the configuration that nobody changed anything of.
func Default() Config { return ofBroker.standard() }
