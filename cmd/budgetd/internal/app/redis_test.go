package app

import (
	"testing"
	"time"

	"github.com/budgetd/budgetd/reservation/redisstore"
)

func TestTimeoutsFollowTheDeadline(t *testing.T) {
	for _, c := range []struct {
		url      string
		deadline time.Duration
		read     time.Duration
		dial     time.Duration
	}{
		{"redis://127.0.0.1:6379", 50 * time.Millisecond, 25 * time.Millisecond, 20 * time.Millisecond},
		{"redis://127.0.0.1:6379", 10 * time.Millisecond, 25 * time.Millisecond, 20 * time.Millisecond},
		{"redis://127.0.0.1:6379", time.Second, 500 * time.Millisecond, 400 * time.Millisecond},
		{"redis://127.0.0.1:6379?read_timeout=7ms", time.Second, 7 * time.Millisecond, 400 * time.Millisecond},
	} {
		options, err := redisstore.Options(c.url)
		if err != nil {
			t.Fatal(err)
		}
		giveTime(options, c.deadline)
		if options.ReadTimeout != c.read || options.DialTimeout != c.dial {
			t.Errorf("%s, deadline %v: read %v, dial %v; want %v, %v", c.url, c.deadline, options.ReadTimeout, options.DialTimeout, c.read, c.dial)
		}
	}
}
