package spool

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/ledger"
)

// Defaults and bounds of [Config].
const (
	DefaultMaxBytes = 1 << 30
	MinMaxBytes     = 1 << 20
	DefaultPatience = time.Second
	MinPatience     = 10 * time.Millisecond
	MaxPatience     = time.Minute
)

// Config is how a [Spool] works.
type Config struct {
	// Next is the ledger behind: a group committer in front of the engine. It
	// stays the caller's, who closes it after the spool.
	Next ledger.Ledger
	// Path of the file, made if it is missing, readable by its owner only. It
	// must be on a local disk that outlives the process, and no other Spool may
	// use it: the caller holds a lock for that.
	Path string
	// MaxBytes bounds the file, at least MinMaxBytes; 0 is DefaultMaxBytes. A
	// write-ahead log of a few MiB and a reserve of 4 MiB, beside the file, come
	// on top.
	MaxBytes int64
	// Patience is how long an Append waits for the ledger before it goes to the
	// file, MinPatience to MaxPatience; 0 is DefaultPatience. It is never more
	// than half of what is left of the caller's deadline; where that is less
	// than MinPatience, the call is answered by the ledger or fails.
	Patience time.Duration
	// Drained hears of closings that left the file because the ledger has
	// decided. It is called by one goroutine at a time and must not block. After
	// a crash it may not hear of some. Nil: nobody hears.
	Drained func([]ledger.Drained)
	// Now gives the instants at which closings were spooled; nil is time.Now.
	Now func() time.Time
	// Metrics is where the spool registers its metrics; nil is nowhere.
	Metrics prometheus.Registerer
	// Logger takes what an operator must know; nil is slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.Drained == nil {
		c.Drained = func([]ledger.Drained) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Next == nil:
		return c, errors.New("spool: next: is missing; give the ledger that is spooled for")
	case c.Path == "":
		return c, errors.New("spool: path: is empty; name a file on a local disk")
	case c.MaxBytes < MinMaxBytes:
		return c, fmt.Errorf("spool: max_bytes: %d is less than %d", c.MaxBytes, MinMaxBytes)
	case c.Patience < MinPatience || c.Patience > MaxPatience:
		return c, fmt.Errorf("spool: patience: %s is not between %s and %s", c.Patience, MinPatience, MaxPatience)
	}
	return c, nil
}
