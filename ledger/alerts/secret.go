package alerts

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Bounds of what a webhook is configured with.
const (
	MinSecretBytes = 24 // of each secret, decoded
	MaxSecretBytes = 256
	MaxSecrets     = 2
	MaxURLBytes    = 2048
)

// secretPrefix marks a secret in the base64 form of the Standard Webhooks
// convention.
const secretPrefix = "whsec_"

// ParseSecrets reads one or two secrets with a space between them: "whsec_" and
// base64, or the bytes themselves. What is sent is signed with each, so that a
// receiver can go over from the one to the other. "" is none. The error never
// repeats a secret.
func ParseSecrets(text string) ([][]byte, error) {
	var secrets [][]byte
	for word := range strings.FieldsSeq(text) {
		secret := []byte(word)
		if encoded, ok := strings.CutPrefix(word, secretPrefix); ok {
			var err error
			if secret, err = base64.StdEncoding.DecodeString(encoded); err != nil {
				return nil, errors.New(`begins with "whsec_" and goes on with what is not base64; write it as it was made, with its padding`)
			}
		}
		if len(secret) < MinSecretBytes || len(secret) > MaxSecretBytes {
			return nil, fmt.Errorf("has a secret of %d bytes; use %d to %d: echo whsec_$(openssl rand -base64 32)", len(secret), MinSecretBytes, MaxSecretBytes)
		}
		secrets = append(secrets, secret)
	}
	if len(secrets) > MaxSecrets {
		return nil, fmt.Errorf("has %d secrets; use one, or two with a space between them while receivers go over", len(secrets))
	}
	return secrets, nil
}

// ParseURL checks where a webhook is. The error never repeats the address, whose
// path may be a secret.
func ParseURL(text string) (*url.URL, error) {
	if len(text) > MaxURLBytes {
		return nil, fmt.Errorf("has %d bytes; use at most %d", len(text), MaxURLBytes)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return nil, errors.New("is not a URL such as https://alerts.example.com/budgetd")
	}
	if u.Fragment != "" {
		return nil, errors.New("has a fragment (#...), which is never sent; leave it out")
	}
	return u, nil
}
