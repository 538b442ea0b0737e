package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/reservation"
)

// retryPause is how long a call waits before its one retry where the server
// said that it can't serve yet.
const retryPause = 3 * time.Millisecond

// run calls a script on the node that serves the first key, and returns its
// packed answer. A failure that surely ran nothing is retried once within ctx;
// whatever else goes wrong comes back as an error that wraps
// reservation.ErrUnavailable or reservation.ErrNewerLayout, or as a plain error
// where repeating can't help.
func (s *Store) run(ctx context.Context, what script, keys []string, arg []byte) (*reply, error) {
	start := time.Now()
	text, err := s.attempts(ctx, what, keys, arg)
	s.metrics.latency[what].Observe(time.Since(start).Seconds())
	if err != nil {
		kind, err := explain(what, err)
		s.metrics.failed(what, kind)
		return nil, err
	}
	return &reply{rest: []byte(text)}, nil
}

func (s *Store) attempts(ctx context.Context, what script, keys []string, arg []byte) (string, error) {
	n, err := s.nodeFor(ctx, keys[0])
	if err != nil {
		return "", err
	}
	text, err := s.attempt(ctx, n, what, keys, arg, false)
	if err == nil {
		return text, nil
	}
	again := verdictOn(err)
	if again == dontRetry || ctx.Err() != nil {
		return "", err
	}
	ask := false
	switch again {
	case retryElsewhere:
		address, moved := redis.IsMovedError(err)
		if !moved {
			address, ask = redis.IsAskError(err)
		}
		if moved {
			s.cluster.ReloadState(ctx)
		}
		if n = s.nodeAt(ctx, address); n == nil {
			return "", err // the client learns of the node in the background
		}
	case retryLater:
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return "", err
		}
	}
	if !ask && s.cluster != nil && again != retryElsewhere {
		if n, err = s.nodeFor(ctx, keys[0]); err != nil {
			return "", err
		}
	}
	return s.attempt(ctx, n, what, keys, arg, ask)
}

// attempt runs a script once.
func (s *Store) attempt(ctx context.Context, n *node, what script, keys []string, arg []byte, asking bool) (string, error) {
	l, err := s.scripts(ctx, n)
	if err != nil {
		return "", notRun{err}
	}
	client := n.client
	if what == scriptAudit {
		client = client.WithTimeout(auditTimeout)
	}
	var text string
	if asking {
		var cmd *redis.Cmd
		_, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Do(ctx, "ASKING")
			cmd = p.EvalSha(ctx, l.digests[what], keys, arg)
			return nil
		})
		if err == nil {
			text, err = cmd.Text()
		}
	} else {
		text, err = client.EvalSha(ctx, l.digests[what], keys, arg).Text()
	}
	if err == nil {
		return text, nil
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") || redis.IsReadOnlyError(err) || redis.IsLoadingError(err) || errors.Is(err, errIncarnation) {
		n.forget(l)
	}
	return "", err
}

// auditTimeout bounds an Audit, unless its context does: it may take longer than
// the calls for which the client's timeouts are made.
const auditTimeout = 2 * time.Second

// notRun marks an error before anything was sent.
type notRun struct{ error }

func (e notRun) Unwrap() error { return e.error }

type retry int

const (
	dontRetry retry = iota
	retryNow
	retryLater
	retryElsewhere
)

// verdictOn says whether a failed call may be repeated: only when it certainly
// did nothing.
func verdictOn(err error) retry {
	if _, moved := redis.IsMovedError(err); moved {
		return retryElsewhere
	}
	if _, ask := redis.IsAskError(err); ask {
		return retryElsewhere
	}
	switch {
	case redis.HasErrorPrefix(err, "NOSCRIPT"), errors.Is(err, errIncarnation), redis.IsReadOnlyError(err):
		return retryNow
	case redis.IsLoadingError(err), redis.IsTryAgainError(err), redis.IsClusterDownError(err), redis.IsMasterDownError(err):
		return retryLater
	}
	if op := new(net.OpError); errors.As(err, &op) && op.Op == "dial" {
		return retryNow
	}
	return dontRetry
}

// explain turns an error into what the contract says, and names its kind for
// the metrics.
func explain(what script, err error) (kind string, _ error) {
	unavailable := func(kind string) (string, error) {
		return kind, fmt.Errorf("%w: redis script %s: %w", reservation.ErrUnavailable, what, err)
	}
	var network net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unavailable("deadline")
	case redis.HasErrorPrefix(err, "LAYOUT"):
		return "layout", fmt.Errorf("%w: redis script %s found %s", reservation.ErrNewerLayout, what, strings.ToLower(firstWords(err.Error(), 2)))
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		return unavailable("noscript")
	case redis.IsReadOnlyError(err):
		return unavailable("readonly")
	case redis.IsLoadingError(err):
		return unavailable("loading")
	case redis.IsClusterDownError(err), redis.IsMasterDownError(err), redis.IsTryAgainError(err):
		return unavailable("cluster")
	case redis.IsOOMError(err), redis.IsNoReplicasError(err), redis.HasErrorPrefix(err, "MISCONF"), redis.HasErrorPrefix(err, "BUSY"), redis.IsMaxClientsError(err):
		return unavailable("refused")
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return unavailable("permission")
	case errors.Is(err, errIncarnation):
		return unavailable("incarnation")
	}
	if _, moved := redis.IsMovedError(err); moved {
		return unavailable("moved")
	}
	if _, ask := redis.IsAskError(err); ask {
		return unavailable("moved")
	}
	if errors.As(err, &network) && network.Timeout() {
		return unavailable("timeout")
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		if strings.Contains(err.Error(), "non local key") {
			return unavailable("moved") // a slot that is being migrated
		}
		return "script", fmt.Errorf("redis script %s failed: %w", what, err)
	}
	return unavailable("connection")
}

func firstWords(text string, n int) string {
	words := strings.Fields(text)
	return strings.Join(words[:min(n, len(words))], " ")
}
