package proxy

import (
	"fmt"
	"net/http"
	"time"
)

// headerBudgetMaxWait is how long a call may wait for its start: "30s".
const headerBudgetMaxWait = "X-Budget-Max-Wait"

// maxWaitOf is how long a call may wait for its start.
func (p *Proxy) maxWaitOf(header http.Header) (*time.Duration, error) {
	values := header.Values(headerBudgetMaxWait)
	switch {
	case len(values) == 0:
		wait := p.config.MaxWait
		return &wait, nil
	case len(values) > 1:
		return nil, fmt.Errorf("there are several headers %s: send one", headerBudgetMaxWait)
	}
	wait, err := time.ParseDuration(values[0])
	if err != nil {
		return nil, fmt.Errorf("%s is not a time with a unit, such as 500ms, 10s or 1m", headerBudgetMaxWait)
	}
	if most := p.config.MaxWaitStated; wait < 0 || wait > most {
		return nil, fmt.Errorf("%s is out of bounds: state 0s to %s (the proxy's max_wait_stated), or leave it out to wait %s", headerBudgetMaxWait, most, p.config.MaxWait)
	}
	return &wait, nil
}
