package alerts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Bounds of one attempt.
const (
	sendWithin     = 10 * time.Second // from the dial to the end of the answer
	maxAnswerBytes = 16 << 10         // that are read of an answer, so that its connection can be used again
	maxHeaderBytes = 64 << 10
	maxRetryAfter  = 24 * time.Hour
	sendsAtOnce    = 8
)

// webhook is where alerts are posted.
type webhook struct {
	url     string
	signers []*standardwebhooks.Webhook // one a secret
	client  *http.Client
}

func newWebhook(url string, secrets [][]byte) (*webhook, error) {
	if _, err := ParseURL(url); err != nil {
		return nil, fmt.Errorf("webhook: its URL %w", err)
	}
	if len(secrets) == 0 {
		return nil, errors.New("webhook: it has no secret to sign with")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = sendsAtOnce
	transport.MaxResponseHeaderBytes = maxHeaderBytes
	transport.DisableCompression = true // nothing of an answer is looked at
	w := &webhook{url: url, client: &http.Client{
		Transport: transport,
		Timeout:   sendWithin,
		// What is signed for one receiver is not handed on to another.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for _, secret := range secrets {
		signer, err := standardwebhooks.NewWebhookRaw(secret)
		if err != nil {
			return nil, fmt.Errorf("webhook: %w", err)
		}
		w.signers = append(w.signers, signer)
	}
	return w, nil
}

// answer is what became of one attempt.
type answer struct {
	delivered  bool
	final      bool          // trying again does not help
	why        string        // it was not delivered, without the address
	retryAfter time.Duration // that the receiver asked for; 0 when it did not
}

// send posts the alert once.
func (w *webhook) send(ctx context.Context, a *Alert, now time.Time) answer {
	body, err := a.message()
	if err != nil {
		return answer{final: true, why: "it can't be written as JSON"}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return answer{why: "the address can't be used"}
	}
	var signatures []string
	for _, signer := range w.signers {
		signature, err := signer.Sign(a.ID, now, body)
		if err != nil {
			return answer{why: "it can't be signed"}
		}
		signatures = append(signatures, signature)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "budgetd")
	request.Header.Set(standardwebhooks.HeaderWebhookID, a.ID)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	response, err := w.client.Do(request)
	if err != nil {
		return answer{why: whyNot(err)}
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswerBytes)
	status := response.StatusCode
	switch {
	case status >= 200 && status < 300:
		return answer{delivered: true}
	case status >= 300 && status < 400:
		return answer{why: fmt.Sprintf("status %d: redirects are not followed; configure the address that they lead to", status)}
	case status == http.StatusGone:
		return answer{final: true, why: "status 410: the receiver wants no more of it"}
	}
	return answer{why: fmt.Sprintf("status %d", status), retryAfter: retryAfter(response.Header.Get("Retry-After"), now)}
}

// whyNot says why there was no answer, without the address, whose path may be a
// secret.
func whyNot(err error) string {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Sprintf("no answer within %v", sendWithin)
	}
	var where *url.Error
	if errors.As(err, &where) {
		err = where.Err
	}
	return err.Error()
}

// retryAfter reads a Retry-After header (RFC 9110, section 10.2.3): seconds or
// an instant, cut to maxRetryAfter; 0 for none, for one that can't be read and
// for one that has passed.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
