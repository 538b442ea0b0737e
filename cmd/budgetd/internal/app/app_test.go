package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

func demoConfig(t testing.TB) config.Config {
	t.Helper()
	c := config.Default()
	c.Demo, c.Listen, c.Data, c.LogFormat = true, "127.0.0.1:0", t.TempDir(), "text"
	c.Deadline = 5 * time.Second // the tests share a few cores with everything else
	return c
}

func begin(t testing.TB, c config.Config, options app.Options) *app.App {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a, err := app.Start(ctx, c, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return a
}

// call posts JSON as curl does, over a connection of its own.
func call(t testing.TB, a *app.App, key, method, body string) (status int, answer map[string]any, text string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, a.URL()+"/budget.v1.BudgetService/"+method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+key)
	request.Close = true
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		t.Fatalf("%s %s: %d %q", method, body, response.StatusCode, raw)
	}
	return response.StatusCode, answer, string(raw)
}

// The two lines that the banner prints answer as the documentation says.
func TestDemo(t *testing.T) {
	out := &broker.Output{}
	a := begin(t, demoConfig(t), app.Options{Out: out})
	for _, want := range []string{a.URL() + "/budget.v1.BudgetService/Reserve", a.URL() + "/budget.v1.BudgetService/Refund", "Bearer demo", "memory", "version 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the banner does not say %q:\n%s", want, out)
		}
	}
	status, reserve, text := call(t, a, "demo", "Reserve", `{"account":"demo","labels":{"route":"chat"},"amounts":{"tokens":4000},"lease":"60s"}`)
	if status != http.StatusOK || !strings.Contains(text, `{"limit":"tokens","meter":"tokens","amount":"4000","remaining":"6000",`) {
		t.Fatalf("Reserve: %d %s", status, text)
	}
	status, _, text = call(t, a, "demo", "Refund", fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"tokens":1600}}}`, reserve["reservationId"]))
	if status != http.StatusOK || !strings.Contains(text, `"charged":{"requests":"1","tokens":"1600"},"givenBack":{"tokens":"2400"}`) {
		t.Fatalf("Refund: %d %s", status, text)
	}
}
