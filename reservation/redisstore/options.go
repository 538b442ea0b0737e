package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Timeouts of [Options]. Measured against a frozen server, a black hole and a
// closed port: with them a call fails within 26 ms, where go-redis's defaults
// take up to 102 s.
const (
	DefaultDialTimeout = 20 * time.Millisecond
	DefaultIOTimeout   = 25 * time.Millisecond // for reads and writes
	DefaultPoolTimeout = 10 * time.Millisecond
)

// Options reads the address of a Redis and returns tight client options for
// [Connect]. The forms are
//
//	redis://[[user]:password@]host[:port][/db]        one server
//	rediss://...                                      the same by TLS
//	redis://h1:6379,h2:6379,h3:6379?cluster=true      a Cluster, by some of its nodes
//	redis://h1:26379,h2:26379?master=name             the master that Sentinels name
//
// Further parameters, all optional: dial_timeout, read_timeout, write_timeout,
// pool_timeout (spans such as 30ms), pool_size (connections a node),
// sentinel_user and sentinel_password, skip_verify=true (TLS without checking
// the certificate). Unknown parameters are errors. No error repeats the password.
func Options(address string) (*redis.UniversalOptions, error) {
	opts := &redis.UniversalOptions{
		MaxRetries:            -1, // a retry is this package's to decide, within the caller's deadline
		DialerRetries:         1,
		DialTimeout:           DefaultDialTimeout,
		ReadTimeout:           DefaultIOTimeout,
		WriteTimeout:          DefaultIOTimeout,
		PoolTimeout:           DefaultPoolTimeout,
		ContextTimeoutEnabled: true,
		// A feature of Redis Enterprise. Left to itself the client tries it on
		// every new connection, a round trip more, and its first refusal races
		// with other connections (go-redis 9.23).
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	scheme, rest, found := strings.Cut(address, "://")
	if !found || scheme != "redis" && scheme != "rediss" {
		return nil, errors.New("redis URL: it must begin with redis:// or rediss://, as in redis://127.0.0.1:6379/0")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		var err, err2 error
		opts.Username, err = url.PathUnescape(user)
		opts.Password, err2 = url.PathUnescape(password)
		if err != nil || err2 != nil {
			return nil, errors.New("redis URL: user or password has a wrong % escape; write special characters as %XX")
		}
		authority = authority[at+1:]
	}
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("redis URL: the parameters after '?' can't be read; write them as name=value&name=value")
	}
	if err := readParams(opts, params, scheme == "rediss"); err != nil {
		return nil, err
	}
	port := "6379"
	if opts.MasterName != "" {
		port = "26379"
	}
	if opts.Addrs, err = hosts(authority, port); err != nil {
		return nil, err
	}
	if len(opts.Addrs) > 1 && opts.MasterName == "" && !opts.IsClusterMode {
		return nil, errors.New("redis URL: several hosts need cluster=true (a Cluster) or master=name (Sentinels)")
	}
	if path = strings.TrimSuffix(path, "/"); path != "" {
		opts.DB, err = strconv.Atoi(path)
		if err != nil || opts.DB < 0 {
			return nil, fmt.Errorf("redis URL: the database %q is not a number from 0", path)
		}
		if opts.DB > 0 && opts.IsClusterMode {
			return nil, errors.New("redis URL: a Cluster has only database 0; leave the path out")
		}
	}
	return opts, nil
}

func hosts(list, port string) ([]string, error) {
	var addresses []string
	for host := range strings.SplitSeq(list, ",") {
		if host == "" {
			return nil, errors.New("redis URL: a host is empty, as in redis://127.0.0.1:6379")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
			if _, _, err := net.SplitHostPort(host); err != nil {
				return nil, fmt.Errorf("redis URL: %q is not host:port", host)
			}
		}
		addresses = append(addresses, host)
	}
	return addresses, nil
}

func readParams(opts *redis.UniversalOptions, params url.Values, secure bool) error {
	skipVerify := false
	for name, values := range params {
		value := values[len(values)-1]
		var err error
		switch name {
		case "cluster":
			opts.IsClusterMode, err = strconv.ParseBool(value)
		case "master":
			opts.MasterName = value
			if value == "" {
				err = errors.New("it is empty")
			}
		case "sentinel_user":
			opts.SentinelUsername = value
		case "sentinel_password":
			opts.SentinelPassword = value
		case "dial_timeout":
			opts.DialTimeout, err = timeout(value)
		case "read_timeout":
			opts.ReadTimeout, err = timeout(value)
		case "write_timeout":
			opts.WriteTimeout, err = timeout(value)
		case "pool_timeout":
			opts.PoolTimeout, err = timeout(value)
		case "pool_size":
			opts.PoolSize, err = strconv.Atoi(value)
			if err != nil || opts.PoolSize < 1 || opts.PoolSize > 10000 {
				err = errors.New("1 to 10000 is accepted")
			}
		case "skip_verify":
			skipVerify, err = strconv.ParseBool(value)
		default:
			err = errors.New("it is not known; known are cluster, master, sentinel_user, sentinel_password, dial_timeout, read_timeout, write_timeout, pool_timeout, pool_size and skip_verify")
		}
		if err != nil {
			return fmt.Errorf("redis URL: parameter %.40q: %w", name, err)
		}
	}
	if opts.IsClusterMode && opts.MasterName != "" {
		return errors.New("redis URL: cluster and master exclude each other")
	}
	if secure {
		opts.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: skipVerify}
	} else if skipVerify {
		return errors.New("redis URL: skip_verify is for rediss:// only")
	}
	return nil
}

func timeout(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond || d > time.Minute {
		return 0, errors.New("a span from 1ms to 1m is accepted, as in 30ms")
	}
	return d, nil
}
