package app_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/quota/policystore"
	"github.com/budgetd/budgetd/test/broker"
)

// A broker with a webhook tells it of a threshold, signed, and shows it with the
// quota; its log tells nothing that lets others in.
func TestWebhook(t *testing.T) {
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 8)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if err := verifier.Verify(body, r.Header); err != nil {
			t.Error(err)
		}
		got <- string(body)
	}))
	defer hook.Close()

	out := &broker.Output{}
	c := demoConfig(t)
	c.WebhookURL, c.WebhookSecret = config.NewEndpoint(hook.URL+"/s3cret-path"), config.NewSecret(secret)
	applyPolicy(t, c, `
plans: {demo: {quotas: [{name: spend, meter: cost, amount: $1, period: month, alert_at: [80%, 90%]}]}}
accounts: {demo: {plan: demo}}
`)
	a := begin(t, c, app.Options{Out: out})
	if status, _, text := call(t, a, "demo", "Charge", `{"amounts":{"cost":800000000}}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	var body string
	select {
	case body = <-got:
	case <-time.After(20 * time.Second):
		t.Fatalf("nothing was posted: %s", out)
	}
	var message struct {
		Type string
		Data map[string]any
	}
	if err := json.Unmarshal([]byte(body), &message); err != nil || message.Type != "quota.alert" ||
		message.Data["account"] != "demo" || message.Data["percent"] != 80.0 || message.Data["used"] != "800000000" || message.Data["amount"] != "1000000000" {
		t.Errorf("%s, %v", body, err)
	}
	if _, _, text := call(t, a, "demo", "GetQuota", `{}`); !strings.Contains(text, `"alerts":[{"percent":80,`) || strings.Contains(text, `"percent":90`) {
		t.Errorf("GetQuota: %s", text)
	}
	await(t, func() bool {
		_, text := get(t, a.URL()+"/metrics")
		return strings.Contains(text, `budgetd_alerts_deliveries_total{outcome="delivered"} 1`) && strings.Contains(text, "budgetd_alerts_raised_total 1")
	})
	for _, private := range []string{"s3cret-path", secret, "MDEyMzQ1"} {
		if strings.Contains(out.String(), private) {
			t.Errorf("the log tells %q: %s", private, out)
		}
	}
}

// applyPolicy puts a policy into the store of a broker that is to be started.
func applyPolicy(t *testing.T, c config.Config, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	document, err := policyfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	stores, err := app.OpenStores(ctx, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stores.Close()
	if _, err := stores.Policies.Apply(ctx, document, policystore.Options{By: "test"}); err != nil {
		t.Fatal(err)
	}
}
