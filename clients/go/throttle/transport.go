package throttle

import "net/http"

// Transport is an http.RoundTripper that drops requests. An answer of 429 or 503,
// and no answer while the caller waits for one, is a refusal. A dropped request fails with [ErrDropped].
type Transport struct {
	Base     http.RoundTripper // http.DefaultTransport unless set
	Throttle *Throttle         // one for each service
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if !t.Throttle.Allow() {
		if request.Body != nil {
			request.Body.Close()
		}
		return nil, ErrDropped
	}
	response, err := base.RoundTrip(request)
	switch {
	case err == nil:
		t.Throttle.Done(response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable)
	case request.Context().Err() == nil:
		t.Throttle.Done(false)
	}
	return response, err
}
