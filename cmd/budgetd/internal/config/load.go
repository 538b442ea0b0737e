package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

// FlagConfig is the flag that names the file; BUDGETD_CONFIG does too.
const FlagConfig = "config"

// table is what may be set of one kind of process, and where it is read from.
type table[C any] struct {
	settings []SettingOf[C]
	env      string // variable that names the file
	file     string // the one in $XDG_CONFIG_HOME/budgetd
}

var ofBroker = table[Config]{settings: settings, env: "BUDGETD_CONFIG", file: "budgetd.yaml"}

// standard is what holds when nothing is set.
func (t table[C]) standard() C {
	var c C
	for _, s := range t.settings {
		if err := s.set(&c, s.Default()); err != nil {
			panic("config: the default of " + s.Name + " is invalid: " + err.Error()) // a test builds it
		}
	}
	return c
}

// shownFile is the file that is read when none is named, as documents show it.
func (t table[C]) shownFile() string { return "$XDG_CONFIG_HOME/budgetd/" + t.file }

// Error is one fault of the configuration.
type Error struct {
	Setting string // its name; "" when the fault is not in one setting
	Value   string // as it was given; "" for a secret
	Source  string // "--listen", "BUDGETD_LISTEN", "budgetd.yaml:3"; "" for a default
	Problem string // what is wrong, the bound and what to do
}

// Error returns `listen: "x" (from --listen) is not host:port`.
func (e *Error) Error() string {
	text := e.Setting
	if text != "" {
		text += ": "
	}
	if e.Value != "" {
		value := e.Value
		if len(value) > 80 {
			value = value[:77] + "..."
		}
		text += fmt.Sprintf("%q ", value)
	}
	if e.Source != "" {
		text += "(from " + e.Source + ") "
	}
	return text + e.Problem
}

// given is a value with where it came from.
type given struct {
	text   string
	source string
}

// AddFlags adds one flag for each setting of a broker, and --config.
func AddFlags(flags *pflag.FlagSet) { ofBroker.addFlags(flags) }

func (t table[C]) addFlags(flags *pflag.FlagSet) {
	flags.String(FlagConfig, "", "`file` of settings ("+t.env+"; default: "+t.shownFile()+", if there is one)")
	for _, s := range t.settings {
		usage := s.Usage + " (" + s.Env() + ")"
		flag := flags.VarPF(&flagValue{kind: s.Type, standard: s.ShownDefault()}, s.Flag(), "", usage)
		if s.Type == "switch" {
			flag.NoOptDefVal = "true"
		}
	}
}

// flagValue keeps what was written: Load reads it, so that its errors are the
// same wherever a value comes from.
type flagValue struct {
	text, kind, standard string
	isSet                bool
}

// Set keeps what was written; of a list all that was written.
func (f *flagValue) Set(text string) error {
	if f.kind == "list" && f.isSet {
		text = f.text + " " + text
	}
	f.text, f.isSet = text, true
	return nil
}

// Type is the kind of the setting.
func (f *flagValue) Type() string { return f.kind }

// String returns what was set, or the default for --help.
func (f *flagValue) String() string {
	if f.isSet || f.kind == "switch" && f.standard == "false" {
		return f.text
	}
	return f.standard
}

// Load reads the file, the environment and the flags, validates everything,
// and returns the configuration. flags come from [AddFlags] and may be nil;
// lookup is os.LookupEnv. A variable that is empty counts as not set. The error
// joins one [*Error] for each fault.
func Load(flags *pflag.FlagSet, lookup func(string) (string, bool)) (Config, error) {
	c, sources, err := ofBroker.load(flags, lookup)
	if err != nil {
		return Config{}, err
	}
	if faults := c.contradictions(sources); len(faults) > 0 {
		return Config{}, errors.Join(faults...)
	}
	return c, nil
}

// LoadForStore is Load for a command that only opens the store: it does not
// need what a broker needs beside it, such as a Redis beside PostgreSQL.
func LoadForStore(flags *pflag.FlagSet, lookup func(string) (string, bool)) (Config, error) {
	c, _, err := ofBroker.load(flags, lookup)
	return c, err
}

// load returns the settings, each in its bounds, and where they came from.
func (t table[C]) load(flags *pflag.FlagSet, lookup func(string) (string, bool)) (C, map[string]string, error) {
	path, named := t.configFile(flags, lookup)
	values := map[string]given{}
	var faults []error
	if path != "" {
		var err error
		values, err = t.readFile(path, named)
		if err != nil {
			faults = append(faults, err)
		}
	}
	c := t.standard()
	sources := map[string]string{}
	for _, s := range t.settings {
		value, isSet := values[s.Name]
		if text, ok := lookup(s.Env()); ok && text != "" {
			value, isSet = given{text, s.Env()}, true
		}
		if flags != nil {
			if flag := flags.Lookup(s.Flag()); flag != nil && flag.Changed {
				value, isSet = given{flag.Value.String(), "--" + s.Flag()}, true
			}
		}
		if !isSet {
			continue
		}
		sources[s.Name] = value.source
		if err := s.set(&c, value.text); err != nil {
			fault := &Error{Setting: s.Name, Value: value.text, Source: value.source, Problem: err.Error()}
			if s.Secret {
				fault.Value = ""
			}
			faults = append(faults, fault)
		}
	}
	if len(faults) > 0 {
		var none C
		return none, nil, errors.Join(faults...)
	}
	return c, sources, nil
}

// configFile returns the file to read, and whether somebody named it: then it
// must exist.
func (t table[C]) configFile(flags *pflag.FlagSet, lookup func(string) (string, bool)) (path string, named bool) {
	if flags != nil {
		if flag := flags.Lookup(FlagConfig); flag != nil && flag.Changed {
			return flag.Value.String(), true
		}
	}
	if path, ok := lookup(t.env); ok && path != "" {
		return path, true
	}
	home, ok := lookup("XDG_CONFIG_HOME")
	if !ok || !filepath.IsAbs(home) {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", false
		}
		home = filepath.Join(user, ".config")
	}
	return filepath.Join(home, "budgetd", t.file), false
}

// Validate checks what no single setting can say: which settings exclude or
// need each other. [Load] has done it. The error joins [*Error]s.
func (c Config) Validate() error { return errors.Join(c.contradictions(nil)...) }

func (c Config) contradictions(sources map[string]string) []error {
	var faults []error
	fault := func(setting, value, problem string) {
		faults = append(faults, &Error{Setting: setting, Value: value, Source: sources[setting], Problem: problem})
	}
	if c.Demo && !IsLoopback(c.Listen) {
		fault("listen", c.Listen, "is not loopback, and demo lets anybody in with the key \"demo\"; use 127.0.0.1, or start without demo")
	}
	if c.Demo && c.Policy != "" {
		fault("policy", c.Policy, "is beside demo, which has a policy of its own; leave one of them out")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		fault("tls_cert", c.TLSCert, "and tls_key belong together; set both or none")
	}
	switch {
	case c.WebhookURL.IsSet() && !c.WebhookSecret.IsSet():
		fault("webhook_url", c.WebhookURL.String(), "is without webhook_secret: receivers could not tell alerts from what others post; set both or none")
	case c.WebhookSecret.IsSet() && !c.WebhookURL.IsSet():
		fault("webhook_secret", "", "is without webhook_url: nothing would be signed with it; set both or none")
	}
	switch {
	case c.Redis.IsSet() && !c.Postgres.IsSet():
		fault("redis", "", "is shared by brokers, but the ledger would be a SQLite file of this broker only: quotas would be counted from what one broker has seen, and Refunds at another would be lost to it; set postgres too, or leave redis out for a broker that runs alone")
	case c.Redis.IsSet() && c.SingleNode:
		fault("single_node", "true", "is beside redis, which is for brokers that share it; leave one of them out")
	case c.SingleNode && !c.Postgres.IsSet():
		fault("single_node", "true", "is without postgres; the embedded database is always for one broker, leave it out")
	case c.Postgres.IsSet() && !c.Redis.IsSet() && !c.SingleNode:
		fault("postgres", "", "is without redis: counters would live in this broker's memory, and a second broker on the same PostgreSQL would grant every limit again; set redis, or single_node if this is the only broker")
	}
	if c.LedgerRetention > 0 && !c.Postgres.IsSet() {
		fault("ledger_retention", shortDuration(c.LedgerRetention), "is without postgres; the embedded database keeps every month, leave it out")
	}
	if c.Pprof {
		switch {
		case c.OpsListen != "" && !IsLoopback(c.OpsListen):
			fault("ops_listen", c.OpsListen, "is not loopback, and pprof shows the process's memory to anybody who reaches it; use 127.0.0.1, or switch pprof off")
		case c.OpsListen == "" && !IsLoopback(c.Listen):
			fault("listen", c.Listen, "is not loopback, and pprof would be on it; set ops_listen to a loopback address, or switch pprof off")
		}
	}
	if c.OpsListen != "" && c.OpsListen == c.Listen && !hasFreePort(c.Listen) {
		fault("ops_listen", c.OpsListen, "is the address of the API; leave it empty to serve both there")
	}
	return faults
}
