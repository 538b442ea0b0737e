package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

func loadProxy(t *testing.T, arguments []string, pairs ...string) (config.Proxy, error) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddProxyFlags(set)
	if err := set.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return config.LoadProxy(set, env(t, pairs...))
}

// Upstreams add to those that are known, and keys come from flags, files and the
// environment. Nothing shows a key.
func TestProxyUpstreamsAndKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("SECRET1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadProxy(t, []string{"--upstream", "groq=https://api.groq.com/openai/", "--upstream", "gemini="},
		"BUDGETD_PROXY_PROVIDER_KEY", "openai=@"+file+" groq=SECRET2", "BUDGETD_PROXY_BUDGET_KEY", "SECRET3")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Upstreams) != 3 || c.Upstreams["groq"].String() != "https://api.groq.com/openai" || c.Upstreams["openai"] == nil || c.Upstreams["gemini"] != nil {
		t.Errorf("upstreams %v", c.Upstreams)
	}
	if c.ProviderKeys["openai"].Reveal() != "SECRET1" || c.ProviderKeys["groq"].Reveal() != "SECRET2" || c.BudgetKey.Reveal() != "SECRET3" {
		t.Error("a key is not what was given")
	}
	if text := fmt.Sprintf("%+v %#v", c, c); strings.Contains(text, "SECRET") {
		t.Errorf("a key is shown: %s", text)
	}
}

// What can't be meant is refused, with its setting, and without a key.
func TestProxyFaults(t *testing.T) {
	for _, bad := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"--listen", "nowhere"}, `listen: "nowhere" (from --listen) is not host:port`},
		{[]string{"--broker", "budgetd.internal:8080"}, "broker: "},
		{[]string{"--upstream", "https://api.openai.com"}, "upstream: "},
		{[]string{"--upstream", "v1=https://x"}, "upstream: "},
		{[]string{"--upstream", "x=ftp://x"}, "upstream: "},
		{[]string{"--upstream", "openai= anthropic= gemini="}, "upstream: "},
		{[]string{"--provider-key", "groq=SECRET"}, "provider_key: (from --provider-key) has a key for \"groq\""},
		{[]string{"--provider-key", "SECRET"}, "provider_key: "},
		{[]string{"--provider-key", "openai=@/none"}, "provider_key: "},
		{[]string{"--provider-key", "openai=SECRET\x01"}, "provider_key: "},
		{[]string{"--listen", "0.0.0.0:8081", "--budget-key", "SECRET"}, "budget_key: "},
		{[]string{"--tls-cert", "c.pem"}, "tls_cert: "},
		{[]string{"--ops-listen", "127.0.0.1:8081"}, "ops_listen: "},
		{[]string{"--first-byte-timeout", "0s"}, "first_byte_timeout: "},
	} {
		_, err := loadProxy(t, bad.arguments)
		var fault *config.Error
		if !errors.As(err, &fault) || !strings.HasPrefix(err.Error(), bad.want) {
			t.Errorf("%q: %v, want %s...", bad.arguments, err, bad.want)
		} else if strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: the error tells the key: %v", bad.arguments, err)
		}
	}
}
