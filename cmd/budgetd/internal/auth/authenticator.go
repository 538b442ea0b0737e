package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/quota"
)

// DemoKey is the key of "budgetd serve --demo". It works only there, and only
// for peers on the same machine.
const DemoKey = "demo"

// maxCredentialBytes bounds what is looked at of an Authorization header.
const maxCredentialBytes = 512

// ErrNoKey says that the call carries no API key.
var ErrNoKey = errors.New("no API key")

// Config is who may call what.
type Config struct {
	// Keys knows the API keys. Required unless Demo is set.
	Keys *Keys
	// Demo lets DemoKey in, as a caller for the account quota.DemoAccount.
	Demo bool
	// Exempt lists what needs no key: whole services as "/grpc.health.v1.Health/"
	// or single procedures as "/grpc.health.v1.Health/Check".
	Exempt []string
	// AdminOnly lists, in the same form, what needs an admin key.
	AdminOnly []string
	// Registerer takes the metrics; nil: they are not exported.
	Registerer prometheus.Registerer
}

// Authenticator lets calls in. It is safe for concurrent use.
type Authenticator struct {
	config Config
	calls  *prometheus.CounterVec
}

// New returns an authenticator. The error says what is wrong with the config,
// or that the metrics are registered already.
func New(config Config) (*Authenticator, error) {
	if config.Keys == nil && !config.Demo {
		return nil, errors.New("Keys: none are given, so no call could be let in")
	}
	for field, paths := range map[string][]string{"Exempt": config.Exempt, "AdminOnly": config.AdminOnly} {
		for _, path := range paths {
			// "/" alone would be every procedure there is.
			if !strings.HasPrefix(path, "/") || strings.Count(path, "/") != 2 || strings.HasPrefix(path, "//") {
				return nil, fmt.Errorf("%s: %q is neither a service (/package.Service/) nor a procedure (/package.Service/Method)", field, path)
			}
		}
	}
	calls, err := newCallMetrics(config.Registerer)
	if err != nil {
		return nil, err
	}
	return &Authenticator{config: config, calls: calls}, nil
}

// Authenticate returns whose key the header carries, as in
//
//	Authorization: Bearer bk_...
//
// for a call that comes from the peer address, "host:port". The error is or
// wraps [ErrNoKey] or one of those of [Keys.Authenticate].
func (a *Authenticator) Authenticate(ctx context.Context, header http.Header, peer string) (Principal, error) {
	key, err := bearer(header)
	if err != nil {
		return Principal{}, err
	}
	if a.config.Demo && subtle.ConstantTimeCompare([]byte(key), []byte(DemoKey)) == 1 && isLoopback(peer) {
		return Principal{KeyID: DemoKey, Name: DemoKey, Role: RoleCaller, Accounts: []string{quota.DemoAccount}}, nil
	}
	if a.config.Keys == nil {
		return Principal{}, ErrInvalidKey
	}
	return a.config.Keys.Authenticate(ctx, key)
}

// bearer returns the credential of the header.
func bearer(header http.Header) (string, error) {
	values := header.Values("Authorization")
	if len(values) == 0 {
		return "", ErrNoKey
	}
	// With two, a proxy before us may have looked at the other one.
	if len(values) > 1 || len(values[0]) > maxCredentialBytes {
		return "", ErrInvalidKey
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", fmt.Errorf("%w: the Authorization header is not of the scheme Bearer", ErrNoKey)
	}
	key = strings.Trim(key, " ")
	if key == "" {
		return "", ErrNoKey
	}
	return key, nil
}

// isLoopback says whether the address, with or without a port, is this
// machine's own.
func isLoopback(address string) bool {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	ip, err := netip.ParseAddr(strings.Trim(address, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// covers says whether a list of services and procedures names the procedure.
func covers(paths []string, procedure string) bool {
	for _, path := range paths {
		if procedure == path || strings.HasSuffix(path, "/") && strings.HasPrefix(procedure, path) {
			return true
		}
	}
	return false
}
