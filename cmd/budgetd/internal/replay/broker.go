package replay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

const (
	// startWithin bounds the start of a broker, migrations included.
	startWithin = time.Minute
	// stopWithin bounds its graceful stop, before it is killed.
	stopWithin = 30 * time.Second
)

// unlimited is as many slots and tokens as a limit can have: it never refuses,
// and still counts.
const unlimited = quota.MaxAmount

// BrokerConfig is a broker of a replay's own.
type BrokerConfig struct {
	Program  string // budgetd itself
	Redis    string // URL; empty: the broker's memory
	Postgres string // URL; empty: an embedded database in a temporary directory
	Run      string // names the run's account, plan and Redis keys
	Bucket   *quota.Limit
	Slots    int64 // 0: counted and not limited
	Now      time.Time
}

// account is the name of the run's account and plan.
func (c BrokerConfig) account() string { return "replay-" + c.Run }

// policy is the run's plan: what was asked for, and limits that never refuse
// and whose counters can be compared.
func (c BrokerConfig) policy() *policyfile.Document {
	slots := unlimited
	if c.Slots > 0 {
		slots = quota.Amount(c.Slots)
	}
	limits := []quota.Limit{
		{Name: "slots", Meter: quota.MeterInFlight, Kind: quota.KindSlots, Max: slots},
		{Name: "tokens-month", Meter: quota.MeterTokens, Kind: quota.KindQuota, Max: unlimited, Period: quota.PeriodMonth},
		{Name: "requests-month", Meter: quota.MeterRequests, Kind: quota.KindQuota, Max: unlimited, Period: quota.PeriodMonth},
	}
	if c.Bucket != nil {
		limits = append([]quota.Limit{*c.Bucket}, limits...)
	}
	// The account's month begins half a month from now, so that none ends in
	// the middle of a run.
	anchor := min(c.Now.UTC().AddDate(0, 0, 15).Day(), 28)
	return &policyfile.Document{
		Plans:    []quota.Plan{{Name: c.account(), Limits: limits}},
		Accounts: []quota.Account{{Name: c.account(), Plan: c.account(), AnchorDay: anchor}},
	}
}

// Broker is a broker of a replay's own, in a process of its own.
type Broker struct {
	Server, Key, Account string

	config   BrokerConfig
	children *spawner
	settings string
	keyID    string
	dir      string
	cmd      *exec.Cmd
	log      *brokerLog
	exited   chan struct{}
	stop     sync.Once
	err      error
}

// startBroker starts a broker on a free loopback port with an account of the
// run's own and a key for it.
func startBroker(ctx context.Context, children *spawner, c BrokerConfig) (_ *Broker, err error) {
	b := &Broker{config: c, children: children, Account: c.account(), exited: make(chan struct{})}
	if b.dir, err = os.MkdirTemp("", "budgetd-replay-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Stop())
		}
	}()
	if b.settings, err = b.writeSettings(); err != nil {
		return nil, err
	}
	b.log = &brokerLog{serving: make(chan string, 1)}
	b.cmd = exec.Command(c.Program, "serve", "--config", b.settings)
	b.cmd.Env = brokerEnvironment()
	stderr, err := b.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := children.start(b.cmd); err != nil {
		b.cmd = nil
		return nil, fmt.Errorf("start a broker: %w", err)
	}
	go func() {
		b.log.read(stderr)
		_ = b.cmd.Wait() // how it ended, ProcessState says
		close(b.exited)
	}()
	timer := time.NewTimer(startWithin)
	defer timer.Stop()
	select {
	case b.Server = <-b.log.serving:
	case <-b.exited:
		return nil, fmt.Errorf("the broker did not start (%v):\n%s", b.cmd.ProcessState, b.log.tail())
	case <-timer.C:
		return nil, fmt.Errorf("the broker did not start within %v:\n%s", startWithin, b.log.tail())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return b, b.createKey(ctx)
}

// writeSettings writes the policy and the settings. Addresses with passwords
// are in a file that only this user can read, not in arguments that everybody
// can.
func (b *Broker) writeSettings() (string, error) {
	policy, err := policyfile.Marshal(b.config.policy())
	if err != nil {
		return "", err
	}
	policyPath := filepath.Join(b.dir, "policy.yaml")
	if err := os.WriteFile(policyPath, policy, 0o600); err != nil {
		return "", err
	}
	settings := map[string]any{
		"listen": "127.0.0.1:0", "policy": policyPath, "data": filepath.Join(b.dir, "data"), "log_format": "json",
	}
	if b.config.Redis != "" {
		settings["redis"] = b.config.Redis
		settings["key_prefix"] = b.Account + ":"
	}
	if b.config.Postgres != "" {
		settings["postgres"] = b.config.Postgres
		// The account is of this run alone, so no other broker counts it.
		settings["single_node"] = b.config.Redis == ""
	}
	text, err := json.Marshal(settings) // JSON is YAML
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.dir, "settings.yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// brokerEnvironment is this process's environment without settings for a
// broker: the run's broker has its own.
func brokerEnvironment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "BUDGETD_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// createKey makes a key for the account, as an operator would.
func (b *Broker) createKey(ctx context.Context) error {
	text, err := b.run(ctx, "key", "create", "replay", "--account", b.Account, "--expires-in", "48h", "--config", b.settings, "--json")
	if err != nil {
		return err
	}
	var key struct{ ID, Key string }
	if err := json.Unmarshal(text, &key); err != nil || key.Key == "" {
		return errors.New("budgetd key create did not print a key")
	}
	b.Key, b.keyID = key.Key, key.ID
	return nil
}

// run runs another command of the program.
func (b *Broker) run(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.config.Program, args...)
	cmd.Env = brokerEnvironment()
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := b.children.start(cmd); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("budgetd %s: %w: %s", strings.Join(args[:2], " "), err, strings.TrimSpace(problems.String()))
	}
	return out.Bytes(), nil
}

// Stop ends the broker gracefully and removes its directory. The error says
// that it could not, or that the broker had ended by itself or badly.
func (b *Broker) Stop() error {
	b.stop.Do(func() {
		if b.keyID != "" && b.config.Postgres != "" {
			// Elsewhere the key goes with the database.
			_, b.err = b.run(context.Background(), "key", "revoke", b.keyID, "--config", b.settings)
		}
		if b.cmd != nil {
			b.err = errors.Join(b.err, b.end())
		}
		b.err = errors.Join(b.err, os.RemoveAll(b.dir))
	})
	return b.err
}

func (b *Broker) end() error {
	select {
	case <-b.exited:
		if b.Key == "" {
			return nil // it never started, which startBroker reports
		}
		return fmt.Errorf("the broker ended by itself (%v):\n%s", b.cmd.ProcessState, b.log.tail())
	default:
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-b.exited:
	case <-timer.C:
		_ = b.cmd.Process.Kill()
		<-b.exited
		return fmt.Errorf("the broker did not stop within %v and was killed", stopWithin)
	}
	if !b.cmd.ProcessState.Success() {
		return fmt.Errorf("the broker stopped badly (%v):\n%s", b.cmd.ProcessState, b.log.tail())
	}
	return nil
}

// brokerLog reads a broker's log: it learns the address and keeps the last
// lines for when something goes wrong.
type brokerLog struct {
	serving chan string
	mu      sync.Mutex
	last    []string
}

const keptLogLines = 8

func (l *brokerLog) read(in io.Reader) {
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		l.line(bytes.TrimSpace(line))
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (l *brokerLog) line(text []byte) {
	if len(text) == 0 {
		return
	}
	var record struct{ Msg, URL string }
	if json.Unmarshal(text, &record) == nil && record.Msg == "serving" {
		select {
		case l.serving <- record.URL:
		default:
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, string(text))
	l.last = l.last[max(0, len(l.last)-keptLogLines):]
}

func (l *brokerLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "\n")
}
