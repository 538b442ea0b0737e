package app

import (
	"context"
	"net/netip"
	"net/url"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/ledger/alerts"
)

// alerting raises alerts of quotas and, with a webhook, tells it.
type alerting struct {
	store     *alerts.Store
	watcher   *alerts.Watcher
	deliverer *alerts.Deliverer // nil without a webhook
}

func (a *App) openAlerts(stores *Stores, policies alerts.Policies, clock func() time.Time) (*alerting, error) {
	opened := &alerting{store: alerts.Open(stores.DB, alerts.Config{RowLocks: stores.pool != nil})}
	watching := alerts.WatcherConfig{Policies: policies, Store: opened.store, Clock: clock, Registerer: a.registry, Log: a.log}
	if a.config.WebhookURL.IsSet() {
		secrets, err := alerts.ParseSecrets(a.config.WebhookSecret.Reveal())
		if err != nil {
			return nil, &config.Error{Setting: "webhook_secret", Problem: err.Error()}
		}
		opened.deliverer, err = alerts.NewDeliverer(alerts.DelivererConfig{
			Store: opened.store, URL: a.config.WebhookURL.Reveal(), Secrets: secrets,
			Clock: clock, Registerer: a.registry, Log: a.log,
		})
		if err != nil {
			return nil, &config.Error{Setting: "webhook_url", Problem: err.Error()}
		}
		watching.Deliver, watching.Raised = true, opened.deliverer.Wake
		if inClear(a.config.WebhookURL.Reveal()) {
			a.log.Warn("alerts travel without TLS: give webhook_url an https:// address")
		}
	}
	opened.watcher = alerts.NewWatcher(watching)
	return opened, nil
}

// inClear says whether what is posted to the address can be read on its way to
// another machine.
func inClear(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "https" || u.Hostname() == "localhost" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err != nil || !ip.Unmap().IsLoopback()
}

// runAlerts starts what goes on until background ends.
func (a *App) runAlerts(background context.Context, l *alerting) {
	a.goOn(func() { l.watcher.Run(background) })
	if l.deliverer != nil {
		a.goOn(func() { l.deliverer.Run(background) })
	}
}
