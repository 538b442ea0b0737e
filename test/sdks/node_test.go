package sdks

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/provider"
)

// node is a process of testdata/node/calls.mjs, which makes calls with the Node
// SDKs, one after the other.
type node struct {
	calls   io.Writer
	answers *bufio.Reader
	base    bases
	key     string
	headers map[string]string // on every call
	last    nodeOutcome
}

// nodeCall is one line to the process.
type nodeCall struct {
	Name      string            `json:"name"` // of the endpoint
	Model     string            `json:"model"`
	Prompt    string            `json:"prompt"`
	MaxOutput int               `json:"maxOutput"`
	Base      string            `json:"base"`
	Key       string            `json:"key"`
	Headers   map[string]string `json:"headers"`
}

// nodeOutcome is the line that comes back.
type nodeOutcome struct {
	Heard heard
	Tries []nodeTry
	Error *nodeError
}

// nodeTry is one request of the call, as the SDK saw its answer.
type nodeTry struct {
	Status       int
	After        float64 // milliseconds since the try before had its answer
	RetryAfterMS float64 `json:"retryAfterMs"`
	ShouldRetry  string
}

// nodeError is what the SDK throws.
type nodeError struct {
	Message string
	Kind    string // the class
	Status  int
	Code    string
}

// Error is what JavaScript prints.
func (e *nodeError) Error() string { return e.Message }

const nodeDir = "testdata/node"

// needNode fails the test unless the Node packages are those of the lock file.
func needNode(t *testing.T) {
	t.Helper()
	lock, err := os.ReadFile(filepath.Join(nodeDir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	installed, err := os.ReadFile(filepath.Join(nodeDir, "node_modules", "installed-lock.json"))
	if err != nil || string(installed) != string(lock) {
		t.Fatalf("the Node packages of %s/package-lock.json are not installed: run .ci/install, which needs a network once (%v)", nodeDir, err)
	}
}

// startNode starts the process. It ends when the test does.
func startNode(t *testing.T, base bases, key string, headers map[string]string) *node {
	t.Helper()
	needNode(t)
	process := exec.Command("node", "calls.mjs")
	process.Dir, process.Stderr = nodeDir, os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatalf("node is needed: run .ci/install: %v", err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := process.Wait(); err != nil {
			t.Errorf("calls.mjs: %v", err)
		}
	})
	return &node{calls: in, answers: bufio.NewReader(out), base: base, key: key, headers: headers}
}

// call makes the endpoint's call as the script says.
func (n *node) call(e endpoint, script provider.Script) (heard, error) {
	headers := map[string]string{provider.Header: script.String()}
	for name, value := range n.headers {
		headers[name] = value
	}
	base := n.base.openai
	if e.model == claude {
		base = n.base.anthropic
	}
	line, err := json.Marshal(nodeCall{Name: e.name, Model: e.model, Prompt: prompt, MaxOutput: maxOutput, Base: base, Key: n.key, Headers: headers})
	if err != nil {
		return heard{}, err
	}
	if _, err := n.calls.Write(append(line, '\n')); err != nil {
		return heard{}, err
	}
	answer, err := n.answers.ReadBytes('\n')
	if err != nil {
		return heard{}, fmt.Errorf("calls.mjs ended: %w", err)
	}
	n.last = nodeOutcome{}
	if err := json.Unmarshal(answer, &n.last); err != nil {
		return heard{}, err
	}
	if n.last.Error != nil {
		return n.last.Heard, n.last.Error
	}
	return n.last.Heard, nil
}

// nodeScenarios are those of the Go SDKs, but for Gemini, made by the process.
func nodeScenarios(n *node) []scenario {
	list := slices.DeleteFunc(scenarios(), func(s scenario) bool { return s.endpoint.model == flash })
	for i, s := range list {
		list[i].call = func(_ context.Context, _ clients, script provider.Script) (heard, error) {
			return n.call(s.endpoint, script)
		}
	}
	return list
}

// The Node SDKs alone understand the provider.
func TestNodeDirect(t *testing.T) {
	p, base := startProvider(t)
	for _, s := range nodeScenarios(startNode(t, base, providerKey, nil)) {
		t.Run(s.name(), func(t *testing.T) { s.run(t, clients{}, p) })
	}
}

// Through the proxy, with nothing changed but the base URL and the key, the
// ledger is what the provider bills. Neither side sees the other's key.
func TestNodeProxy(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t)
	r.runAll(t, clients{}, nodeScenarios(startNode(t, base, r.key, nil)))
	if r.Saw(r.key) {
		t.Error("the provider saw a budget key")
	}
	if total := r.settled(t); total.Cost == 0 {
		t.Error("nothing was charged")
	}
}

// A quota that is spent and a key that the broker does not know are not tried
// again, and are told as the provider tells them.
func TestNodeProxyRefusals(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t)
	n := startNode(t, base, "", nil)
	for _, refusal := range []struct {
		key, kind, code string // code is OpenAI's
		status          int
	}{
		{r.keyOf(t, "poor"), "RateLimitError", "insufficient_quota", http.StatusTooManyRequests},
		{"nobody's", "AuthenticationError", "invalid_api_key", http.StatusUnauthorized},
	} {
		n.key = refusal.key
		for _, e := range []endpoint{chatPlain, chatStream, responsesPlain, responseStream, embeddings, messagesPlain, messagesStream} {
			_, err := n.call(e, provider.Script{ID: refusal.kind})
			var told *nodeError
			if !errors.As(err, &told) || told.Status != refusal.status || told.Kind != refusal.kind || (e.model != claude && told.Code != refusal.code) {
				t.Errorf("%s: %+v, want %+v", e.name, told, refusal)
			}
			if tries := n.last.Tries; len(tries) != 1 || tries[0].ShouldRetry != "false" {
				t.Errorf("%s of %s: the tries were %+v, want one", e.name, refusal.kind, tries)
			}
		}
	}
	if calls := r.Calls(); len(calls) != 0 {
		t.Errorf("%d calls reached the provider", len(calls))
	}
}

// A rate limit is told with the time to wait, which the SDKs keep to before
// they try again, and then pass.
func TestNodeProxyRateLimit(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t)
	n := startNode(t, base, r.keyOf(t, "slow"), nil)
	for i, e := range []endpoint{chatPlain, chatStream, messagesPlain} {
		if _, err := n.call(e, provider.Script{ID: "paced"}); err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		if i == 0 {
			continue
		}
		tries := n.last.Tries
		// A timer of Node may be a millisecond early.
		if len(tries) != 2 || tries[0].Status != http.StatusTooManyRequests || tries[0].RetryAfterMS < 1 || tries[1].After < tries[0].RetryAfterMS-2 {
			t.Errorf("%s: the tries were %+v, want one refused, and one after the time that it told", e.name, tries)
		}
	}
	if got := len(r.Calls()); got != 3 {
		t.Errorf("%d calls reached the provider, want 3", got)
	}
}

// With keys that pass through, the budget key comes in a header.
func TestNodeProxyOwnKeys(t *testing.T) {
	r := start(t)
	p := broker.StartProxy(t, r.broker, r.upstreams()...)
	n := startNode(t, bases{openai: p.URL + "/v1", anthropic: p.URL}, providerKey, map[string]string{"X-Budget-Key": r.key, "X-Budget-Labels": "route=node"})
	for _, e := range []endpoint{chatPlain, chatStream, messagesPlain, messagesStream} {
		if _, err := n.call(e, provider.Script{ID: "own key", Pieces: words, Tokens: provider.Tokens{Input: 5}}); err != nil {
			t.Errorf("%s: %v", e.name, err)
		}
	}
	if got, want := r.settled(t), r.provided(); got != want || want.Cost == 0 {
		t.Errorf("the ledger has %+v, the provider bills %+v", got, want)
	}
	if r.Saw(r.key) || r.Saw("X-Budget") {
		t.Error("the provider saw a budget key or header")
	}
}

// The packages come from the public registry, whole and pinned.
func TestNodePackagesArePinned(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(nodeDir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Version, Resolved, Integrity string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	for name, p := range lock.Packages {
		if name != "" && (!strings.HasPrefix(p.Resolved, "https://registry.npmjs.org/") || !strings.HasPrefix(p.Integrity, "sha512-")) {
			t.Errorf("%s comes from %q with the hash %q", name, p.Resolved, p.Integrity)
		}
	}
	for _, name := range []string{"openai", "@anthropic-ai/sdk"} {
		if lock.Packages["node_modules/"+name].Version == "" {
			t.Errorf("%s is not locked", name)
		}
	}
}
