package rpc

import (
	"strings"
	"testing"
)

func TestLabelValueHashesCredentials(t *testing.T) {
	for _, secret := range []struct{ name, value string }{
		{"authorization", "opaque"}, {"x-api-key", "opaque"}, {"x_goog_api_key", "opaque"}, {"cookie", "a=b"},
		{"user", "Bearer opaque"}, {"user", " basic b3BhcXVl"}, {"user", "bk_opaque"}, {"user", "sk-ant-opaque"}, {"user", "AIzaSyOpaque"},
	} {
		got := LabelValue(secret.name, secret.value)
		if !strings.HasPrefix(got, "sha256:") || got != LabelValue(secret.name, secret.value) || got == LabelValue(secret.name, secret.value+"2") {
			t.Errorf("%s %q is the label %q", secret.name, secret.value, got)
		}
	}
	for _, plain := range []struct{ name, value string }{
		{"user", "7"}, {"team", "basic"}, {"route", "token"}, {"key", "ci"}, {"token_class", "input"}, {"authorization", ""}, {"path", "/v1/chat"},
	} {
		if got := LabelValue(plain.name, plain.value); got != plain.value {
			t.Errorf("%s %q is the label %q", plain.name, plain.value, got)
		}
	}
}
