package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/budgetd/budgetd/concurrency"
)

// Proxy is what "budgetd proxy" runs with. [LoadProxy] makes and validates it.
// What each field means, its default and its bounds are in the table of its
// settings.
type Proxy struct {
	Listen    string // host:port of the proxy
	OpsListen string // host:port of metrics and health; "" for the proxy's port
	TLSCert   string // file; "" for no TLS
	TLSKey    string // file

	Broker         string // http://host:port
	BrokerDeadline time.Duration
	WhenDown       string // "closed", "open" or "local": calls while no broker answers
	LocalRate      int    // requests a second, of "local"
	LocalBurst     int    // requests at once, likewise
	BudgetKey      Secret // of callers that bring none; not set: they are refused

	Upstreams    map[string]*url.URL // by the provider's name
	ProviderKeys map[string]Secret   // likewise

	MaxRequestBytes  int           // bytes
	MaxInFlight      int           // calls
	MaxWait          time.Duration // of calls for their start, unless they state it
	MaxWaitStated    time.Duration // the longest that they may state
	UploadTimeout    time.Duration
	FirstByteTimeout time.Duration

	LogLevel      slog.Level
	LogFormat     string // "auto", "text" or "json"
	ShutdownGrace time.Duration
}

// Bounds of the proxy's settings.
const (
	maxUpstreams                             = 32
	minFirstByteTimeout, maxFirstByteTimeout = time.Second, time.Hour
	minUploadTimeout, maxUploadTimeout       = time.Second, time.Hour
	maxLocal                                 = 1_000_000
)

// standardUpstreams are the providers that are known without being named.
const standardUpstreams = "openai=https://api.openai.com anthropic=https://api.anthropic.com gemini=https://generativelanguage.googleapis.com"

var ofProxy = table[Proxy]{settings: withPrefix("PROXY_", proxySettings), env: "BUDGETD_PROXY_CONFIG", file: "proxy.yaml"}

func withPrefix[C any](prefix string, settings []SettingOf[C]) []SettingOf[C] {
	for i := range settings {
		settings[i].prefix = prefix
	}
	return settings
}

// AddProxyFlags adds one flag for each setting of a proxy, and --config.
func AddProxyFlags(flags *pflag.FlagSet) { ofProxy.addFlags(flags) }

// LoadProxy is [Load] for a proxy.
func LoadProxy(flags *pflag.FlagSet, lookup func(string) (string, bool)) (Proxy, error) {
	c, sources, err := ofProxy.load(flags, lookup)
	if err != nil {
		return Proxy{}, err
	}
	var faults []error
	fault := func(setting, value, problem string) {
		faults = append(faults, &Error{Setting: setting, Value: value, Source: sources[setting], Problem: problem})
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		fault("tls_cert", c.TLSCert, "and tls_key belong together; set both or none")
	}
	if c.OpsListen != "" && c.OpsListen == c.Listen && !hasFreePort(c.Listen) {
		fault("ops_listen", c.OpsListen, "is the address of the proxy; leave it empty to serve both there")
	}
	if c.BudgetKey.IsSet() && !IsLoopback(c.Listen) {
		fault("budget_key", "", "is for callers that bring no key, and listen is not loopback: anybody who reaches it could spend; use 127.0.0.1, or leave budget_key out")
	}
	for _, name := range []string{"local_rate", "local_burst"} {
		if _, stated := sources[name]; stated && c.WhenDown != "local" {
			fault(name, "", "is for when_down: local, and when_down is "+c.WhenDown+"; set that too, or leave this out")
		}
	}
	for name := range c.ProviderKeys {
		if c.Upstreams[name] == nil {
			fault("provider_key", "", fmt.Sprintf("has a key for %q, which is no upstream; name it in upstream", name))
		}
	}
	if len(faults) > 0 {
		return Proxy{}, errors.Join(faults...)
	}
	return c, nil
}

var proxySettings = []SettingOf[Proxy]{
	{
		Name: "listen", Type: "address", Bound: "host:port; port 0 takes a free one",
		Usage:    "address of the proxy, `host:port`",
		Doc:      "Where the proxy listens. An address that other machines reach should come with tls_cert and tls_key, or be behind something that ends TLS: keys and prompts travel on it.",
		standard: fixed("127.0.0.1:8081"),
		set: func(c *Proxy, v string) error {
			c.Listen = v
			return checkAddress(v)
		},
		get: func(c *Proxy) string { return c.Listen },
	},
	{
		Name: "ops_listen", Type: "address", Bound: "host:port, or empty",
		Usage:    "address of metrics and health, `host:port`",
		Doc:      "Where /metrics, /healthz and /readyz are served, without TLS and without a key. Empty: on the proxy's address, and then metrics only when that address is loopback.",
		standard: fixed(""),
		set: func(c *Proxy, v string) error {
			c.OpsListen = v
			if v == "" {
				return nil
			}
			return checkAddress(v)
		},
		get: func(c *Proxy) string { return c.OpsListen },
	},
	{
		Name: "tls_cert", Type: "file", Bound: "a PEM file; with tls_key",
		Usage:    "certificate chain for TLS, a PEM `file`",
		Doc:      "The certificate chain that the proxy is served with, over TLS 1.2 or later. A renewed file is taken over within ten seconds. Empty: no TLS.",
		standard: fixed(""),
		set:      func(c *Proxy, v string) error { c.TLSCert = v; return nil },
		get:      func(c *Proxy) string { return c.TLSCert },
	},
	{
		Name: "tls_key", Type: "file", Bound: "a PEM file; with tls_cert",
		Usage:    "private key of the certificate, a PEM `file`",
		Doc:      "The private key of tls_cert.",
		standard: fixed(""),
		set:      func(c *Proxy, v string) error { c.TLSKey = v; return nil },
		get:      func(c *Proxy) string { return c.TLSKey },
	},
	{
		Name: "broker", Type: "text", Bound: "http:// or https:// URL",
		Usage:    "`URL` of the broker",
		Doc:      "The broker, or what stands in front of several.",
		standard: fixed("http://127.0.0.1:8080"),
		set: func(c *Proxy, v string) error {
			c.Broker = v
			_, err := serverURL(v)
			return err
		},
		get: func(c *Proxy) string { return c.Broker },
	},
	{
		Name: "broker_deadline", Type: "duration", Bound: "10ms to 1m",
		Usage:    "longest `time` that one question to the broker may take",
		Doc:      "How long one question to the broker may take. What becomes of a call whose Reserve has no answer by then, when_down says.",
		standard: fixed("1s"),
		set:      duration(func(c *Proxy) *time.Duration { return &c.BrokerDeadline }, 10*time.Millisecond, time.Minute),
		get:      func(c *Proxy) string { return shortDuration(c.BrokerDeadline) },
	},
	{
		Name: "when_down", Type: "choice", Bound: "closed, open or local",
		Usage:    "`rule` for calls while no broker answers: closed, open or local",
		Doc:      "What becomes of calls while no broker answers, or it can't reach its stores. closed refuses them with 503, in the provider's form. open sends them on without a budget. local sends on as many as a bucket of this proxy allows, of all callers together (local_rate, local_burst), and refuses the others with 429. What such calls use is in no ledger. open and local are for keys that the broker has known since this proxy started, and for budget_key: another is refused.",
		standard: fixed("closed"),
		set: func(c *Proxy, v string) error {
			c.WhenDown = v
			if v != "closed" && v != "open" && v != "local" {
				return errors.New("is no rule; use closed, open or local")
			}
			return nil
		},
		get: func(c *Proxy) string { return c.WhenDown },
	},
	{
		Name: "local_rate", Type: "number", Bound: "1 to 1000000; with when_down: local",
		Usage:    "requests a second while no broker answers, a `number`",
		Doc:      "How many requests a second when_down: local sends on.",
		standard: fixed("10"),
		set:      number(func(c *Proxy) *int { return &c.LocalRate }, 1, maxLocal),
		get:      func(c *Proxy) string { return strconv.Itoa(c.LocalRate) },
	},
	{
		Name: "local_burst", Type: "number", Bound: "1 to 1000000; with when_down: local",
		Usage:    "requests at once while no broker answers, a `number`",
		Doc:      "How many requests when_down: local sends on at once, after a pause.",
		standard: fixed("20"),
		set:      number(func(c *Proxy) *int { return &c.LocalBurst }, 1, maxLocal),
		get:      func(c *Proxy) string { return strconv.Itoa(c.LocalBurst) },
	},
	{
		Name: "budget_key", Type: "text", Secret: true, Bound: "an API key of the broker, or empty; only on a loopback address",
		Usage:    "`key` of the broker for callers that bring none; better in the environment",
		Doc:      "The broker's key for callers that bring none of their own, as beside one program on one machine. Empty: a call without a budget key is refused with 401. Other users of the machine can see flags: use the environment or the file.",
		standard: fixed(""),
		set: func(c *Proxy, v string) error {
			c.BudgetKey = NewSecret(v)
			return checkHeaderValue(v)
		},
		get: func(c *Proxy) string { return c.BudgetKey.String() },
	},
	{
		Name: "upstream", Type: "list", Bound: "name=URL, up to 32 with spaces between",
		Usage:    "`name=URL` of a provider; again for more",
		Doc:      "The providers, as name=URL: openai, anthropic and gemini, and hosts that speak OpenAI's form, by any name. A call of /name/... goes to that provider's URL with the rest of the path. What is stated adds to the default, or replaces the provider of that name; name= removes it.",
		standard: fixed(standardUpstreams),
		set:      setUpstreams,
		get: func(c *Proxy) string {
			var parts []string
			for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
				parts = append(parts, name+"="+c.Upstreams[name].String())
			}
			return strings.Join(parts, " ")
		},
	},
	{
		Name: "provider_key", Type: "list", Secret: true, Bound: "name=key or name=@file, with spaces between, or empty",
		Usage:    "`name=key` of a provider, or name=@file; better in the environment",
		Doc:      "The providers' keys, as name=key, or name=@file for a file that holds the key alone and is read at the start. The key that a caller sends is then a budget key, and is replaced by this one. A provider without a key here gets the caller's own, and the budget key comes in the header X-Budget-Key. Other users of the machine can see flags: use the environment or files.",
		standard: fixed(""),
		set:      setProviderKeys,
		get: func(c *Proxy) string {
			var parts []string
			for _, name := range slices.Sorted(maps.Keys(c.ProviderKeys)) {
				parts = append(parts, name+"="+c.ProviderKeys[name].String())
			}
			return strings.Join(parts, " ")
		},
	},
	{
		Name: "max_request_bytes", Type: "bytes", Bound: "65536 to 67108864",
		Usage:    "largest request, in `bytes`",
		Doc:      "How large one request may be, in bytes. A larger one is refused with 413. The broker's max_request_bytes bounds what is counted of it.",
		standard: fixed("33554432"),
		set:      number(func(c *Proxy) *int { return &c.MaxRequestBytes }, minMaxRequestBytes, maxMaxRequestBytes),
		get:      func(c *Proxy) string { return strconv.Itoa(c.MaxRequestBytes) },
	},
	{
		Name: "max_in_flight", Type: "number", Bound: "16 to 1000000",
		Usage:    "calls under way before more are turned away, a `number`",
		Doc:      "How many calls may be under way at once, those whose body is still coming included. Beyond it calls are refused with 503 and Retry-After at once.",
		standard: fixed("4096"),
		set:      number(func(c *Proxy) *int { return &c.MaxInFlight }, minMaxInFlight, maxMaxInFlight),
		get:      func(c *Proxy) string { return strconv.Itoa(c.MaxInFlight) },
	},
	{
		Name: "max_wait", Type: "duration", Bound: "0s to 1h",
		Usage:    "longest `time` that a call waits for its start",
		Doc:      "How long a call may wait where a limit over time does not cover it now: it is booked ahead, in the order in which calls come to all proxies and brokers, and sent on at its start. A caller that hangs up before gives that back. The header X-Budget-Max-Wait of a call stands before this. With 0s a call waits only where a limit is a leaky queue, and is else refused with 429.",
		standard: fixed("0s"),
		set:      duration(func(c *Proxy) *time.Duration { return &c.MaxWait }, 0, concurrency.MaxWait),
		get:      func(c *Proxy) string { return shortDuration(c.MaxWait) },
	},
	{
		Name: "max_wait_stated", Type: "duration", Bound: "0s to 1h",
		Usage:    "longest `time` that a call may state in X-Budget-Max-Wait",
		Doc:      "The longest wait that a call may state in the header X-Budget-Max-Wait. A call that states more is refused with 400. One that waits counts for max_in_flight, and keeps its body in memory.",
		standard: fixed("1m"),
		set:      duration(func(c *Proxy) *time.Duration { return &c.MaxWaitStated }, 0, concurrency.MaxWait),
		get:      func(c *Proxy) string { return shortDuration(c.MaxWaitStated) },
	},
	{
		Name: "upload_timeout", Type: "duration", Bound: "1s to 1h",
		Usage:    "longest `time` that a call's body may take to arrive",
		Doc:      "How long the body of a call may take to arrive. After it, and where no byte comes for 30 seconds, the call is refused with 408.",
		standard: fixed("5m"),
		set:      duration(func(c *Proxy) *time.Duration { return &c.UploadTimeout }, minUploadTimeout, maxUploadTimeout),
		get:      func(c *Proxy) string { return shortDuration(c.UploadTimeout) },
	},
	{
		Name: "first_byte_timeout", Type: "duration", Bound: "1s to 1h",
		Usage:    "longest `time` until a provider begins to answer",
		Doc:      "How long a provider may take until its answer begins. After it the call fails with 504. What a stream takes from then on is not bounded.",
		standard: fixed("10m"),
		set:      duration(func(c *Proxy) *time.Duration { return &c.FirstByteTimeout }, minFirstByteTimeout, maxFirstByteTimeout),
		get:      func(c *Proxy) string { return shortDuration(c.FirstByteTimeout) },
	},
	{
		Name: "log_level", Type: "choice", Bound: "debug, info, warn or error",
		Usage:    "least `level` that is logged: debug, info, warn or error",
		Doc:      "The least that is logged. Prompts and keys are never logged at any level.",
		standard: fixed("info"),
		set:      func(c *Proxy, v string) error { return setLogLevel(&c.LogLevel, v) },
		get:      func(c *Proxy) string { return strings.ToLower(c.LogLevel.String()) },
	},
	{
		Name: "log_format", Type: "choice", Bound: "auto, text or json",
		Usage:    "`form` of the log: auto, text or json",
		Doc:      "How the log on stderr is written. auto is text on a terminal and JSON elsewhere.",
		standard: fixed("auto"),
		set:      func(c *Proxy, v string) error { return setLogFormat(&c.LogFormat, v) },
		get:      func(c *Proxy) string { return c.LogFormat },
	},
	{
		Name: "shutdown_grace", Type: "duration", Bound: "0s to 10m",
		Usage:    "`time` that calls under way get to finish at shutdown",
		Doc:      "How long calls under way may take to finish after SIGTERM or SIGINT. What is cut off after it is charged for what was seen.",
		standard: fixed("30s"),
		set:      duration(func(c *Proxy) *time.Duration { return &c.ShutdownGrace }, 0, maxShutdownGrace),
		get:      func(c *Proxy) string { return shortDuration(c.ShutdownGrace) },
	},
}

// upstreamNames are those that stand in a path.
var upstreamNames = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// eachNamed reads a list of name=value.
func eachNamed(list string, each func(name, value string) error) error {
	for _, part := range strings.Fields(list) {
		name, value, ok := strings.Cut(part, "=")
		if !ok || !upstreamNames.MatchString(name) || name == "v1" || name == "v1beta" {
			return errors.New("is not name=value; names have up to 32 of a to z, 0 to 9 and -, and begin with a letter")
		}
		if err := each(name, value); err != nil {
			return err
		}
	}
	return nil
}

// setUpstreams adds to those that are there: the default comes first.
func setUpstreams(c *Proxy, list string) error {
	if c.Upstreams == nil {
		c.Upstreams = map[string]*url.URL{}
	}
	err := eachNamed(list, func(name, address string) error {
		if address == "" {
			delete(c.Upstreams, name)
			return nil
		}
		u, err := serverURL(address)
		if err != nil {
			return fmt.Errorf("has for %s what %w", name, err)
		}
		c.Upstreams[name] = u
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(c.Upstreams) == 0:
		return errors.New("leaves no provider; name one")
	case len(c.Upstreams) > maxUpstreams:
		return fmt.Errorf("names more than %d providers", maxUpstreams)
	}
	return nil
}

// maxKeyBytes bounds a provider's key.
const maxKeyBytes = 4096

func setProviderKeys(c *Proxy, list string) error {
	c.ProviderKeys = map[string]Secret{}
	return eachNamed(list, func(name, key string) error {
		if path, isFile := strings.CutPrefix(key, "@"); isFile {
			text, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("has for %s a file that can't be read: %s", name, reason(err))
			}
			key = strings.TrimSpace(string(text))
		}
		if key == "" {
			return fmt.Errorf("has no key for %s", name)
		}
		if err := checkHeaderValue(key); err != nil {
			return fmt.Errorf("has for %s what %w", name, err)
		}
		c.ProviderKeys[name] = NewSecret(key)
		return nil
	})
}

// checkHeaderValue refuses what can't be sent as a key, without repeating it.
func checkHeaderValue(key string) error {
	if len(key) > maxKeyBytes {
		return fmt.Errorf("is over %d bytes", maxKeyBytes)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return errors.New("has a character that no key has: spaces and control characters can't be sent")
		}
	}
	return nil
}

// serverURL reads an address without user, query and fragment.
func serverURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("is not a URL such as https://example.com, with its http:// or https:// and without user and query")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}
