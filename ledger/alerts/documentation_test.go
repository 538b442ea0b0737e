package alerts_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// documented returns the first block of docs/alerts.md in a language.
func documented(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```" + language + "\n(.*?)\n```").FindSubmatch(page)
	if block == nil {
		t.Fatalf("docs/alerts.md has no %s", language)
	}
	return string(block[1])
}

// The receiver that the documentation shows is the one that is compiled here,
// and takes a signed message of the documented form and no other.
func TestDocumentedReceiver(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(source), documented(t, "go")) {
		t.Error("the Go of docs/alerts.md is not the function in example_test.go")
	}
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	signer, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	if err := json.Compact(&body, []byte(documented(t, "json"))); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signature, err := signer.Sign("alert_1", now, body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for sent, want := range map[string]int{body.String(): http.StatusNoContent, body.String() + " ": http.StatusUnauthorized} {
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(sent))
		request.Header.Set("webhook-id", "alert_1")
		request.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
		request.Header.Set("webhook-signature", signature)
		answer := httptest.NewRecorder()
		receive(secret)(answer, request)
		if answer.Code != want {
			t.Errorf("%q: %d, want %d", sent, answer.Code, want)
		}
	}
}
