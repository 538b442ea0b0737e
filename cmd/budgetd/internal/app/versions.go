package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

// versionsChannel is where PostgreSQL says which subject of the table versions
// has changed (migrations/postgres/0006_policy.sql).
const versionsChannel = "budgetd_versions"

const (
	// aliveEvery is how often a connection on which nothing comes is asked
	// whether it is one still, and aliveWithin how long it has to answer.
	aliveEvery  = 30 * time.Second
	aliveWithin = 5 * time.Second

	firstReconnect   = 100 * time.Millisecond
	longestReconnect = 10 * time.Second
)

// versionListener hears from PostgreSQL that something has changed, on a
// connection of its own. It saves waiting for the next look and nothing else:
// while it hears nothing, everybody goes on looking at intervals.
type versionListener struct {
	address config.URL
	connect *pgx.ConnConfig
	on      map[string]func() // by subject; they don't wait
	alive   time.Duration     // see aliveEvery
	log     *slog.Logger
}

// listenFor returns a listener that wakes the watcher of the policy and has API
// keys asked for again.
func (a *App) listenFor(stores *Stores, policy chan<- struct{}) *versionListener {
	return &versionListener{
		address: a.config.Postgres,
		connect: stores.pool.Config().ConnConfig,
		on: map[string]func(){
			"policy": func() {
				select {
				case policy <- struct{}{}:
				default: // it is to look already
				}
			},
			"api_keys": stores.Keys.Recheck,
		},
		alive: aliveEvery,
		log:   a.log,
	}
}

// run listens until ctx ends.
func (l *versionListener) run(ctx context.Context) {
	growing := backoff.NewExponentialBackOff()
	growing.InitialInterval, growing.MaxInterval = firstReconnect, longestReconnect
	lost := false
	for {
		err := l.listen(ctx, func() {
			growing.Reset()
			if lost {
				lost = false
				l.log.Info("changes of the policy and of API keys are heard again")
			}
			// What changed meanwhile was not heard.
			for _, changed := range l.on {
				changed()
			}
		})
		if ctx.Err() != nil {
			return
		}
		if !lost {
			lost = true
			l.log.Warn("changes of the policy and of API keys are not heard at once; this broker looks for them each second", "error", postgresProblem(l.address, err))
		}
		wait := time.NewTimer(growing.NextBackOff())
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
	}
}

// listen passes on what it hears until the connection fails; ready is called
// once it listens.
func (l *versionListener) listen(ctx context.Context, ready func()) error {
	conn, err := pgx.ConnectConfig(ctx, l.connect)
	if err != nil {
		return err
	}
	defer func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), aliveWithin)
		defer cancel()
		_ = conn.Close(within) // it is of no use any more
	}()
	within, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	if _, err := conn.Exec(within, "LISTEN "+versionsChannel); err != nil {
		return err
	}
	ready()
	for {
		subject, err := l.next(ctx, conn)
		if err != nil {
			return err
		}
		if changed := l.on[subject]; changed != nil {
			changed()
		}
	}
}

// next waits for one notification and returns its subject, or "" when none came
// and the connection still answers.
func (l *versionListener) next(ctx context.Context, conn *pgx.Conn) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, l.alive)
	defer cancel()
	notification, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		return notification.Payload, nil
	case ctx.Err() != nil || conn.IsClosed() || !errors.Is(err, context.DeadlineExceeded):
		return "", err
	}
	asking, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	return "", conn.Ping(asking)
}
