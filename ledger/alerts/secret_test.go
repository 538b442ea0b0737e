package alerts

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

func TestParseSecrets(t *testing.T) {
	plain := "abcdefghijklmnopqrstuvwx" // 24 bytes
	whsec := "whsec_" + base64.StdEncoding.EncodeToString(testSecret)
	for text, want := range map[string][][]byte{
		"":                         nil,
		"  ":                       nil,
		plain:                      {[]byte(plain)},
		whsec:                      {testSecret},
		whsec + " " + plain:        {testSecret, []byte(plain)},
		" " + plain + "  " + plain: {[]byte(plain), []byte(plain)},
	} {
		got, err := ParseSecrets(text)
		if err != nil || len(got) != len(want) {
			t.Errorf("%q: %q, %v", text, got, err)
			continue
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%q: %q, want %q", text, got, want)
			}
		}
	}
	for text, want := range map[string]string{
		plain[1:]:                         "has a secret of 23 bytes; use 24 to 256",
		strings.Repeat("s3cret", 50):      "has a secret of 300 bytes; use 24 to 256",
		"whsec_c3Mzc2VjcmV0czNjcmV0":      "has a secret of 15 bytes",
		"whsec_s3cret!s3cret!s3cret!":     "not base64",
		plain + " " + plain + " " + plain: "has 3 secrets; use one, or two",
	} {
		_, err := ParseSecrets(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}

func TestParseURL(t *testing.T) {
	for _, good := range []string{"https://alerts.example.com/budgetd", "http://127.0.0.1:9000", "https://user:pw@h/x?a=b", "https://[::1]:8443/"} {
		if _, err := ParseURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "alerts.example.com/s3cret", "ftp://h/s3cret", "https:///s3cret", "https://h/s3cret#x", "https://h/%zzs3cret", "https://:443/s3cret", "https://h/" + strings.Repeat("s3cret", 500)} {
		_, err := ParseURL(bad)
		if err == nil {
			t.Errorf("%.50s is accepted", bad)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error tells the address: %v", err)
		}
	}
	if _, err := NewDeliverer(DelivererConfig{URL: "nowhere", Secrets: [][]byte{testSecret}}); err == nil {
		t.Error("a deliverer to nowhere")
	}
	if _, err := NewDeliverer(DelivererConfig{URL: "https://h"}); err == nil {
		t.Error("a deliverer without a secret")
	}
}

// Whatever is configured: no panic, and what is accepted is within the bounds.
func FuzzParseSecrets(f *testing.F) {
	f.Add("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw abcdefghijklmnopqrstuvwx")
	f.Fuzz(func(t *testing.T, text string) {
		secrets, err := ParseSecrets(text)
		if err != nil {
			return
		}
		if len(secrets) > MaxSecrets {
			t.Errorf("%d secrets", len(secrets))
		}
		for _, s := range secrets {
			if len(s) < MinSecretBytes || len(s) > MaxSecretBytes {
				t.Errorf("%d bytes", len(s))
			}
		}
	})
}
