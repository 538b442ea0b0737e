package reservation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

const (
	// feedInterval is how often an Auditor asks what changed in the ledger.
	feedInterval = time.Second
	// feedPage is how many rows it takes at a time.
	feedPage = 1000
	// feedWorkers is how many accounts are pushed to at once.
	feedWorkers = 8
	// maxUntold bounds the rows that wait for an engine that is away. What is
	// beyond is found by the walk.
	maxUntold = 10_000
)

// feed brings to the engine what changed in the ledger: by other brokers that
// died before they had confirmed it, by Refunds that went around a silent
// engine, by adjustments.
type feed struct {
	mark   string
	untold map[ledger.UsageKey]ledger.Usage // the engine did not take them yet
}

// follow brings changes to the engine every second, until ctx ends.
func (a *Auditor) follow(ctx context.Context) {
	read := trouble{logger: a.broker.config.Logger, what: "following the ledger's changes"}
	for {
		more, err := a.Follow(ctx)
		if read.note(ctx, err); err != nil {
			a.broker.metrics.audit.failed.Inc()
		}
		if err == nil && more && ctx.Err() == nil {
			continue
		}
		if !pause(ctx, feedInterval) {
			return
		}
	}
}

// Follow does one round of what Run does every second: it takes a page of what
// changed in the ledger since the round before, lets the observer hear of it,
// and brings to the engine what this broker did not tell it yet. The first round
// finds out where to start. It reports whether there is more already. What the
// engine does not take is tried again at the next round.
//
// One round at a time: not to be called beside Run.
func (a *Auditor) Follow(ctx context.Context) (more bool, err error) {
	b, f := a.broker, &a.feed
	within, cancel := context.WithTimeout(ctx, b.config.LedgerDeadline)
	page, err := b.Ledger.Changes(within, f.mark, feedPage)
	cancel()
	if errors.Is(err, ledger.ErrOldMark) {
		f.mark = "" // what was missed is found by the walk
	}
	if err == nil {
		f.mark = page.Mark
		b.observe(page.Usage)
		for _, row := range page.Usage {
			f.add(b, row)
		}
	}
	f.tell(ctx, b)
	return page.More, err
}

// add notes a row for the engine, unless it was told of it.
func (f *feed) add(b *Broker, row ledger.Usage) {
	if row.Limit == "" || b.told.has(row.UsageKey, row.Version) {
		return
	}
	if _, waits := f.untold[row.UsageKey]; !waits && len(f.untold) >= maxUntold {
		return
	}
	f.untold[row.UsageKey] = row
}

// tell pushes what the engine was not told of. What fails waits for the next
// step.
func (f *feed) tell(ctx context.Context, b *Broker) {
	if len(f.untold) == 0 {
		return
	}
	byAccount := map[string][]ledger.Usage{}
	for _, row := range f.untold {
		byAccount[row.Account] = append(byAccount[row.Account], row)
	}
	workers := errgroup.Group{}
	workers.SetLimit(feedWorkers)
	var mu sync.Mutex
	for _, account := range slices.Sorted(maps.Keys(byAccount)) {
		workers.Go(func() error {
			for rows := range slices.Chunk(byAccount[account], MaxPush) {
				if b.tell(ctx, account, rows) != nil {
					return nil
				}
				mu.Lock()
				for _, row := range rows {
					delete(f.untold, row.UsageKey)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	_ = workers.Wait()
}

// tell has the engine take over usage rows of one account. Rows whose period is
// none of the account's are left out: its time zone was changed, and what still
// takes part in them is confirmed with its reservation.
func (b *Broker) tell(ctx context.Context, account string, rows []ledger.Usage) error {
	known := b.Policies.Current().Accounts[account]
	var usage []CounterUsage
	for _, row := range rows {
		period, err := quota.PeriodFromKey(row.Period, known.TimeZone, known.AnchorDay)
		if err == nil {
			usage = append(usage, CounterUsage{Counter: Counter{Limit: row.Limit, Scope: row.Scope}, Period: period, Used: countable(row.Used), Version: row.Version})
		}
	}
	if err := b.pushUsage(ctx, account, usage); err != nil {
		return err
	}
	b.told.note(rows)
	return nil
}

// toldVersions remembers the newest versions of usage rows that this broker told
// the engine, so that it does not tell them again.
type toldVersions struct {
	mu          sync.Mutex
	young, aged map[ledger.UsageKey]int64
}

// maxTold bounds each of the two generations of a toldVersions.
const maxTold = 20_000

func newToldVersions() *toldVersions { return &toldVersions{young: map[ledger.UsageKey]int64{}} }

// note remembers rows that the engine was told.
func (t *toldVersions) note(rows []ledger.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, row := range rows {
		if row.Limit == "" || t.version(row.UsageKey) >= row.Version {
			continue
		}
		if len(t.young) >= maxTold {
			t.young, t.aged = map[ledger.UsageKey]int64{}, t.young
		}
		t.young[row.UsageKey] = row.Version
	}
}

// has says whether the engine was told of that version or a newer one.
func (t *toldVersions) has(key ledger.UsageKey, version int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version(key) >= version
}

// forget drops everything: the engine has lost what it was told.
func (t *toldVersions) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.young, t.aged = map[ledger.UsageKey]int64{}, nil
}

func (t *toldVersions) version(key ledger.UsageKey) int64 {
	return max(t.young[key], t.aged[key])
}
