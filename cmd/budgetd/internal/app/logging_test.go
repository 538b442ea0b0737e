package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/test/broker"
)

// Both forms of the log have durations with their unit.
func TestLogHasUnits(t *testing.T) {
	for form, want := range map[string]string{"json": `"took":"1.5s"`, "text": "took=1.5s"} {
		c, out := demoConfig(t), &broker.Output{}
		c.LogFormat = form
		app.NewLogger(out, c).Info("done", "took", 1500*time.Millisecond)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s", form, out)
		}
	}
}
